/* Output to the outside in transactions of a thread, with TXOS_HOLD_OUTPUT=1: held until the commit, dropped by an
 * abort. One scenario for each argument; each exits with 0 if all is as the documentation says. */
#define _GNU_SOURCE
#include <arpa/inet.h>
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
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "txos.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            int error = errno;                                                                     \
            if (txos_in_transaction())                                                             \
                sys_xabort(1);                                                                     \
            fprintf(stderr, "%s:%d: %s (errno %d; %s)\n", __func__, __LINE__, #what, error,        \
                    txos_strerror());                                                              \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* In debug builds of the library this call is a lost conflict. */
#define LOSE 0x7458054c

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

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {
        {"commit", commit},     {"abort", abort_drops}, {"restart", restart},   {"order", order},
        {"answers", answers},   {"once", once},         {"strict", strict},     {"gone", gone},
        {"limit", limit},       {"large", large},       {"inside", inside},     {"moved", moved},
        {"messages", messages}, {"logged", logged},     {"child", child},       {"threads", threads},
        {"prompt", prompt},     {"standard", standard}, {"ends", ends},
    };
    alarm(100);
    for (size_t i = 0; argc == 2 && i < sizeof all / sizeof *all; i++)
        if (strcmp(argv[1], all[i].name) == 0) {
            all[i].run();
            return 0;
        }
    return 2;
}
