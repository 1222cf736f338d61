/* Output to the outside in transactions of a thread: held until the commit, dropped by an abort. TXOS_HOLD_OUTPUT says what of it.
 * One scenario for each argument; each exits with 0 if all is as the documentation says. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "check.h"

/* Two ends of something, as an outsider's would be. */
struct ends {
    const char *name;
    int in, out;   /* what is written to `out` is read from `in` */
    int messages;  /* it keeps them apart */
};

static void make_pipe(struct ends *e) {
    int p[2];
    CHECK(pipe(p) == 0);
    *e = (struct ends){"pipe", p[0], p[1], 0};
}

static void make_fifo(struct ends *e) {
    CHECK(mkfifo("fifo", 0600) == 0);
    int in = open("fifo", O_RDONLY | O_NONBLOCK), out = open("fifo", O_WRONLY);
    CHECK(in >= 0 && out >= 0 && unlink("fifo") == 0);
    *e = (struct ends){"fifo", in, out, 0};
}

static void make_pair(struct ends *e, int type, const char *name) {
    int s[2];
    CHECK(socketpair(AF_UNIX, type, 0, s) == 0);
    *e = (struct ends){name, s[0], s[1], type != SOCK_STREAM};
}

static void make_network(struct ends *e, int family, int type, const char *name) {
    struct sockaddr_storage at = {.ss_family = family};
    socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (family == AF_INET)
        ((struct sockaddr_in *)&at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        ((struct sockaddr_in6 *)&at)->sin6_addr = in6addr_loopback;
    int in = socket(family, type, 0), out = socket(family, type, 0);
    *e = (struct ends){NULL, -1, -1, 0};
    if (in < 0 || bind(in, (void *)&at, len) != 0)
        return; /* no such network here */
    CHECK(getsockname(in, (void *)&at, &len) == 0);
    CHECK(type != SOCK_STREAM || listen(in, 1) == 0);
    CHECK(connect(out, (void *)&at, len) == 0);
    if (type == SOCK_STREAM) {
        int connection = accept(in, NULL, NULL);
        CHECK(connection >= 0 && close(in) == 0);
        in = connection;
    }
    *e = (struct ends){name, in, out, type != SOCK_STREAM};
}

static void make_terminal(struct ends *e) {
    int master, slave;
    struct termios raw;
    CHECK(openpty(&master, &slave, NULL, NULL, NULL) == 0);
    CHECK(tcgetattr(slave, &raw) == 0);
    cfmakeraw(&raw);
    CHECK(tcsetattr(slave, TCSANOW, &raw) == 0);
    *e = (struct ends){"terminal", master, slave, 0};
}

#define KINDS 9
static void make(struct ends *e, int kind) {
    switch (kind) {
    case 0: return make_pipe(e);
    case 1: return make_fifo(e);
    case 2: return make_pair(e, SOCK_STREAM, "unix stream");
    case 3: return make_pair(e, SOCK_DGRAM, "unix datagram");
    case 4: return make_pair(e, SOCK_SEQPACKET, "unix packets");
    case 5: return make_network(e, AF_INET, SOCK_STREAM, "tcp");
    case 6: return make_network(e, AF_INET, SOCK_DGRAM, "udp");
    case 7: return make_network(e, AF_INET6, SOCK_STREAM, "tcp6");
    default: return make_terminal(e);
    }
}

/* All that is there to be read, with a bar after each message. */
static const char *there(struct ends *e) {
    static char text[4096];
    size_t len = 0;
    struct pollfd p = {.fd = e->in, .events = POLLIN};
    while (poll(&p, 1, e->name && strstr(e->name, "p") ? 20 : 0) > 0 && p.revents & POLLIN) {
        ssize_t n = read(e->in, text + len, sizeof text - 2 - len);
        if (n <= 0)
            break;
        len += n;
        if (e->messages)
            text[len++] = '|';
    }
    text[len] = 0;
    return text;
}

static const char *looked_at_from_outside(struct ends *e) {
    long id = sys_xpause();
    CHECK(id > 0);
    const char *text = there(e);
    CHECK(sys_xresume(id) == 0);
    return text;
}

static void write_three(struct ends *e) {
    struct iovec two[2] = {{"tw", 2}, {"o,", 2}};
    CHECK(write(e->out, "one,", 4) == 4);
    CHECK(writev(e->out, two, 2) == 4);
    CHECK(write(e->out, "three", 5) == 5);
}

static const char *all_three(struct ends *e) {
    return e->messages ? "one,|two,|three|" : "one,two,three";
}

static void commit(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        struct ends e;
        make(&e, kind);
        if (!e.name)
            continue;
        CHECK(sys_xbegin(0) == 0);
        write_three(&e);
        CHECK(!*looked_at_from_outside(&e));
        CHECK(close(creat("made", 0600)) == 0);
        CHECK(sys_xend() == 0);
        const char *text = there(&e);
        if (strcmp(text, all_three(&e)) != 0)
            fprintf(stderr, "%s: %s\n", e.name, text);
        CHECK(strcmp(text, all_three(&e)) == 0);
        CHECK(unlink("made") == 0);
        close(e.in);
        close(e.out);
    }
}

static void abort_drops(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        struct ends e;
        make(&e, kind);
        if (!e.name)
            continue;
        CHECK(sys_xbegin(0) == 0);
        write_three(&e);
        sys_xabort(1);
        CHECK(!*there(&e));
        CHECK(write(e.out, "after", 5) == 5);
        CHECK(strncmp(there(&e), "after", 5) == 0);
        close(e.in);
        close(e.out);
    }
}

static void restart(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        struct ends e;
        make(&e, kind);
        if (!e.name)
            continue;
        volatile int attempts = 0;
        CHECK(sys_xbegin(TX_RESTART) >= 0);
        write_three(&e);
        if (attempts++ < 2)
            ioctl(-1, LOSE);
        CHECK(sys_xend() == 0 && attempts == 3);
        CHECK(strcmp(there(&e), all_three(&e)) == 0);
        close(e.in);
        close(e.out);
    }
}

static void order(void) {
    struct ends e;
    make_pipe(&e);
    int copy = dup(e.out);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", e.out);
    int other = open(path, O_WRONLY);
    CHECK(copy >= 0 && other >= 0);
    CHECK(sys_xbegin(0) == 0);
    int inner = dup(e.out);
    CHECK(inner >= 0);
    for (int i = 0; i < 40; i++) {
        int to[4] = {e.out, copy, other, inner};
        char letter = 'a' + i % 26;
        CHECK(write(to[i * 7 % 4], &letter, 1) == 1);
    }
    /* The number is closed, and what was written is not lost. */
    CHECK(close(e.out) == 0 && close(copy) == 0 && close(inner) == 0);
    CHECK(sys_xend() == 0);
    CHECK(strcmp(there(&e), "abcdefghijklmnopqrstuvwxyzabcdefghijklmn") == 0);
    CHECK(fcntl(e.out, F_GETFD) == -1 && errno == EBADF);
}

/* A child of before the transaction, which answers each line. */
static pid_t echo(struct ends *to, struct ends *from) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(50);
        close(to->out);
        if (from->in != to->out)
            close(from->in);
        char line[256];
        ssize_t n;
        while ((n = read(to->in, line, sizeof line)) > 0)
            if (write(from->out, line, n) != n)
                _exit(1);
        _exit(0);
    }
    return child;
}

/* One of the ways to wait for an answer; what it is. */
static ssize_t wait_for(int how, int in, char *text, size_t size) {
    struct pollfd p = {.fd = in, .events = POLLIN};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(in, &set);
    struct timeval time = {.tv_sec = 40};
    struct timespec ptime = {.tv_sec = 40};
    struct epoll_event event = {.events = EPOLLIN};
    ssize_t n;
    switch (how) {
    case 0: break;
    case 1: CHECK(poll(&p, 1, 40000) == 1); break;
    case 2: CHECK(poll(&p, 1, -1) == 1); break;
    case 3: CHECK(ppoll(&p, 1, &ptime, NULL) == 1); break;
    case 4: CHECK(select(in + 1, &set, NULL, NULL, &time) == 1 && FD_ISSET(in, &set)); break;
    case 5: CHECK(pselect(in + 1, &set, NULL, NULL, NULL, NULL) == 1); break;
    case 6: {
        int ep = epoll_create1(0);
        CHECK(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, in, &event) == 0);
        CHECK(epoll_wait(ep, &event, 1, 40000) == 1 && close(ep) == 0);
        break;
    }
    case 7:
        CHECK(fcntl(in, F_SETFL, O_NONBLOCK) == 0);
        while ((n = read(in, text, size)) < 0)
            CHECK(errno == EAGAIN);
        return n;
    default:
        while (poll(&p, 1, 0) == 0)
            ;
    }
    return read(in, text, size);
}

#define WAYS 9
static void answers(void) {
    signal(SIGPIPE, SIG_IGN);
    for (int way = 0; way < WAYS; way++) {
        for (int pair = 0; pair < 2; pair++) {
            struct ends to, from;
            if (pair) {
                make_pair(&to, SOCK_STREAM, "unix stream");
                from = (struct ends){to.name, to.out, to.in, 0};
            } else {
                make_pipe(&to);
                make_pipe(&from);
            }
            pid_t child = echo(&to, &from);
            close(to.in);
            char text[64] = "";
            CHECK(sys_xbegin(0) == 0);
            CHECK(write(to.out, "ques", 4) == 4 && write(to.out, "tion", 4) == 4);
            CHECK(wait_for(way, from.in, text, sizeof text) == 8);
            CHECK(strcmp(text, "question") == 0);
            /* It is held again. */
            CHECK(write(to.out, "never", 5) == 5);
            sys_xabort(1);
            int flags = fcntl(from.in, F_GETFL);
            CHECK(fcntl(from.in, F_SETFL, flags & ~O_NONBLOCK) == 0);
            CHECK(write(to.out, "then", 4) == 4);
            CHECK(read(from.in, text, sizeof text) == 4 && strncmp(text, "then", 4) == 0);
            close(to.out);
            if (!pair)
                close(from.in), close(from.out);
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        }
    }
}

/* More than there is room for, each way: a program that waits by poll reads while the rest goes out. */
static void both_ways(void) {
    enum { SIZE = 3000000 };
    static char out[SIZE], in[SIZE];
    for (int i = 0; i < SIZE; i++)
        out[i] = 'a' + i % 23;
    for (int way = 0; way < 5; way++) {
        struct ends to, from;
        make_pipe(&to);
        make_pipe(&from);
        pid_t child = echo(&to, &from);
        close(to.in);
        close(from.out);
        memset(in, 0, sizeof in);
        if (way > 0)
            CHECK(fcntl(from.in, F_SETFL, O_NONBLOCK) == 0);
        CHECK(sys_xbegin(0) == 0);
        CHECK(write(to.out, out, SIZE) == SIZE);
        int ep = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        CHECK(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, from.in, &event) == 0);
        for (ssize_t len = 0, n; len < SIZE; len += n) {
            struct pollfd p = {.fd = from.in, .events = POLLIN};
            fd_set set;
            FD_ZERO(&set);
            FD_SET(from.in, &set);
            switch (way) {
            case 1: CHECK(poll(&p, 1, -1) == 1); break;
            case 2: CHECK(select(from.in + 1, &set, NULL, NULL, NULL) == 1); break;
            case 3: CHECK(epoll_wait(ep, &event, 1, 40000) == 1); break;
            default: break;
            }
            n = read(from.in, in + len, SIZE - len);
            if (n == -1 && errno == EAGAIN && way == 4)
                n = 0;
            CHECK(n >= 0);
        }
        CHECK(memcmp(in, out, SIZE) == 0);
        CHECK(write(to.out, "held", 4) == 4);
        sys_xabort(1);
        CHECK(close(to.out) == 0);
        CHECK(read(from.in, in, 8) <= 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    /* Held again while the rest goes out. */
    struct ends e;
    make_pipe(&e);
    CHECK(sys_xbegin(0) == 0);
    CHECK(write(e.out, out, 100000) == 100000);
    struct pollfd p = {.fd = e.out, .events = 0};
    CHECK(poll(&p, 1, 1) == 0);
    CHECK(write(e.out, "never", 5) == 5);
    ssize_t n, len = 0;
    long id = sys_xpause();
    CHECK(id > 0 && (n = read(e.in, in, SIZE)) > 0 && sys_xresume(id) == 0);
    len += n;
    CHECK(poll(&p, 1, 0) == 0);
    sys_xabort(1);
    CHECK(fcntl(e.in, F_SETFL, O_NONBLOCK) == 0);
    while ((n = read(e.in, in + len, SIZE - len)) > 0)
        len += n;
    CHECK(len == 100000 && memcmp(in, out, len) == 0);
    struct txos_abort a = {.size = sizeof a};
    CHECK(txos_abort_reason(&a) == 0 && strstr(a.what, "sent before that: 100000 bytes for a pipe"));
}

/* What has gone out is named, and nothing begins again by itself. */
static void once(void) {
    struct ends e;
    make_pair(&e, SOCK_STREAM, "unix stream");
    struct ends back = {e.name, e.out, e.in, 0};
    pid_t child = echo(&e, &back);
    close(e.in);
    char text[64];
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_RESTART) == 0);
    CHECK(attempts++ == 0);
    CHECK(write(e.out, "once", 4) == 4);
    CHECK(read(e.out, text, sizeof text) == 4);
    CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ECANCELED);
    struct txos_abort a = {.size = sizeof a};
    CHECK(txos_abort_reason(&a) == 0 && a.reason == TXOS_CONFLICT);
    CHECK(strstr(a.what, "; sent before that: 4 bytes for a socket (descriptor "));
    close(e.out);
    CHECK(waitpid(child, NULL, 0) == child);
}

static void strict(void) {
    struct ends e;
    make_pair(&e, SOCK_STREAM, "unix stream");
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(write(e.out, "word", 4) == 4);
    char text[8];
    CHECK(read(e.out, text, sizeof text) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1);
    struct txos_abort a = {.size = sizeof a};
    CHECK(txos_abort_reason(&a) == 0 && a.reason == TXOS_UNSUPPORTED);
    CHECK(!*there(&e));
    /* Without a wait it is part of the transaction. */
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(write(e.out, "word", 4) == 4);
    CHECK(send(e.out, "s", 1, MSG_NOSIGNAL) == 1);
    CHECK(sys_xend() == 0 && strcmp(there(&e), "words") == 0);
}

static void gone(void) {
    signal(SIGPIPE, SIG_IGN);
    for (int kind = 0; kind < 3; kind++) {
        struct ends e;
        make(&e, kind);
        CHECK(sys_xbegin(0) == 0);
        CHECK(write(e.out, "word", 4) == 4);
        CHECK(close(creat("made", 0600)) == 0);
        long id = sys_xpause();
        CHECK(id > 0 && close(e.in) == 0 && sys_xresume(id) == 0);
        /* Nobody will read it: that is known by now. */
        CHECK(write(e.out, "more", 4) == -1 && errno == EPIPE);
        CHECK(sys_xend() == 0);
        CHECK(strstr(txos_strerror(), "the transaction has committed"));
        CHECK(strstr(txos_strerror(), "4 bytes for a ") && strstr(txos_strerror(), "Broken pipe"));
        CHECK(unlink("made") == 0);
        close(e.out);
    }
}

static void limit(void) {
    struct ends e;
    make_pipe(&e);
    static char block[60000];
    size_t held = 0;
    CHECK(sys_xbegin(0) == 0);
    ssize_t n;
    while ((n = write(e.out, block, sizeof block)) > 0)
        held += n;
    CHECK(n == -1 && errno == ENOSPC && held == 180000);
    CHECK(write(e.out, "fits", 4) == 4);
    sys_xabort(1);
    CHECK(!*there(&e));
}

/* More than is kept in memory, to a slow reader, as it was written. */
static void large(void) {
    enum { PIECES = 3000 };
    for (int kind = 0; kind < 3; kind += 2) {
        struct ends e;
        make(&e, kind);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(50);
            close(e.out);
            FILE *in = fdopen(e.in, "r");
            for (int i = 0; i < PIECES; i++)
                for (int j = 0; j < 1000 + i % 7; j++)
                    if (getc(in) != (char)('a' + (i + j) % 26))
                        _exit(1);
            _exit(getc(in) == EOF ? 0 : 2);
        }
        close(e.in);
        CHECK(sys_xbegin(0) == 0);
        for (int i = 0; i < PIECES; i++) {
            char piece[1010];
            int len = 1000 + i % 7;
            for (int j = 0; j < len; j++)
                piece[j] = 'a' + (i + j) % 26;
            CHECK(write(e.out, piece, len) == len);
        }
        CHECK(sys_xend() == 0);
        close(e.out);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

/* Pipes and pairs of the transaction's own flow at once, also to a child outside. */
static void inside(void) {
    CHECK(sys_xbegin(TX_STRICT) == 0);
    int p[2], s[2];
    char text[8];
    CHECK(pipe(p) == 0 && write(p[1], "pipe", 4) == 4 && read(p[0], text, 8) == 4);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    CHECK(write(s[1], "pair", 4) == 4 && read(s[0], text, 8) == 4);
    CHECK(mkfifo("own", 0600) == 0);
    int both = open("own", O_RDWR);
    CHECK(both >= 0 && write(both, "fifo", 4) == 4 && read(both, text, 8) == 4);
    CHECK(unlink("own") == 0 && sys_xend() == 0);
    CHECK(sys_xbegin(0) == 0);
    CHECK(pipe(p) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char word[8];
        _exit(read(p[0], word, 8) == 4 ? 7 : 1);
    }
    int status;
    CHECK(write(p[1], "word", 4) == 4);
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    CHECK(sys_xend() == 0);
}

static void moved(void) {
    struct ends e;
    make_pipe(&e);
    int file = open("from", O_RDWR | O_CREAT, 0600);
    CHECK(write(file, "0123456789", 10) == 10 && lseek(file, 0, SEEK_SET) == 0);
    CHECK(sys_xbegin(0) == 0);
    CHECK(pwrite(file, "X", 1, 1) == 1);
    off_t at = 1;
    loff_t place = 4;
    struct iovec piece = {"vm", 2};
    CHECK(sendfile(e.out, file, &at, 3) == 3 && at == 4);
    CHECK(sendfile(e.out, file, NULL, 2) == 2 && lseek(file, 0, SEEK_CUR) == 2);
    CHECK(splice(file, &place, e.out, NULL, 2, 0) == 2 && place == 6);
    CHECK(vmsplice(e.out, &piece, 1, 0) == 2);
    CHECK(!*looked_at_from_outside(&e));
    CHECK(sys_xend() == 0 && strcmp(there(&e), "X230X45vm") == 0);
    CHECK(unlink("from") == 0);
}

static void messages(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(in, (void *)&at, len) == 0 && getsockname(in, (void *)&at, &len) == 0);
    struct ends e = {"udp", in, out, 1};
    CHECK(sys_xbegin(0) == 0);
    CHECK(send(out, "x", 1, 0) == -1 && errno == EDESTADDRREQ);
    CHECK(sendto(out, "to", 2, 0, (void *)&at, len) == 2);
    struct iovec words[3] = {{"one", 3}, {"two", 3}, {"", 0}};
    struct msghdr one = {.msg_name = &at, .msg_namelen = len, .msg_iov = words, .msg_iovlen = 2};
    CHECK(sendmsg(out, &one, MSG_NOSIGNAL) == 6);
    struct mmsghdr many[3] = {{.msg_hdr = one}, {.msg_hdr = one}, {.msg_hdr = one}};
    many[1].msg_hdr.msg_iovlen = 1;
    many[2].msg_hdr.msg_iov = words + 1;
    many[2].msg_hdr.msg_iovlen = 1;
    CHECK(sendmmsg(out, many, 3, 0) == 3 && many[0].msg_len == 6 && many[1].msg_len == 3);
    CHECK(!*looked_at_from_outside(&e));
    CHECK(sys_xend() == 0 && strcmp(there(&e), "to|onetwo|onetwo|one|two|") == 0);
    /* Ended for the other side when all has arrived. */
    make_pair(&e, SOCK_STREAM, "unix stream");
    char text[8];
    CHECK(sys_xbegin(0) == 0);
    CHECK(write(e.out, "last", 4) == 4 && shutdown(e.out, SHUT_WR) == 0);
    CHECK(send(e.out, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    CHECK(!*looked_at_from_outside(&e));
    CHECK(sys_xend() == 0);
    CHECK(read(e.in, text, 8) == 4 && read(e.in, text, 8) == 0);
}

/* As syslog(3) does it: the socket is the transaction's, who reads it is not. */
static void logged(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "log"};
    int in = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(in, (void *)&at, sizeof at) == 0);
    struct ends e = {"log", in, -1, 1};
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(0) == 0);
        int out = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        CHECK(connect(out, (void *)&at, sizeof at) == 0);
        CHECK(send(out, "message", 7, MSG_NOSIGNAL) == 7);
        CHECK(close(out) == 0);
        CHECK(!*looked_at_from_outside(&e));
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        CHECK(strcmp(there(&e), commits ? "message|" : "") == 0);
    }
    CHECK(unlink("log") == 0);
}

/* A child that waits for what is held, and is waited for. */
static void child(void) {
    struct ends e;
    make_pipe(&e);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char text[8];
        alarm(50);
        _exit(read(e.in, text, 8) == 4 ? 7 : 1);
    }
    int status;
    CHECK(sys_xbegin(0) == 0);
    CHECK(write(e.out, "word", 4) == 4);
    CHECK(waitpid(child, &status, WNOHANG) == 0);
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    CHECK(sys_xend() == 0);
}

static void *writes(void *e) {
    write_three(e);
    return NULL;
}

/* Of several threads nothing is held: another one may be waiting for it. */
static void threads(void) {
    CHECK(mkfifo("fifo", 0600) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char text[64];
        alarm(50);
        int in = open("fifo", O_RDONLY), len = 0, n;
        while ((n = read(in, text + len, sizeof text - len)) > 0)
            len += n;
        _exit(len == 26 && memcmp(text, "one,two,threeone,two,three", 26) == 0 ? 0 : 1);
    }
    struct ends f = {"fifo", -1, open("fifo", O_WRONLY), 0};
    CHECK(f.out >= 0);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(TX_THREADS) == 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, writes, &f) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
    }
    CHECK(close(f.out) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(unlink("fifo") == 0);
}

/* A prompt, and its answer, at a terminal. */
static void prompt(void) {
    struct ends e;
    make_terminal(&e);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char text[16];
        alarm(50);
        _exit(read(e.in, text, 16) == 4 && write(e.in, "yes\r", 4) == 4 ? 0 : 1);
    }
    char text[16];
    CHECK(sys_xbegin(0) == 0);
    CHECK(write(e.out, "go? ", 4) == 4);
    CHECK(read(e.out, text, 16) == 4 && memcmp(text, "yes", 3) == 0);
    CHECK(write(e.out, "gone", 4) == 4);
    CHECK(!*looked_at_from_outside(&e));
    CHECK(sys_xend() == 0 && strcmp(there(&e), "gone") == 0);
    CHECK(waitpid(child, NULL, 0) == child);
}

static uint64_t counted(int fd) {
    uint64_t count = 0;
    long id = sys_xpause();
    ssize_t n = read(fd, &count, sizeof count);
    CHECK(n == sizeof count || errno == EAGAIN);
    CHECK(id <= 0 || sys_xresume(id) == 0);
    return count;
}

/* A program that prompts in each of its transactions. What it has prompted for an abort names, and it does not begin again. */
static void prompts(void) {
    struct ends e;
    struct txos_abort a = {.size = sizeof a};
    make_terminal(&e);
    char text[16];
    for (int i = 0; i < 3; i++) {
        volatile int attempts = 0;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(50);
            _exit(read(e.in, text, 16) == 4 && write(e.in, "yes\r", 4) == 4 ? 0 : 1);
        }
        CHECK(sys_xbegin(TX_RESTART) == 0 && attempts++ == 0);
        CHECK(write(e.out, "go? ", 4) == 4 && close(creat("made", 0600)) == 0);
        CHECK(read(e.out, text, 16) == 4 && memcmp(text, "yes", 3) == 0);
        CHECK(write(e.out, "gone", 4) == 4 && waitpid(child, NULL, WNOHANG) >= 0);
        if (i < 2) {
            CHECK(sys_xend() == 0 && read(e.in, text, 16) == 4 && memcmp(text, "gone", 4) == 0);
            CHECK(unlink("made") == 0);
            continue;
        }
        CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED && sys_xend() == -1 && errno == ECANCELED);
        CHECK(txos_abort_reason(&a) == 0 && strstr(a.what, "; sent before that: 4 bytes for a terminal (descriptor "));
        CHECK(access("made", F_OK) == -1 && !*there(&e));
    }
    while (wait(NULL) > 0)
        ;
}

/* More than can be held, here for a limit of files: it is live from there on, nothing is missing, and an abort names it. */
static void beyond(void) {
    enum { PIECES = 8000, PIECE = 1024 };
    const struct rlimit limit = {1 << 22, RLIM_INFINITY};
    CHECK(sys_xbegin(0) == 0 && close(creat("made", 0600)) == 0 && sys_xend() == 0 && unlink("made") == 0);
    for (int commits = 0; commits < 2; commits++) {
        struct ends e;
        make_pipe(&e);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            static char text[65536];
            ssize_t n, len = 0;
            alarm(50);
            CHECK(close(e.out) == 0);
            while ((n = read(e.in, text, sizeof text)) > 0)
                for (ssize_t i = 0; i < n; i++, len++)
                    CHECK(text[i] == 'a' + len / PIECE % 26);
            /* Of an abort what is still held is missing. */
            _exit(len == PIECES * PIECE ? 1 : len > PIECES / 4 * PIECE ? 2 : 3);
        }
        CHECK(close(e.in) == 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0 && sys_xbegin(0) == 0);
        for (int i = 0; i < PIECES; i++) {
            char piece[PIECE];
            memset(piece, 'a' + i % 26, sizeof piece);
            CHECK(write(e.out, piece, sizeof piece) == sizeof piece);
        }
        if (commits)
            CHECK(sys_xend() == 0);
        else {
            struct txos_abort a = {.size = sizeof a};
            ioctl(-1, LOSE);
            CHECK(sys_xend() == -1 && txos_abort_reason(&a) == 0);
            CHECK(strstr(a.what, " bytes for a pipe (descriptor "));
        }
        int status;
        CHECK(close(e.out) == 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == (commits ? 1 : 2));
    }
}

/* A pipe that does not wait: no more is held than it takes, the kernel says how much that is, and whether there is room. */
static void never_waits(void) {
    struct ends e;
    static char block[1 << 20], got[1 << 20];
    make_pipe(&e);
    int spare = fcntl(e.in, F_DUPFD, 0);
    pid_t child = fork(); /* has the reading end: the process itself would be woken by it */
    CHECK(child >= 0);
    if (child == 0) {
        alarm(50);
        for (;;)
            pause();
    }
    CHECK(spare >= 0 && close(e.in) == 0 && close(spare) == 0 && fcntl(e.out, F_SETFL, O_NONBLOCK) == 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", child, e.in);
    struct pollfd out = {.fd = e.out, .events = POLLOUT};
    /* What fits is held, also beside what is there. */
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(TX_STRICT) == 0 && poll(&out, 1, 0) == 1 && write(e.out, "word", 4) == 4);
        CHECK(poll(&out, 1, 0) == 1 && write(e.out, "s", 1) == 1);
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        int in = open(path, O_RDONLY | O_NONBLOCK);
        ssize_t n = read(in, got, 3);
        CHECK(commits ? n == 3 && memcmp(got, "wor", 3) == 0 : n == -1 && errno == EAGAIN);
        CHECK(close(in) == 0);
    }
    CHECK(sys_xbegin(TX_STRICT) == 0 && write(e.out, "more", 4) == 4 && sys_xend() == 0);
    int in = open(path, O_RDONLY | O_NONBLOCK);
    CHECK(in >= 0 && read(in, got, 16) == 6 && memcmp(got, "dsmore", 6) == 0);
    CHECK(close(in) == 0);
    /* What does not fit is live: the kernel takes a part of it. A full pipe takes nothing, and poll says so. */
    CHECK(sys_xbegin(0) == 0 && write(e.out, "held", 4) == 4);
    ssize_t first = write(e.out, block, sizeof block);
    CHECK(first > 0 && first < (ssize_t)sizeof block);
    while (write(e.out, block, 4096) > 0)
        first += 4096;
    CHECK(errno == EAGAIN && poll(&out, 1, 0) == 0);
    in = open(path, O_RDONLY | O_NONBLOCK);
    CHECK(in >= 0 && read(in, got, 4) == 4 && memcmp(got, "held", 4) == 0);
    while (first > 0) {
        ssize_t n = read(in, got, sizeof got);
        CHECK(n > 0);
        first -= n;
    }
    CHECK(first == 0 && poll(&out, 1, 0) == 1 && write(e.out, "last", 4) == 4);
    CHECK(read(in, got, 4) == -1 && errno == EAGAIN);
    CHECK(sys_xend() == 0 && read(in, got, 8) == 4 && memcmp(got, "last", 4) == 0);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

/* By which an event loop wakes itself: at once. */
static void wakers(void) {
    int p[2], counter_ = eventfd(0, EFD_NONBLOCK);
    uint64_t one = 1, count = 0;
    CHECK(pipe2(p, O_NONBLOCK) == 0 && counter_ >= 0);
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(write(counter_, &one, 8) == 8 && counted(counter_) == 1);
    struct pollfd in[2] = {{.fd = counter_, .events = POLLIN}, {.fd = p[0], .events = POLLIN}};
    CHECK(write(counter_, &one, 8) == 8 && poll(in, 1, 1000) == 1 && in[0].revents == POLLIN);
    CHECK(read(counter_, &count, 8) == 8 && count == 1);
    CHECK(sys_xend() == 0);
    CHECK(sys_xbegin(0) == 0 && write(p[1], "x", 1) == 1);
    CHECK(poll(in, 2, 1000) == 1 && in[1].revents == POLLIN && read(p[0], &one, 8) == 1);
    CHECK(sys_xend() == 0);
    /* With threads also what waits, and with a language's runtime. */
    CHECK(pipe(p) == 0 && sys_xbegin(TX_MANAGED) == 0 && write(p[1], "x", 1) == 1);
    struct ends e = {"pipe", p[0], p[1], 0};
    CHECK(strcmp(there(&e), "x") == 0 && sys_xend() == 0);
}

/* To be seen through a pipe: what a child says comes after what was said before, and what follows is held. */
static void children(void) {
    CHECK(sys_xbegin(0) == 0);
    printf("before\n");
    fflush(stdout);
    CHECK(system("echo child") == 0);
    printf("dropped\n");
    fflush(stdout);
    sys_xabort(1);
    printf("after\n");
}

/* Which kinds are held: one letter for each of a pipe, a terminal, a counter and a socket. */
static void kinds(void) {
    struct ends e[2], pair;
    int counter_ = eventfd(0, 0);
    uint64_t one = 1;
    make_pipe(&e[0]);
    make_terminal(&e[1]);
    make_pair(&pair, SOCK_STREAM, "unix stream");
    CHECK(sys_xbegin(0) == 0);
    CHECK(write(e[0].out, "x", 1) == 1 && write(e[1].out, "x", 1) == 1);
    CHECK(write(counter_, &one, 8) == 8 && send(pair.out, "x", 1, 0) == 1);
    sys_xabort(1);
    CHECK(fcntl(counter_, F_SETFL, O_NONBLOCK) == 0);
    printf("%c%c%c%c\n", *there(&e[0]) ? '-' : 'p', *there(&e[1]) ? '-' : 't', counted(counter_) ? '-' : 'c',
           *there(&pair) ? '-' : 's');
}

static void fill(int fd) {
    int flags = fcntl(fd, F_GETFL);
    static char block[4096];
    CHECK(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
    while (write(fd, block, sizeof block) > 0)
        ;
    CHECK(errno == EAGAIN && fcntl(fd, F_SETFL, flags) == 0);
}

/* A write that is held does not wait, and so poll and select say: also if the kernel has no room. */
static void ready(void) {
    for (int kind = 0; kind < 3; kind++) {
        struct ends e, other;
        make(&e, kind);
        make_pipe(&other);
        fill(e.out);
        struct pollfd p[2] = {{.fd = other.in, .events = POLLIN}, {.fd = e.out, .events = POLLOUT}};
        fd_set in, out;
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_SET(other.in, &in);
        FD_SET(e.out, &out);
        struct epoll_event events[4] = {{.events = EPOLLOUT, .data.u64 = 1ULL << 40 | 7}};
        int ep = epoll_create1(0);
        CHECK(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, e.out, events) == 0);
        events[0] = (struct epoll_event){.events = EPOLLIN, .data.u64 = 8};
        CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, other.in, events) == 0);
        CHECK(poll(p, 2, 0) == 0 && epoll_wait(ep, events, 4, 0) == 0);
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(epoll_wait(ep, events, 4, -1) == 1 && events[0].events == EPOLLOUT);
        CHECK(events[0].data.u64 == (1ULL << 40 | 7));
        CHECK(poll(p, 2, -1) == 1 && p[0].revents == 0 && p[1].revents == POLLOUT);
        CHECK(select(other.out + 1, &in, &out, NULL, NULL) == 1);
        CHECK(!FD_ISSET(other.in, &in) && FD_ISSET(e.out, &out));
        CHECK(write(e.out, "held", 4) == 4);
        CHECK(poll(p, 2, -1) == 1 && p[1].revents == POLLOUT);
        CHECK(epoll_wait(ep, events, 4, 0) == 1 && events[0].events == EPOLLOUT);
        sys_xabort(1);
        CHECK(epoll_wait(ep, events, 4, 0) == 0 && close(ep) == 0);
        CHECK(poll(p, 2, 0) == 0);
        /* What is ready for the kernel is told as well. */
        CHECK(write(other.out, "x", 1) == 1);
        CHECK(sys_xbegin(TX_STRICT) == 0);
        FD_SET(other.in, &in);
        CHECK(poll(p, 2, -1) == 2 && p[0].revents == POLLIN && p[1].revents == POLLOUT);
        CHECK(select(other.out + 1, &in, &out, NULL, NULL) == 2 && FD_ISSET(other.in, &in));
        CHECK(sys_xend() == 0);
        CHECK(sys_xbegin(TX_STRICT) == 0);
        long id = sys_xpause();
        CHECK(id > 0 && close(e.in) == 0 && sys_xresume(id) == 0);
        CHECK(poll(p, 2, -1) == 2 && p[1].revents & (POLLERR | POLLHUP));
        sys_xabort(1);
        close(e.out);
        close(other.in);
        close(other.out);
    }
}

/* A counter that others have too. */
static void counter(void) {
    int fd = eventfd(1, EFD_NONBLOCK);
    uint64_t two = 2, all = UINT64_MAX, count;
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(write(fd, &two, 8) == 8 && write(fd, &two, 8) == 8);
    CHECK(write(fd, &two, 7) == -1 && errno == EINVAL);
    CHECK(write(fd, &all, 8) == -1 && errno == EINVAL);
    CHECK(counted(fd) == 1 && counted(fd) == 0);
    CHECK(sys_xend() == 0 && counted(fd) == 4 && counted(fd) == 0);
    CHECK(sys_xbegin(TX_STRICT) == 0 && write(fd, &two, 8) == 8);
    sys_xabort(1);
    CHECK(counted(fd) == 0);
    /* One of the transaction's own. */
    CHECK(sys_xbegin(TX_STRICT) == 0);
    int own = eventfd(0, 0);
    CHECK(write(own, &two, 8) == 8 && read(own, &count, 8) == 8 && count == 2);
    CHECK(sys_xend() == 0);
    /* Somebody waits for it, and is waited for. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        alarm(50);
        _exit(poll(&p, 1, -1) == 1 && read(fd, &count, 8) == 8 && count == 2 ? 7 : 1);
    }
    int status;
    CHECK(sys_xbegin(0) == 0 && write(fd, &two, 8) == 8);
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    CHECK(sys_xend() == 0);
}

/* Answers each request with how many it has had, and ends with that. */
static void serve(int socket, int requests) {
    static const char *answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n%d";
    alarm(50);
    for (int had = 1; had <= requests; had++) {
        char text[4096] = "";
        size_t len = 0;
        ssize_t n;
        int connection = accept(socket, NULL, NULL);
        while (!strstr(text, "\r\n\r\nname=value") && len < sizeof text - 1) {
            if ((n = read(connection, text + len, sizeof text - 1 - len)) <= 0)
                _exit(100);
            len += n;
        }
        if (dprintf(connection, answer, had) < 0 || close(connection) != 0)
            _exit(101);
    }
    _exit(requests);
}

static size_t got(const char *bytes, size_t size, size_t count, void *to) {
    strncat(to, bytes, size * count);
    return size * count;
}

/* A client that knows of no transaction: libcurl posts, and gets the answer. What went out is not sent again. */
static void client(void) {
    enum { URL = 10002, POSTFIELDS = 10015, WRITEFUNCTION = 20011, WRITEDATA = 10001, NOSIGNAL = 99 };
    void *library = dlopen("libcurl.so.4", RTLD_NOW);
    if (!library)
        _exit(77);
    void *(*init)(void) = dlsym(library, "curl_easy_init");
    int (*set)(void *, int, ...) = dlsym(library, "curl_easy_setopt");
    int (*perform)(void *) = dlsym(library, "curl_easy_perform");
    void (*cleanup)(void *) = dlsym(library, "curl_easy_cleanup");
    CHECK(init && set && perform && cleanup);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int socket_ = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(socket_, (void *)&at, len) == 0 && listen(socket_, 4) == 0);
    CHECK(getsockname(socket_, (void *)&at, &len) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        serve(socket_, 2);
    char url[64], answer[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(at.sin_port));
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(TX_RESTART) == 0);
        answer[0] = 0;
        void *curl = init();
        CHECK(curl && set(curl, URL, url) == 0 && set(curl, POSTFIELDS, "name=value") == 0);
        CHECK(set(curl, NOSIGNAL, 1L) == 0);
        CHECK(set(curl, WRITEFUNCTION, got) == 0 && set(curl, WRITEDATA, answer) == 0);
        CHECK(perform(curl) == 0 && answer[0] == '1' + commits && !answer[1]);
        cleanup(curl);
        CHECK(close(creat("posted", 0600)) == 0);
        if (commits) {
            CHECK(sys_xend() == 0);
            continue;
        }
        CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
        CHECK(sys_xend() == -1 && access("posted", F_OK) == -1);
        struct txos_abort a = {.size = sizeof a};
        CHECK(txos_abort_reason(&a) == 0 && strstr(a.what, "; sent before that: "));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 2);
    CHECK(unlink("posted") == 0);
}

/* What is held is sent under the settings of the commit. */
static void settings(void) {
    struct ends e;
    struct termios raw, cooked;
    make_terminal(&e);
    CHECK(tcgetattr(e.out, &raw) == 0);
    cooked = raw;
    cooked.c_oflag |= OPOST | ONLCR;
    CHECK(tcsetattr(e.out, TCSANOW, &cooked) == 0);
    CHECK(sys_xbegin(0) == 0);
    CHECK(write(e.out, "line\n", 5) == 5 && tcsetattr(e.out, TCSANOW, &raw) == 0);
    CHECK(sys_xend() == 0 && strcmp(there(&e), "line\n") == 0);
}

/* What the test reads from the standard streams. */
static void standard(void) {
    printf("before\n");
    fflush(stdout);
    CHECK(sys_xbegin(0) == 0);
    printf("dropped\n");
    fflush(stdout);
    fprintf(stderr, "said\n");
    sys_xabort(1);
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    printf("kept\n");
    fflush(stdout);
    if (attempts++ == 0)
        ioctl(-1, LOSE);
    CHECK(sys_xend() == 0);
    printf("after\n");
}

/* Ends within the transaction. */
static void ends(void) {
    CHECK(sys_xbegin(0) == 0);
    printf("never\n");
    fflush(stdout);
    exit(0);
}

/* Nobody reads it any more: the signal comes, after the commit. */
static void broken(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct ends e;
        make_pipe(&e);
        CHECK(sys_xbegin(0) == 0);
        CHECK(write(e.out, "word", 4) == 4);
        CHECK(close(creat("made", 0600)) == 0);
        long id = sys_xpause();
        CHECK(id > 0 && close(e.in) == 0 && sys_xresume(id) == 0);
        sys_xend();
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    CHECK(unlink("made") == 0);
}

static void wait_for_file(const char *name) {
    while (access(name, F_OK) != 0)
        usleep(1000);
}

/* A commit that waits for its reader: what it has changed is there, in nobody's way, and a signal ends the wait. */
static void ended(void) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGKILL};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct ends e;
        make_pipe(&e);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            static char block[300000];
            const struct rlimit none = {0, 0};
            memset(block, 'x', sizeof block);
            close(e.in);
            setrlimit(RLIMIT_CORE, &none);
            signal(signals[i], SIG_DFL);
            CHECK(sys_xbegin(0) == 0);
            CHECK(write(e.out, block, sizeof block) == sizeof block);
            CHECK(close(creat("made", 0600)) == 0);
            sys_xend();
            _exit(1);
        }
        close(e.out);
        wait_for_file("made");
        CHECK(sys_xbegin(0) == 0);
        int file = open("made", O_WRONLY | O_APPEND);
        CHECK(file >= 0 && write(file, "more", 4) == 4 && close(file) == 0);
        CHECK(sys_xend() == 0);
        CHECK(kill(child, signals[i]) == 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
        struct stat made;
        CHECK(stat("made", &made) == 0 && made.st_size == 4 && unlink("made") == 0);
        /* What was sent is a beginning of it. */
        static char text[400000];
        ssize_t n, len = 0;
        while ((n = read(e.in, text + len, sizeof text - len)) > 0)
            len += n;
        CHECK(n == 0 && len < 300000);
        for (ssize_t at = 0; at < len; at++)
            CHECK(text[at] == 'x');
        close(e.in);
    }
}

/* A reader that comes late: people are told what the program waits for. */
static void told(void) {
    struct ends e, said;
    make_pipe(&e);
    make_pipe(&said);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        static char block[300000];
        CHECK(dup2(said.out, 2) == 2);
        close(e.in);
        CHECK(sys_xbegin(0) == 0);
        CHECK(write(e.out, block, sizeof block) == sizeof block);
        CHECK(sys_xend() == 0);
        _exit(0);
    }
    close(e.out);
    close(said.out);
    static char text[300000];
    ssize_t n, len = 0;
    while (!memmem(text, len, "is waiting for the reader of descriptor", 39)) {
        n = read(said.in, text + len, sizeof text - len);
        CHECK(n > 0);
        len += n;
    }
    len = 0;
    while ((n = read(e.in, text, sizeof text)) > 0)
        len += n;
    int status;
    CHECK(n == 0 && len == 300000);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Killed before the commit: nothing has happened. */
static void killed(void) {
    struct ends e;
    make_pipe(&e);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(sys_xbegin(0) == 0);
        write_three(&e);
        CHECK(close(creat("made", 0600)) == 0);
        kill(getpid(), SIGKILL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
    CHECK(!*there(&e) && access("made", F_OK) == -1);
}

/* What is written while it is paused is out at once. */
static void paused(void) {
    struct ends e;
    make_pipe(&e);
    CHECK(sys_xbegin(0) == 0);
    CHECK(write(e.out, "held", 4) == 4);
    long id = sys_xpause();
    CHECK(id > 0 && write(e.out, "now,", 4) == 4 && sys_xresume(id) == 0);
    CHECK(sys_xend() == 0 && strcmp(there(&e), "now,held") == 0);
}

/* Of nested transactions the outermost commits. */
static void nested(void) {
    struct ends e;
    make_pipe(&e);
    CHECK(sys_xbegin(0) == 0 && write(e.out, "one,", 4) == 4);
    CHECK(sys_xbegin(0) == 0 && write(e.out, "two", 3) == 3 && sys_xend() == 0);
    CHECK(!*looked_at_from_outside(&e));
    CHECK(sys_xend() == 0 && strcmp(there(&e), "one,two") == 0);
}

/* A child that was forked in the transaction does not have what is held, nor keep an end open for it. */
static void forked(void) {
    struct ends e;
    make_pipe(&e);
    CHECK(sys_xbegin(0) == 0);
    CHECK(write(e.out, "once", 4) == 4);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char text[8];
        alarm(50);
        close(e.out);
        ssize_t n, len = 0;
        while ((n = read(e.in, text + len, sizeof text - len)) > 0)
            len += n;
        _exit(n == 0 && len == 4 ? 7 : 1);
    }
    CHECK(close(e.in) == 0 && sys_xend() == 0 && close(e.out) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
}

/* Another program in place of this one ends the transaction; what it held is not the program's. */
static void replaced(void) {
    struct ends e;
    make_pipe(&e);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(sys_xbegin(0) == 0);
        write_three(&e);
        execlp("true", "true", NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && !*there(&e));
}

/* Memory is put back as well: what stdio had is said once. */
static void checkpoint(void) {
    struct ends e;
    make_pipe(&e);
    FILE *out = fdopen(e.out, "w");
    CHECK(out);
    int attempt = sys_xbegin(TX_CHECKPOINT | TX_RESTART);
    CHECK(attempt >= 0);
    fprintf(out, "one,");
    fflush(out);
    fprintf(out, "two");
    if (attempt < 2)
        ioctl(-1, LOSE);
    fflush(out);
    CHECK(sys_xend() == 0 && attempt == 2);
    CHECK(strcmp(there(&e), "one,two") == 0);
}

static int pipes[2][2];

static void *answers_once(void *result) {
    char text[8];
    ssize_t n = read(pipes[0][0], text, sizeof text);
    *(ssize_t *)result = n > 0 ? write(pipes[1][1], text, n) : n;
    return NULL;
}

/* Another thread of the process has the other end: it gets what is written at once. */
static void own(void) {
    pthread_t thread;
    ssize_t result = 0;
    char text[8];
    for (int pairs = 0; pairs < 2; pairs++) {
        for (int i = 0; i < 2; i++)
            CHECK((pairs ? socketpair(AF_UNIX, SOCK_STREAM, 0, pipes[i]) : pipe(pipes[i])) == 0);
        CHECK(pthread_create(&thread, NULL, answers_once, &result) == 0);
        CHECK(sys_xbegin(0) == 0);
        CHECK(write(pipes[0][1], "word", 4) == 4);
        CHECK(pthread_join(thread, NULL) == 0 && result == 4);
        CHECK(read(pipes[1][0], text, sizeof text) == 4);
        CHECK(sys_xend() == 0);
    }
    /* To itself, without waiting: as much as the pipe takes. */
    CHECK(pipe2(pipes[0], O_NONBLOCK) == 0);
    static char block[1 << 20];
    CHECK(sys_xbegin(0) == 0);
    ssize_t n = write(pipes[0][1], block, sizeof block);
    CHECK(n > 0 && n < (ssize_t)sizeof block);
    CHECK(write(pipes[0][1], block, 1) == -1 && errno == EAGAIN);
    CHECK(sys_xend() == 0);
}

/* What can't be held is out at once, and what was held for the same end before it. */
static void live(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "log"};
    int in = socket(AF_UNIX, SOCK_DGRAM, 0), out = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(in, (void *)&at, sizeof at) == 0);
    struct ends log = {"log", in, out, 1}, e, p, from;
    make_pair(&e, SOCK_SEQPACKET, "unix packets");
    make_pipe(&p);
    make_pipe(&from);
    CHECK(write(from.out, "tee", 3) == 3);
    CHECK(sys_xbegin(0) == 0);
    /* To a path. */
    CHECK(sendto(out, "path", 4, 0, (void *)&at, sizeof at) == 4);
    CHECK(strcmp(looked_at_from_outside(&log), "path|") == 0);
    /* Credentials, after something that is held. */
    struct ucred own = {getpid(), getuid(), getgid()};
    union {
        char space[CMSG_SPACE(sizeof own)];
        struct cmsghdr header;
    } control = {.header = {CMSG_LEN(sizeof own), SOL_SOCKET, SCM_CREDENTIALS}};
    memcpy(CMSG_DATA(&control.header), &own, sizeof own);
    struct iovec word = {"id", 2};
    struct msghdr message = {.msg_iov = &word, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control.space};
    CHECK(write(e.out, "first", 5) == 5 && write(p.out, "kept", 4) == 4);
    CHECK(!*looked_at_from_outside(&e));
    CHECK(sendmsg(e.out, &message, 0) == 2);
    CHECK(strcmp(looked_at_from_outside(&e), "first|id|") == 0);
    CHECK(strcmp(looked_at_from_outside(&p), "kept") == 0);
    /* What tee copies is held as well. */
    CHECK(write(p.out, "first,", 6) == 6 && !*looked_at_from_outside(&p));
    CHECK(tee(from.in, p.out, 8, 0) == 3 && !*looked_at_from_outside(&p));
    sys_xabort(1);
    CHECK(!*there(&p));
    CHECK(unlink("log") == 0);
}

/* In a transaction of several processes nothing is held. */
static void several(void) {
    struct ends e;
    make_pipe(&e);
    CHECK(sys_xbegin(TX_PROCESSES) == 0 && write(e.out, "live", 4) == 4);
    sys_xabort(1);
    CHECK(strcmp(there(&e), "live") == 0);
}

/* Something else coordinates: what is held waits for the decision. */
static void prepared(void) {
    struct ends e;
    make_pipe(&e);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(0) == 0 && write(e.out, "word", 4) == 4);
        CHECK(close(creat("made", 0600)) == 0);
        CHECK(txos_prepare() == 0 && !*there(&e));
        CHECK(txos_finish(commits) == 0);
        CHECK(strcmp(there(&e), commits ? "word" : "") == 0);
        CHECK((access("made", F_OK) == 0) == commits);
    }
    CHECK(unlink("made") == 0);
    CHECK(sys_xbegin(0) == 0 && write(e.out, "word", 4) == 4 && txos_prepare() == 0);
    signal(SIGPIPE, SIG_IGN);
    CHECK(close(e.in) == 0 && txos_finish(1) == 0);
    CHECK(strstr(txos_strerror(), "4 bytes for a pipe") && strstr(txos_strerror(), "Broken pipe"));
}

/* A wait for a signal that answers what is held. */
static void signaled(void) {
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0);
    struct ends e;
    make_pipe(&e);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char text[8];
        alarm(50);
        _exit(read(e.in, text, 8) == 4 && kill(getppid(), SIGUSR1) == 0 ? 0 : 1);
    }
    struct timespec none = {0};
    CHECK(sys_xbegin(0) == 0);
    CHECK(write(e.out, "word", 4) == 4);
    CHECK(sigtimedwait(&set, NULL, &none) == -1 && errno == EAGAIN);
    CHECK(sigwaitinfo(&set, NULL) == SIGUSR1);
    CHECK(sys_xend() == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Signals and output are sent in the order of the calls. */
static void mixed(void) {
    static char block[300000];
    struct ends e;
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0);
    make_pipe(&e);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int signal_;
        ssize_t n, len = 0;
        alarm(50);
        close(e.out);
        CHECK(fcntl(e.in, F_SETFL, O_NONBLOCK) == 0);
        /* What was written before the signal is there. */
        CHECK(sigwait(&set, &signal_) == 0 && read(e.in, block, 4) == 4);
        CHECK(fcntl(e.in, F_SETFL, 0) == 0);
        while ((n = read(e.in, block, sizeof block)) > 0)
            len += n;
        _exit(n == 0 && len == sizeof block ? 0 : 1);
    }
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(write(e.out, "word", 4) == 4 && kill(child, SIGUSR1) == 0);
    CHECK(sys_xend() == 0);
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(write(e.out, block, sizeof block) == sizeof block);
    CHECK(sys_xend() == 0 && close(e.out) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* The reader waits for the signal, and what follows waits for the reader. */
    make_pipe(&e);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int signal_;
        ssize_t n, len = 0;
        alarm(50);
        close(e.out);
        CHECK(sigwait(&set, &signal_) == 0);
        while ((n = read(e.in, block, sizeof block)) > 0)
            len += n;
        _exit(n == 0 && len == sizeof block + 4 ? 0 : 1);
    }
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(write(e.out, "word", 4) == 4 && kill(child, SIGUSR1) == 0);
    CHECK(write(e.out, block, sizeof block) == sizeof block);
    CHECK(sys_xend() == 0 && close(e.out) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Other calls that wait: for a message, a connection, the other end of a FIFO, a child. */
static void waits(void) {
    for (int way = 0; way < 4; way++) {
        struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "listens"};
        struct ends e, answer;
        char text[8];
        make_pipe(&e);
        make_pair(&answer, SOCK_STREAM, "unix stream");
        int listens = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(bind(listens, (void *)&at, sizeof at) == 0 && listen(listens, 1) == 0);
        CHECK(mkfifo("other", 0600) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            int other = socket(AF_UNIX, SOCK_STREAM, 0);
            alarm(50);
            CHECK(read(e.in, text, 8) == 4);
            switch (way) {
            case 0: CHECK(write(answer.out, "yes", 3) == 3); break;
            case 1: CHECK(connect(other, (void *)&at, sizeof at) == 0); break;
            case 2: CHECK(open("other", O_WRONLY) >= 0); break;
            default: break;
            }
            _exit(0);
        }
        siginfo_t info;
        CHECK(sys_xbegin(0) == 0 && write(e.out, "word", 4) == 4);
        switch (way) {
        case 0: CHECK(recv(answer.in, text, 8, 0) == 3); break;
        case 1: CHECK(accept(listens, NULL, NULL) >= 0); break;
        case 2: CHECK(open("other", O_RDONLY) >= 0); break;
        default: CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0); break;
        }
        CHECK(sys_xend() == 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(unlink("listens") == 0 && unlink("other") == 0);
    }
}

/* Where no descriptor is left for a duplicate, a write fails and nothing of it is sent. */
static void no_descriptor(void) {
    struct ends all[2];
    int last = -1, fd;
    char byte;
    make_pipe(&all[0]);
    make_pair(&all[1], SOCK_STREAM, "unix stream");
    struct rlimit most = {64, 64};
    CHECK(setrlimit(RLIMIT_NOFILE, &most) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(fcntl(all[i].in, F_SETFL, O_NONBLOCK) == 0);
    /* What the library keeps open it has by then. */
    CHECK(sys_xbegin(0) == 0 && access("none", F_OK) == -1 && sys_xend() == 0);
    while ((fd = dup(0)) >= 0)
        last = fd;
    CHECK(errno == EMFILE && last >= 0);
    for (int i = 0; i < 2; i++) {
        CHECK(sys_xbegin(0) == 0);
        errno = 0;
        CHECK(write(all[i].out, "hi", 2) == -1 && errno == EMFILE);
        if (all[i].in == all[1].in)
            CHECK(send(all[i].out, "hi", 2, 0) == -1 && errno == EMFILE);
        sys_xabort(1);
        CHECK(read(all[i].in, &byte, 1) == -1 && errno == EAGAIN);
    }
    /* One is left again. */
    CHECK(close(last) == 0);
    CHECK(sys_xbegin(0) == 0 && write(all[0].out, "x", 1) == 1);
    CHECK(read(all[0].in, &byte, 1) == -1 && errno == EAGAIN);
    CHECK(sys_xend() == 0 && read(all[0].in, &byte, 1) == 1 && byte == 'x');
}

/* What tee copies to a pipe is held, and stays in the first one. */
static void teed(void) {
    struct ends from, e;
    char text[16] = "";
    make_pipe(&from);
    make_pipe(&e);
    CHECK(write(from.out, "copied", 6) == 6);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(0) == 0 && write(e.out, "a", 1) == 1);
        CHECK(tee(from.in, e.out, 4, 0) == 4 && write(e.out, "b", 1) == 1);
        CHECK(!*looked_at_from_outside(&e));
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        CHECK(strcmp(there(&e), commits ? "acopib" : "") == 0);
    }
    CHECK(read(from.in, text, sizeof text) == 6 && strcmp(text, "copied") == 0);
    CHECK(sys_xbegin(0) == 0 && tee(from.in, e.out, 4, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
    CHECK(close(from.out) == 0 && tee(from.in, e.out, 4, 0) == 0 && sys_xend() == 0);
}

static void ends_by(int signal_) {
    _exit(signal_ == SIGUSR1 ? 1 : 2);
}

/* One that ends with 1 by SIGUSR1 and with 2 by SIGUSR2. Of both it gets the first first. */
static pid_t ready_for_signals(void) {
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct sigaction act = {.sa_handler = ends_by};
        alarm(50);
        sigaddset(&act.sa_mask, SIGUSR2);
        CHECK(sigaction(SIGUSR1, &act, NULL) == 0 && sigaction(SIGUSR2, &act, NULL) == 0);
        CHECK(write(ready[1], "r", 1) == 1);
        for (;;)
            pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1 && close(ready[0]) == 0 && close(ready[1]) == 0);
    return child;
}

static int has_ended(pid_t child, int *status, int by_waitid) {
    siginfo_t info = {.si_pid = 0};
    if (!by_waitid) {
        pid_t found = waitpid(child, status, WNOHANG);
        CHECK(found == 0 || found == child);
        return found == child;
    }
    CHECK(waitid(P_PID, child, &info, WEXITED | WNOHANG) == 0);
    *status = info.si_status << 8;
    return info.si_pid == child;
}

/* What was sent to a child before the end is named by an abort. */
static void names_signal(pid_t child) {
    struct txos_abort a = {.size = sizeof a};
    char words[64];
    snprintf(words, sizeof words, "; sent before that: SIGUSR1 for process %d", child);
    sys_xabort(1);
    CHECK(txos_abort_reason(&a) == 0 && strstr(a.what, words) && strstr(txos_strerror(), words));
}

/* A look for a child is no wait for it, a hundred are, and so is one after sleeps. */
static void looks_for_child(void) {
    for (int by_waitid = 0; by_waitid < 2; by_waitid++) {
        int status = 0, looks = 0;
        pid_t child = ready_for_signals();
        CHECK(sys_xbegin(0) == 0 && kill(child, SIGUSR1) == 0);
        for (int i = 0; i < 50; i++)
            CHECK(!has_ended(child, &status, by_waitid));
        sys_xabort(1);
        struct txos_abort a = {.size = sizeof a};
        CHECK(txos_abort_reason(&a) == 0 && !strstr(a.what, "sent before"));
        CHECK(kill(child, SIGUSR2) == 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 2);

        child = ready_for_signals();
        CHECK(sys_xbegin(0) == 0 && kill(child, SIGUSR1) == 0);
        while (!has_ended(child, &status, by_waitid))
            looks++;
        CHECK(looks >= 99 && WEXITSTATUS(status) == 1);
        names_signal(child);

        child = ready_for_signals();
        looks = 0;
        CHECK(sys_xbegin(0) == 0 && kill(child, SIGUSR1) == 0);
        while (!has_ended(child, &status, by_waitid)) {
            usleep(25000);
            looks++;
        }
        /* How long a sleep lasts the machine says. */
        CHECK(looks >= 1 && looks < 50 && WEXITSTATUS(status) == 1);
        names_signal(child);
    }
    int status;
    pid_t child = ready_for_signals();
    CHECK(sys_xbegin(0) == 0 && kill(child, SIGUSR1) == 0);
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 1);
    names_signal(child);
    /* Nor does what is named stay for the next one. */
    CHECK(sys_xbegin(0) == 0);
    sys_xabort(1);
    struct txos_abort a = {.size = sizeof a};
    CHECK(txos_abort_reason(&a) == 0 && !strstr(a.what, "sent before"));
}

/* What reads until the other end is closed is waited for: by a child's end, by its answer, by looks without a wait.
 * Nobody asks for it earlier: until then an abort has the end open again. */
static void until_closed(void) {
    for (int way = 0; way < 7; way++) {
        struct ends e, answer;
        char byte;
        int status, taken, bytes = 0;
        fd_set set;
        make(&e, way % 2 ? 2 : 0);
        make_pipe(&answer);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(50);
            CHECK(close(e.out) == 0 && close(answer.in) == 0);
            while (read(e.in, &byte, 1) == 1)
                bytes++;
            CHECK(bytes == 4 && write(answer.out, "y", 1) == 1);
            _exit(0);
        }
        CHECK(close(e.in) == 0 && close(answer.out) == 0);
        CHECK(sys_xbegin(0) == 0 && close(e.out) == 0);
        sys_xabort(1);
        CHECK(sys_xbegin(0) == 0 && write(e.out, "word", 4) == 4 && close(e.out) == 0);
        /* Its number is another file's by then. */
        if (way > 4) {
            taken = open("taken", O_CREAT | O_WRONLY, 0600);
            if (taken != e.out)
                CHECK(dup2(taken, e.out) == e.out && close(taken) == 0);
        }
        struct pollfd one = {answer.in, POLLIN, 0};
        switch (way) {
        case 0: CHECK(waitpid(child, &status, 0) == child && status == 0); break;
        case 1: CHECK(read(answer.in, &byte, 1) == 1 && byte == 'y'); break;
        case 2: CHECK(poll(&one, 1, -1) == 1); break;
        case 3:
            while (poll(&one, 1, 1) == 0)
                ;
            break;
        case 5:
            FD_ZERO(&set);
            FD_SET(answer.in, &set);
            CHECK(select(answer.in + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(answer.in, &set));
            break;
        default:
            while ((status = waitpid(child, NULL, WNOHANG)) == 0)
                usleep(1000);
            CHECK(status == child);
        }
        CHECK(sys_xend() == 0);
        if (way > 4)
            CHECK(write(e.out, "x", 1) == 1 && close(e.out) == 0 && unlink("taken") == 0);
        CHECK(fcntl(e.out, F_GETFD) == -1 && errno == EBADF);
        if (way > 0 && way != 4 && way != 6)
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        close(answer.in);
    }
    FILE *out = popen("cat > copied", "w");
    CHECK(out != NULL && sys_xbegin(0) == 0);
    CHECK(fprintf(out, "a line\n") == 7 && pclose(out) == 0);
    CHECK(sys_xend() == 0);
    struct stat found;
    CHECK(stat("copied", &found) == 0 && found.st_size == 7 && unlink("copied") == 0);
}

static void *ends_at_once(void *unused) {
    return unused;
}

/* The same in a transaction of several threads. */
static void until_closed_by_members(void) {
    for (int way = 0; way < 3; way++) {
        struct ends e, answer;
        char byte;
        int status;
        make_pipe(&e);
        make_pair(&answer, SOCK_STREAM, "unix stream");
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(50);
            CHECK(close(e.out) == 0 && read(e.in, &byte, 1) == 0 && write(answer.out, "y", 1) == 1);
            _exit(0);
        }
        pthread_t thread;
        CHECK(sys_xbegin(TX_THREADS) == 0);
        CHECK(pthread_create(&thread, NULL, ends_at_once, NULL) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(close(e.out) == 0);
        struct pollfd one = {answer.in, POLLIN, 0};
        switch (way) {
        case 0: CHECK(read(answer.in, &byte, 1) == 1); break;
        case 1: CHECK(recv(answer.in, &byte, 1, 0) == 1); break;
        default: CHECK(poll(&one, 1, -1) == 1);
        }
        CHECK(sys_xend() == 0 && waitpid(child, &status, 0) == child && status == 0);
    }
}

/* What has been closed for good would be another file the second time: the transaction does not begin again. */
static void closed_once(void) {
    struct ends e, answer;
    char byte;
    make_pipe(&e);
    make_pipe(&answer);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(e.out) == 0 && read(e.in, &byte, 1) == 0);
        _exit(0);
    }
    CHECK(write(answer.out, "y", 1) == 1 && close(answer.out) == 0);
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_RESTART) == 0);
    CHECK(attempts++ == 0);
    int status;
    CHECK(close(e.out) == 0 && waitpid(child, &status, 0) == child);
    ioctl(-1, LOSE);
    CHECK(read(answer.in, &byte, 1) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ECANCELED);
    /* With something closed that nobody waits for, a wait is as ever. */
    int fd = open("file", O_CREAT | O_RDWR, 0600);
    fd_set set;
    CHECK(sys_xbegin(0) == 0 && close(fd) == 0);
    FD_ZERO(&set);
    FD_SET(answer.in, &set);
    CHECK(select(answer.in + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(answer.in, &set));
    CHECK(sys_xend() == 0 && unlink("file") == 0);
}

/* A connection that the transaction makes, uses and closes is closed for the other side as well. */
static void connection(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listens = socket(AF_INET, SOCK_STREAM, 0), status;
    CHECK(bind(listens, (void *)&at, size) == 0 && listen(listens, 1) == 0);
    CHECK(getsockname(listens, (void *)&at, &size) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    char text[8];
    if (child == 0) {
        alarm(50);
        int s = accept(listens, NULL, NULL);
        CHECK(read(s, text, 8) == 2 && write(s, "y", 1) == 1 && read(s, text, 8) == 0);
        _exit(0);
    }
    CHECK(sys_xbegin(0) == 0);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(s, (void *)&at, size) == 0 && write(s, "hi", 2) == 2);
    CHECK(read(s, text, 8) == 1 && close(s) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(sys_xend() == 0);
}

/* Datagrams go where the socket was connected to when they were sent, and together with what they were to be sent with. */
static void datagrams(void) {
    struct sockaddr_in at[2];
    int in[2], s = socket(AF_INET, SOCK_DGRAM, 0);
    char text[8];
    for (int i = 0; i < 2; i++) {
        socklen_t size = sizeof at[i];
        at[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        in[i] = socket(AF_INET, SOCK_DGRAM, 0);
        CHECK(bind(in[i], (void *)&at[i], size) == 0 && getsockname(in[i], (void *)&at[i], &size) == 0);
    }
    CHECK(sys_xbegin(0) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(connect(s, (void *)&at[i], sizeof at[i]) == 0 && send(s, i ? "b" : "a", 1, 0) == 1);
    CHECK(send(s, "c", 1, MSG_MORE) == 1 && send(s, "d", 1, 0) == 1);
    CHECK(sys_xend() == 0);
    CHECK(recv(in[0], text, 8, 0) == 1 && text[0] == 'a');
    CHECK(recv(in[1], text, 8, 0) == 1 && text[0] == 'b');
    CHECK(recv(in[1], text, 8, 0) == 2 && text[0] == 'c' && text[1] == 'd');
}

/* A wait for a message or a semaphore. */
static void queued(void) {
    struct {
        long kind;
        char text[4];
    } message = {1, "word"};
    for (int semaphore = 0; semaphore < 2; semaphore++) {
        struct ends e;
        struct sembuf up = {0, 1, 0}, down = {0, -1, 0};
        make_pipe(&e);
        int id = semaphore ? semget(IPC_PRIVATE, 1, 0600) : msgget(IPC_PRIVATE, 0600);
        CHECK(id >= 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            char text[8];
            alarm(50);
            CHECK(read(e.in, text, 8) == 4);
            _exit(semaphore ? semop(id, &up, 1) : msgsnd(id, &message, 4, 0));
        }
        int done = sys_xbegin(0) == 0 && write(e.out, "word", 4) == 4;
        if (done && !semaphore)
            done = msgrcv(id, &message, 4, 0, IPC_NOWAIT) == -1 && errno == ENOMSG;
        if (done)
            done = semaphore ? semop(id, &down, 1) == 0 : msgrcv(id, &message, 4, 0, 0) == 4;
        int error = errno;
        (void)(semaphore ? semctl(id, 0, IPC_RMID) : msgctl(id, IPC_RMID, NULL));
        errno = error;
        CHECK(done && sys_xend() == 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

/* The runtime of a language waits elsewhere: one look in vain is a wait. */
static void managed(void) {
    struct ends e, answer;
    make_pipe(&e);
    make_pipe(&answer);
    CHECK(fcntl(answer.in, F_SETFL, O_NONBLOCK) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char text[8];
        alarm(50);
        _exit(read(e.in, text, 8) == 4 ? 0 : 1);
    }
    close(e.in);
    char text[8];
    CHECK(sys_xbegin(TX_MANAGED) == 0);
    CHECK(write(e.out, "word", 4) == 4);
    CHECK(read(answer.in, text, 8) == -1 && errno == EAGAIN);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(sys_xend() == 0);
}

/* Random transactions that write to four ends, and what an outsider gets of them. */
enum { RANDOM_ENDS = 4, RANDOM_ROUNDS = 60, RANDOM_MOST = 1 << 23 };

static uint64_t random_state;

static unsigned below(unsigned limit) {
    random_state = random_state * 6364136223846793005 + 1442695040888963407;
    return (random_state >> 33) % limit;
}

static void make_random(struct ends *all) {
    make_pipe(&all[0]);
    make_pair(&all[1], SOCK_STREAM, "unix stream");
    make_pair(&all[2], SOCK_SEQPACKET, "unix packets");
    make_network(&all[3], AF_INET, SOCK_STREAM, "tcp");
    CHECK(all[3].name);
}

/* What is expected at one end: bytes, how long each message is, and how much after each commit. */
struct expected {
    char *bytes;
    size_t len, messages, after[RANDOM_ROUNDS + 1];
    int lens[RANDOM_ROUNDS * 12];
};

/* One transaction. `ends`: its calls are made, else what they come to is put down. Whether it commits. */
static int random_round(int round, struct ends *ends, struct expected *expected) {
    int fate = below(4), calls = 1 + below(12);
    uint64_t from = random_state;
    volatile int attempts = 0;
    if (ends)
        CHECK(sys_xbegin(TX_RESTART) >= 0);
    random_state = from;
    for (int call = 0; call < calls; call++) {
        static char bytes[20000];
        int end = below(RANDOM_ENDS), len = 1 + below(below(4) ? 300 : end == 2 ? 6000 : 20000), how = below(3);
        for (int i = 0; i < len; i++)
            bytes[i] = 'a' + (round * 7 + call * 3 + i) % 26;
        if (!ends) {
            struct expected *e = &expected[end];
            if (fate > 0) {
                memcpy(e->bytes + e->len, bytes, len);
                e->len += len;
                e->lens[e->messages++] = len;
            }
            continue;
        }
        struct iovec two[2] = {{bytes, len / 2}, {bytes + len / 2, len - len / 2}};
        int to = ends[end].out;
        ssize_t n = how == 0 ? write(to, bytes, len) : how == 1 || !end ? writev(to, two, 2) : send(to, bytes, len, 0);
        CHECK(n == len);
    }
    if (!ends)
        return fate > 0;
    int log = open("log", O_WRONLY | O_APPEND | O_CREAT, 0600);
    CHECK(log >= 0 && write(log, "x", 1) == 1 && close(log) == 0);
    if (fate == 0)
        sys_xabort(1);
    else {
        if (fate == 1 && attempts++ == 0)
            ioctl(-1, LOSE);
        CHECK(sys_xend() == 0);
    }
    return fate > 0;
}

static void *random_program(uint64_t seed, struct ends *ends) {
    for (int i = 0; i < RANDOM_ENDS; i++)
        close(ends[i].in);
    random_state = seed;
    for (int round = 0; round < RANDOM_ROUNDS; round++)
        random_round(round, ends, NULL);
    _exit(0);
}

/* `killed`: at some moment. */
static void random_blocks(int killed) {
    const char *told = getenv("SEED");
    uint64_t seed = told ? strtoull(told, NULL, 10) : 1;
    static struct expected expected[RANDOM_ENDS];
    struct ends ends[RANDOM_ENDS];
    make_random(ends);
    size_t all = 0, commits = 0;
    for (int i = 0; i < RANDOM_ENDS; i++)
        CHECK((expected[i].bytes = malloc(RANDOM_MOST)));
    random_state = seed;
    for (int round = 0; round < RANDOM_ROUNDS; round++) {
        commits += random_round(round, NULL, expected);
        for (int i = 0; i < RANDOM_ENDS; i++)
            expected[i].after[commits] = expected[i].len;
    }
    for (int i = 0; i < RANDOM_ENDS; i++)
        all += expected[i].len;
    size_t enough = killed ? below(all) : all + 1;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        random_program(seed, ends);
    struct pollfd p[RANDOM_ENDS];
    size_t had[RANDOM_ENDS] = {0}, messages = 0, sum = 0;
    for (int i = 0; i < RANDOM_ENDS; i++) {
        close(ends[i].out);
        p[i] = (struct pollfd){.fd = ends[i].in, .events = POLLIN};
    }
    for (int open_ = RANDOM_ENDS; open_ > 0;) {
        CHECK(poll(p, RANDOM_ENDS, -1) > 0);
        for (int i = 0; i < RANDOM_ENDS; i++) {
            static char bytes[30000];
            if (p[i].fd < 0 || !p[i].revents)
                continue;
            ssize_t n = read(p[i].fd, bytes, sizeof bytes);
            if (n <= 0) {
                CHECK(n == 0 || (killed && errno == ECONNRESET));
                p[i].fd = -1;
                open_--;
                continue;
            }
            struct expected *e = &expected[i];
            CHECK(had[i] + n <= e->len && memcmp(bytes, e->bytes + had[i], n) == 0);
            CHECK(i != 2 || n == e->lens[messages++]);
            had[i] += n;
            sum += n;
            if (sum >= enough) {
                kill(child, SIGKILL);
                enough = all + 1;
            }
        }
    }
    int status;
    struct stat log = {0};
    CHECK(waitpid(child, &status, 0) == child);
    /* The next transaction sees to what was left. One that had looked at it before has lost. */
    for (int attempt = 0, ended = -1; ended != 0; attempt++) {
        memset(&log, 0, sizeof log);
        CHECK(attempt < 2 && sys_xbegin(0) == 0);
        CHECK(stat("log", &log) == 0 || errno == ENOENT || errno == ECANCELED);
        ended = sys_xend();
        CHECK(ended == 0 || errno == ECANCELED);
    }
    CHECK(killed ? status == 0 || WTERMSIG(status) == SIGKILL : status == 0);
    CHECK(killed || log.st_size == (off_t)commits);
    for (int i = 0; i < RANDOM_ENDS; i++) {
        /* All of each commit but the last one, of which it is a beginning. */
        size_t last = log.st_size;
        CHECK(had[i] <= expected[i].after[last]);
        CHECK(had[i] >= expected[i].after[status == 0 || last == 0 ? last : last - 1]);
    }
    unlink("log");
}

static void random_(void) {
    random_blocks(0);
}

static void random_killed(void) {
    random_blocks(1);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {
        {"commit", commit}, {"abort", abort_drops}, {"restart", restart}, {"order", order},
        {"answers", answers}, {"once", once}, {"strict", strict}, {"gone", gone},
        {"limit", limit}, {"large", large}, {"inside", inside}, {"moved", moved},
        {"messages", messages}, {"logged", logged}, {"child", child}, {"threads", threads},
        {"prompt", prompt}, {"standard", standard}, {"ends", ends}, {"broken", broken},
        {"ended", ended}, {"told", told}, {"killed", killed}, {"paused", paused},
        {"settings", settings}, {"live", live}, {"several", several}, {"prepared", prepared},
        {"both", both_ways}, {"nested", nested}, {"client", client}, {"counter", counter},
        {"ready", ready}, {"forked", forked}, {"replaced", replaced}, {"checkpoint", checkpoint},
        {"own", own}, {"signaled", signaled}, {"queued", queued}, {"waits", waits}, {"looks-for-child", looks_for_child}, {"no-descriptor", no_descriptor}, {"teed", teed}, {"random", random_}, {"random-killed", random_killed}, {"mixed", mixed}, {"managed", managed}, {"until-closed", until_closed},
        {"until-closed-by-members", until_closed_by_members}, {"closed-once", closed_once}, {"connection", connection}, {"datagrams", datagrams},
        {"prompts", prompts}, {"beyond", beyond}, {"never-waits", never_waits}, {"wakers", wakers}, {"children", children},
        {"kinds", kinds},
    };
    alarm(100);
    for (size_t i = 0; argc == 2 && i < sizeof all / sizeof *all; i++)
        if (strcmp(argv[1], all[i].name) == 0) {
            all[i].run();
            return 0;
        }
    return 2;
}
