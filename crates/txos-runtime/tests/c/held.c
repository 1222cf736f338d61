/* Sends on sockets that are held, as they are without TXOS_HOLD_OUTPUT, and waits for their answers: one scenario for each argument. Each
 * runs in a process and a directory of its own, and exits with 0 if all is as txos.h says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>

#include "files.h"

static int own, other;      /* a connection: the end of this process, and the one outside */
static volatile int *shared; /* with the process outside */

static void connection(int type) {
    int both[2];
    CHECK(unsetenv("TXOS_HOLD_OUTPUT") == 0);
    CHECK(socketpair(AF_UNIX, type, 0, both) == 0);
    own = both[0], other = both[1];
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    alarm(40);
}

static int came(int fd, const char *text) {
    char got[64] = {0};
    ssize_t n = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
    return text ? n == (ssize_t)strlen(text) && strcmp(got, text) == 0 : n == -1 && errno == EAGAIN;
}

/* A look past the transaction, as another process's. */
static int seen(const char *text) {
    long paused = sys_xpause();
    CHECK(paused > 0);
    int is = came(other, text);
    CHECK(sys_xresume(paused) == 0);
    return is;
}

static struct txos_abort reason(void) {
    struct txos_abort a = {.size = sizeof a};
    CHECK(txos_abort_reason(&a) == 0);
    return a;
}

/* Only what goes to sockets. */
static void only_sockets(void) {
    connection(SOCK_STREAM);
    CHECK(setenv("TXOS_HOLD_OUTPUT", "sockets", 1) == 0);
    int p[2];
    char got[8];
    CHECK(pipe(p) == 0);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(0) == 0);
        CHECK(write(own, "held", 4) == 4 && write(p[1], "live", 4) == 4);
        CHECK(seen(NULL));
        if (commits)
            CHECK(sys_xend() == 0 && came(other, "held"));
        else
            sys_xabort(1);
        CHECK(came(other, NULL) && read(p[0], got, 8) == 4);
    }
}

/* Standard output that is a socket, as of a service, is held as others are. Standard error is live. */
static void standard(void) {
    connection(SOCK_STREAM);
    CHECK(dup2(own, 1) == 1 && sys_xbegin(0) == 0 && write(1, "out", 3) == 3 && seen(NULL));
    sys_xabort(1);
    int error = dup(2);
    CHECK(came(other, NULL) && dup2(own, 2) == 2 && sys_xbegin(0) == 0 && write(2, "error", 5) == 5);
    sys_xabort(1);
    CHECK(dup2(error, 2) == 2 && came(other, "error"));
}

/* What the variable says; without it, and with what it does not know, it is held. */
static void asked(void) {
    static const char *const words[] = {"0", "none", "sockets", "", "all", "1", "other", NULL};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        pid_t child = fork();
        if (child == 0) {
            connection(SOCK_STREAM);
            CHECK(!words[i] || setenv("TXOS_HOLD_OUTPUT", words[i], 1) == 0);
            CHECK(sys_xbegin(0) == 0 && send(own, "said", 4, 0) == 4);
            CHECK(seen(i < 2 ? "said" : NULL));
            sys_xabort(1);
            CHECK(came(other, NULL));
            _exit(0);
        }
        CHECK(end_of(child) == 0);
    }
}

static void hand(int fd, int number) {
    union { struct cmsghdr head; char all[CMSG_SPACE(sizeof(int))]; } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec bytes = {"with", 4};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.head), &number, sizeof number);
    CHECK(sendmsg(fd, &message, 0) == 4);
}

static int handed(int fd) {
    union { struct cmsghdr head; char all[CMSG_SPACE(sizeof(int))]; } control;
    char text[16];
    struct iovec bytes = {text, sizeof text};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int number;
    CHECK(recvmsg(fd, &message, MSG_DONTWAIT) == 4 && CMSG_FIRSTHDR(&message));
    memcpy(&number, CMSG_DATA(&control.head), sizeof number);
    return number;
}

/* Descriptors that are handed over are kept open until then. */
static void descriptors(void) {
    connection(SOCK_STREAM);
    char got[8];
    for (int commits = 0; commits < 2; commits++) {
        int p[2];
        CHECK(pipe(p) == 0 && sys_xbegin(TX_STRICT) == 0);
        CHECK(write(own, "first", 5) == 5);
        hand(own, p[1]);
        CHECK(close(p[1]) == 0);
        if (commits) {
            CHECK(sys_xend() == 0);
            CHECK(recv(other, got, 5, 0) == 5 && memcmp(got, "first", 5) == 0);
            int fd = handed(other);
            CHECK(write(fd, "x", 1) == 1 && close(fd) == 0 && read(p[0], got, 8) == 1 && read(p[0], got, 8) == 0);
        } else {
            sys_xabort(1);
            CHECK(came(other, NULL) && write(p[1], "x", 1) == 1 && read(p[0], got, 8) == 1);
        }
        close(p[0]);
    }
    /* Who gets a versioned file would see what is not committed. */
    put("file", "x", O_CREAT);
    CHECK(sys_xbegin(0) == 0);
    int fd = open("file", O_RDONLY);
    union { struct cmsghdr head; char all[CMSG_SPACE(sizeof(int))]; } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec bytes = {"with", 4};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    CHECK(sendmsg(own, &message, 0) == -1 && errno == ENOTSUP);
    sys_xabort(1);
}

static void exact(int fd, const char *text) {
    char got[16] = {0};
    CHECK(recv(fd, got, strlen(text), MSG_WAITALL) == (ssize_t)strlen(text) && strcmp(got, text) == 0);
}

/* --- Each way to wait for what only the answer to a request can bring --- */

static int pipe_[2];
static int lockable; /* no file of the transaction's */
static sem_t posted;

static void nap(long milliseconds) {
    struct timespec time = {0, milliseconds * 1000000};
    CHECK(nanosleep(&time, NULL) == 0);
}

/* The process outside: answers a request in every way. */
static void answer(void) {
    char text[65536];
    struct flock lock = {.l_type = F_WRLCK};
    int whole = open("locked", O_RDWR);
    CHECK(close(own) == 0 && close(pipe_[1]) == 0);
    CHECK(fcntl(lockable, F_SETLK, &lock) == 0 && flock(whole, LOCK_EX | LOCK_NB) == 0);
    CHECK(write(other, "par", 3) == 3); /* a part of the answer is there before */
    shared[1] = 1;
    exact(other, "request");
    shared[0] = 1;
    CHECK(write(other, "tial", 4) == 4);
    lock.l_type = F_UNLCK;
    CHECK(fcntl(lockable, F_SETLK, &lock) == 0 && flock(whole, LOCK_UN) == 0);
    while (read(pipe_[0], text, sizeof text) > 0)
        ;
    _exit(0);
}

static void *reads(void *unused) {
    exact(own, "partial");
    CHECK(sem_post(&posted) == 0);
    return unused;
}

static void *takes_all(void *length) {
    static char some[65536];
    for (size_t left = (size_t)length; left > 0;) {
        ssize_t n = read(other, some, sizeof some);
        CHECK(n > 0);
        left -= n;
    }
    CHECK(sem_post(&posted) == 0);
    return NULL;
}

static void by_read(void) {
    exact(own, "par");
    char got[8];
    CHECK(read(own, got, 8) == 4);
}

static void by_waiting_for_all(void) {
    exact(own, "partial");
}

static void by_looking(void) {
    char got[8];
    exact(own, "par");
    ssize_t n;
    /* The first look that finds nothing has the request sent. */
    for (int looks = 0; (n = recv(own, got, 8, MSG_DONTWAIT)) == -1 && errno == EAGAIN; looks++) {
        CHECK(!looks || looks < 5000);
        nap(1);
    }
    CHECK(n == 4);
}

static void by_poll(void) {
    struct pollfd one = {own, POLLIN, 0};
    exact(own, "par");
    CHECK(poll(&one, 1, -1) == 1);
}

static void by_select(void) {
    fd_set set;
    exact(own, "par");
    FD_ZERO(&set);
    FD_SET(own, &set);
    CHECK(select(own + 1, &set, NULL, NULL, NULL) == 1);
}

static void by_epoll(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int all = epoll_create1(0);
    exact(own, "par");
    CHECK(epoll_ctl(all, EPOLL_CTL_ADD, own, &event) == 0 && epoll_wait(all, &event, 1, -1) == 1);
}

static void by_splice(void) {
    int p[2];
    CHECK(pipe(p) == 0);
    exact(own, "par");
    CHECK(splice(own, NULL, p[1], NULL, 8, 0) == 4);
}

static void by_sleeping(void) {
    for (int i = 0; i < 10000 && !shared[0]; i++)
        nap(5);
    CHECK(shared[0]);
}

static void by_one_sleep(void) {
    struct timespec time = {3, 0};
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL) == 0 && shared[0]);
}

static void by_semaphore(void) {
    CHECK(sem_wait(&posted) == 0);
}

static void by_full_pipe(void) {
    static char much[1 << 20];
    for (size_t done = 0; done < sizeof much;) {
        ssize_t n = write(pipe_[1], much + done, sizeof much - done);
        CHECK(n > 0);
        done += n;
    }
}

static void by_record_lock(void) {
    struct flock lock = {.l_type = F_WRLCK};
    CHECK(fcntl(lockable, F_SETLKW, &lock) == 0);
}

static void by_flock(void) {
    int fd = open("locked", O_RDONLY);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
}

static const struct {
    const char *name;
    void (*wait)(void);
} ways[] = {
    {"read", by_read}, {"all", by_waiting_for_all}, {"looking", by_looking}, {"poll", by_poll}, {"select", by_select}, {"epoll", by_epoll}, {"splice", by_splice},
    {"sleeping", by_sleeping}, {"one sleep", by_one_sleep}, {"semaphore", by_semaphore}, {"pipe", by_full_pipe},
    {"record lock", by_record_lock}, {"flock", by_flock},
};

static void ask(int way, int strict) {
    connection(SOCK_STREAM);
    put("locked", "x", O_CREAT);
    lockable = memfd_create("lockable", MFD_CLOEXEC);
    CHECK(lockable >= 0 && pipe(pipe_) == 0 && sem_init(&posted, 0, 0) == 0);
    pid_t child = fork();
    if (child == 0)
        answer();
    CHECK(close(other) == 0 && close(pipe_[0]) == 0);
    while (!shared[1])
        nap(1);
    pthread_t thread;
    int threads = ways[way].wait == by_semaphore;
    CHECK(!threads || pthread_create(&thread, NULL, reads, NULL) == 0);
    CHECK(sys_xbegin(strict ? TX_STRICT : 0) == 0);
    put("made", "x", O_CREAT);
    CHECK(send(own, "req", 3, 0) == 3 && write(own, "uest", 4) == 4);
    if (strict) {
        char got[8];
        exact(own, "par");
        CHECK(recv(own, got, 8, 0) == -1 && errno == ECANCELED && sys_xend() == -1 && errno == ENOTSUP);
        CHECK(!shared[0] && !is_there("made") && close(own) == 0);
        close(pipe_[1]);
        CHECK(end_of(child) == 1); /* it has seen the end instead of the request */
        return;
    }
    ways[way].wait();
    if (sys_xend() != 0 || !is_there("made") || !shared[0]) {
        fprintf(stderr, "%s: %s\n", ways[way].name, txos_strerror());
        _exit(1);
    }
    CHECK(!threads || pthread_join(thread, NULL) == 0);
    CHECK(close(pipe_[1]) == 0 && end_of(child) == 0);
}

static void waits(void) {
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        pid_t child = fork();
        if (child == 0) {
            ask(way, 0);
            _exit(0);
        }
        int end = end_of(child);
        if (end != 0)
            fprintf(stderr, "%s ends with %d\n", ways[way].name, end);
        CHECK(end == 0 && unlink("made") == 0 && unlink("locked") == 0);
    }
}

static void strict(void) {
    ask(0, 1);
}

/* What there is no room for does not make a sleep longer, and goes out by and by in a wait without an end. */
static void no_room(void) {
    static char much[4 << 20];
    connection(SOCK_STREAM);
    CHECK(sem_init(&posted, 0, 0) == 0 && sys_xbegin(0) == 0);
    CHECK(send(own, much, sizeof much, 0) == sizeof much);
    struct timespec time = {0, 300000000}, since, until;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &since) == 0 && nanosleep(&time, NULL) == 0);
    CHECK(clock_gettime(CLOCK_MONOTONIC, &until) == 0);
    long lasted = (until.tv_sec - since.tv_sec) * 1000 + (until.tv_nsec - since.tv_nsec) / 1000000;
    CHECK(lasted >= 300 && lasted < 5000);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, takes_all, (void *)sizeof much) == 0);
    CHECK(sem_wait(&posted) == 0 && sys_xend() == 0 && pthread_join(thread, NULL) == 0);
}

/* Live output that has room does not wait, and what is held stays held. */
static void room(void) {
    static char some[20000];
    int p[2];
    connection(SOCK_STREAM);
    CHECK(setenv("TXOS_HOLD_OUTPUT", "sockets", 1) == 0);
    CHECK(pipe(p) == 0 && sys_xbegin(0) == 0);
    CHECK(send(own, "held", 4, 0) == 4);
    int null = open("/dev/null", O_WRONLY);
    CHECK(write(null, some, sizeof some) == sizeof some);
    CHECK(write(p[1], some, sizeof some) == sizeof some);
    CHECK(seen(NULL));
    /* Who reads there may wait for what is held. */
    CHECK(fcntl(p[1], F_SETFL, O_NONBLOCK) == 0);
    while (write(p[1], some, sizeof some) > 0)
        ;
    CHECK(errno == EAGAIN && seen(NULL));
    sys_xabort(1);
    CHECK(came(other, NULL));
}

/* Of a socket that does not wait so much is held as there is room for. Of more the kernel says how much it takes, after what
 * was held. */
static void at_once(void) {
    static char much[4 << 20];
    connection(SOCK_STREAM);
    for (int by_flag = 0; by_flag < 2; by_flag++) {
        int flags = by_flag ? MSG_DONTWAIT : 0;
        CHECK(fcntl(own, F_SETFL, by_flag ? 0 : O_NONBLOCK) == 0);
        CHECK(sys_xbegin(TX_STRICT) == 0 && send(own, much, 20000, flags) == 20000 && seen(NULL));
        sys_xabort(1);
        CHECK(came(other, NULL) && sys_xbegin(0) == 0 && send(own, "some", 4, flags) == 4);
        ssize_t n = send(own, much, sizeof much, flags);
        CHECK(n > 0 && n < (ssize_t)sizeof much);
        while (send(own, much, 4096, flags) > 0)
            n += 4096;
        CHECK(errno == EAGAIN);
        if (!by_flag) {
            struct pollfd one = {own, POLLOUT, 0};
            CHECK(poll(&one, 1, 0) == 0);
        }
        long paused = sys_xpause();
        CHECK(paused > 0);
        exact(other, "some");
        CHECK(recv(other, much, n, MSG_WAITALL) == n && came(other, NULL) && sys_xresume(paused) == 0);
        struct pollfd one = {own, POLLOUT, 0};
        CHECK(poll(&one, 1, 0) == 1 && one.revents == POLLOUT);
        CHECK(send(own, "more", 4, flags) == 4 && seen(NULL));
        CHECK(sys_xend() == 0 && came(other, "more"));
    }
    /* One that waits has all of it held. */
    CHECK(sys_xbegin(0) == 0 && send(own, much, sizeof much, 0) == sizeof much && seen(NULL));
    sys_xabort(1);
    CHECK(came(other, NULL));
}

/* Who accepts may wait for what is held: connecting is a wait when it lasts. */
static void connecting(void) {
    for (int network = 0; network < 2; network++) {
        union { struct sockaddr any; struct sockaddr_un path; struct sockaddr_in net; } place = {.path = {AF_UNIX, "place"}};
        socklen_t len = sizeof place.path, room = sizeof(struct timeval);
        connection(SOCK_STREAM);
        if (network) {
            place.net = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
            len = sizeof place.net;
        }
        int family = place.any.sa_family, listens = socket(family, SOCK_STREAM, 0);
        CHECK(bind(listens, &place.any, len) == 0 && listen(listens, 0) == 0 && getsockname(listens, &place.any, &len) == 0);
        CHECK(sys_xbegin(0) == 0 && send(own, "request", 7, 0) == 7);
        int first = socket(family, SOCK_STREAM, 0), second = socket(family, SOCK_STREAM, 0);
        CHECK(connect(first, &place.any, len) == 0 && seen(NULL));
        long paused = sys_xpause();
        pid_t child = fork();
        if (child == 0) {
            exact(other, "request");
            CHECK(accept(listens, NULL, NULL) >= 0 && accept(listens, NULL, NULL) >= 0);
            _exit(0);
        }
        CHECK(sys_xresume(paused) == 0 && connect(second, &place.any, len) == 0);
        struct timeval limit = {1, 1};
        CHECK(getsockopt(second, SOL_SOCKET, SO_SNDTIMEO, &limit, &room) == 0 && limit.tv_sec == 0 && limit.tv_usec == 0);
        CHECK(sys_xend() == 0 && end_of(child) == 0);
    }
}

/* An abort names what went out, and nothing begins again by itself. */
static void named(void) {
    connection(SOCK_STREAM);
    volatile int attempts = 0;
    CHECK(write(other, "answer", 6) == 6);
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    attempts++;
    CHECK(write(own, "request", 7) == 7);
    exact(own, "answer");
    char got[8];
    CHECK(recv(own, got, 8, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    CHECK(ioctl(0, LOSE) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ECANCELED && attempts == 1);
    CHECK(strstr(reason().what, "sent before that: 7 bytes for a socket") && came(other, "request"));
}

/* The peer is gone at the commit: it is reported, and the files stay. */
static void gone(void) {
    connection(SOCK_STREAM);
    CHECK(sys_xbegin(0) == 0);
    put("made", "x", O_CREAT);
    signal(SIGPIPE, SIG_IGN);
    CHECK(send(own, "late", 4, 0) == 4);
    long paused = sys_xpause();
    CHECK(close(other) == 0 && sys_xresume(paused) == 0);
    CHECK(sys_xend() == 0 && is_there("made") && strstr(txos_strerror(), "4 bytes for a socket"));
    /* Of datagrams nothing tells before. */
    connection(SOCK_DGRAM);
    CHECK(close(other) == 0 && sys_xbegin(0) == 0 && send(own, "late", 4, 0) == 4);
    CHECK(sys_xend() == 0 && strstr(txos_strerror(), "could not be sent"));
}

/* The commit ends a program that does not handle SIGPIPE, as the write would have. The files stay. */
static void ended(void) {
    connection(SOCK_STREAM);
    pid_t child = fork();
    if (child == 0) {
        CHECK(close(other) == 0 && sys_xbegin(0) == 0);
        put("made", "x", O_CREAT);
        CHECK(send(own, "late", 4, 0) == 4);
        shared[0] = 1;
        while (!shared[1])
            ;
        sys_xend();
        _exit(0);
    }
    CHECK(close(own) == 0);
    while (!shared[0])
        nap(1);
    CHECK(close(other) == 0);
    shared[1] = 1;
    CHECK(end_of(child) == 256 + SIGPIPE && is_there("made"));
}

/* A reader that takes nothing does not hold the commit up for ever. A stream of which a part is lost ends there. */
static void full(void) {
    static char much[4 << 20];
    CHECK(setenv("TXOS_HELD_WAIT", "1", 1) == 0);
    connection(SOCK_STREAM);
    signal(SIGPIPE, SIG_IGN);
    CHECK(sys_xbegin(0) == 0);
    put("made", "x", O_CREAT);
    CHECK(send(own, much, sizeof much, 0) == sizeof much);
    CHECK(sys_xend() == 0 && is_there("made") && strstr(txos_strerror(), "were not sent: the reader took nothing"));
    CHECK(send(own, "more", 4, 0) == -1 && errno == EPIPE);
    ssize_t n, all = 0;
    while ((n = read(other, much, sizeof much)) > 0)
        all += n;
    CHECK(n == 0 && all > 0 && all < (ssize_t)sizeof much);

    /* So do packets, of which each is whole. */
    connection(SOCK_SEQPACKET);
    CHECK(sys_xbegin(0) == 0);
    for (int i = 0; i < 100; i++)
        CHECK(send(own, much, 60000, 0) == 60000);
    CHECK(sys_xend() == 0 && strstr(txos_strerror(), "were not sent") && send(own, "more", 4, 0) == -1 && errno == EPIPE);
    for (all = 0; (n = read(other, much, sizeof much)) == 60000; all++)
        ;
    CHECK(n == 0 && all > 0 && all < 100);

    /* A socket that waits for some time only is told how much was taken; all that was held arrives. */
    connection(SOCK_STREAM);
    struct timeval limit = {0, 200000};
    CHECK(setsockopt(own, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 && sys_xbegin(0) == 0);
    CHECK(send(own, "some", 4, 0) == 4 && seen(NULL));
    n = send(own, much, sizeof much, 0);
    CHECK(n > 0 && n < (ssize_t)sizeof much && send(own, "x", 1, 0) == -1 && errno == EAGAIN && sys_xend() == 0);
    for (all = -4 - n; (n = recv(other, much, sizeof much, MSG_DONTWAIT)) > 0; all += n)
        ;
    CHECK(n == -1 && errno == EAGAIN && all == 0);
}

/* One that takes nothing keeps a question from another only for an instant, and what is waited for is waited for as long as the
 * program asked. */
static void stuck(void) {
    static char much[4 << 20];
    int pair[2];
    char got[8];
    CHECK(setenv("TXOS_HELD_WAIT", "3", 1) == 0);
    for (int way = 0; way < 4; way++) {
        connection(SOCK_STREAM);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        pid_t child = fork();
        if (child == 0) {
            CHECK(close(own) == 0 && close(pair[1]) == 0);
            exact(other, "question");
            if (way < 2)
                CHECK(send(other, "answer", 6, 0) == 6);
            CHECK(read(other, got, 1) == 0);
            _exit(0);
        }
        struct timeval limit = {0, 300000};
        CHECK(close(other) == 0 && (way != 2 || setsockopt(own, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0));
        CHECK(sys_xbegin(0) == 0 && send(pair[0], much, sizeof much, 0) == sizeof much && send(own, "question", 8, 0) == 8);
        struct pollfd one = {own, POLLIN, 0};
        struct timespec before, after, until = {0, 500000000};
        clock_gettime(CLOCK_MONOTONIC, &before);
        if (way == 1)
            CHECK(poll(&one, 1, 20000) == 1);
        if (way < 2)
            CHECK(recv(own, got, 8, 0) == 6 && memcmp(got, "answer", 6) == 0);
        else if (way == 2)
            CHECK(recv(own, got, 8, 0) == -1 && errno == EAGAIN);
        else
            CHECK(ppoll(&one, 1, &until, NULL) == 0);
        clock_gettime(CLOCK_MONOTONIC, &after);
        CHECK(way < 2 || after.tv_sec - before.tv_sec < 3);
        CHECK(shutdown(pair[1], SHUT_RDWR) == 0 && signal(SIGPIPE, SIG_IGN) != SIG_ERR);
        sys_xabort(1);
        CHECK(close(own) == 0 && end_of(child) == 0 && close(pair[0]) == 0 && close(pair[1]) == 0);
    }
}

/* What the program has closed epoll does not tell of, though something is held for it. */
static void closed_in_epoll(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "server"};
    struct epoll_event event = {EPOLLIN, {.u64 = 1}}, told;
    connection(SOCK_STREAM);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), epoll = epoll_create1(0);
    CHECK(bind(listener, (void *)&at, sizeof at) == 0 && listen(listener, 8) == 0);
    for (int commits = 0; commits < 2; commits++) {
        int client = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(connect(client, (void *)&at, sizeof at) == 0 && send(client, "request", 7, 0) == 7);
        CHECK(sys_xbegin(0) == 0);
        int server = accept(listener, NULL, NULL);
        CHECK(server >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, server, &event) == 0);
        CHECK(epoll_wait(epoll, &told, 1, 0) == 1 && told.data.u64 == 1);
        CHECK(send(server, "answer", 6, 0) == 6 && close(server) == 0);
        CHECK(epoll_wait(epoll, &told, 1, 0) == 0 && epoll_wait(epoll, &told, 1, 1) == 0);
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        exact(client, "answer");
        CHECK(epoll_wait(epoll, &told, 1, 0) == 0 && close(client) == 0);
    }
}

/* Where no number is left for a duplicate, output is live, and no call fails for that. */
static void no_numbers(void) {
    int pairs[100][2];
    connection(SOCK_STREAM);
    struct rlimit numbers = {240, 240};
    CHECK(setrlimit(RLIMIT_NOFILE, &numbers) == 0);
    for (int i = 0; i < 100; i++)
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]) == 0);
    CHECK(sys_xbegin(0) == 0);
    for (int i = 0; i < 100; i++)
        CHECK(send(pairs[i][0], "sent", 4, 0) == 4);
    hand(pairs[0][0], pairs[1][0]);
    CHECK(sys_xend() == 0);
    for (int i = 0; i < 100; i++)
        exact(pairs[i][1], "sent");
    CHECK(close(handed(pairs[0][1])) == 0);
}

/* Who waits for all of an answer, of which a part comes before the end of the question. */
static void all_of_an_answer(void) {
    static char much[4 << 20], got[100];
    connection(SOCK_STREAM);
    pid_t child = fork();
    if (child == 0) {
        CHECK(close(own) == 0 && recv(other, much, 1, 0) == 1 && send(other, "x", 1, 0) == 1);
        CHECK(recv(other, much, sizeof much - 1, MSG_WAITALL) == sizeof much - 1 && send(other, got, 99, 0) == 99);
        _exit(0);
    }
    CHECK(close(other) == 0 && sys_xbegin(0) == 0 && send(own, much, sizeof much, 0) == sizeof much);
    CHECK(recv(own, got, 100, MSG_WAITALL) == 100 && sys_xend() == 0 && end_of(child) == 0);
}

/* What was sent before is named also if the program calls the transaction off. */
static void called_off(void) {
    int flag = 0;
    connection(SOCK_STREAM);
    struct pollfd one = {own, POLLIN, 0};
    CHECK(sys_xbegin(0) == 0 && txos_abort_if(&flag) == 0 && send(own, "question", 8, 0) == 8 && poll(&one, 1, 1) == 0);
    flag = 1;
    CHECK(sys_xend() == -1 && reason().reason == TXOS_ASKED);
    CHECK(strstr(reason().what, "sent before that: 8 bytes for a socket") && came(other, "question"));
}

/* Each has its own time: that one takes nothing costs the next nothing. */
static void each_its_time(void) {
    static char much[4 << 20];
    int first[2];
    CHECK(setenv("TXOS_HELD_WAIT", "2", 1) == 0);
    connection(SOCK_STREAM);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, first) == 0);
    /* The second has no room when its turn comes. */
    ssize_t before = 0, n;
    while ((n = send(own, much, 4096, MSG_DONTWAIT)) > 0)
        before += n;
    pid_t child = fork();
    if (child == 0) {
        /* Who reads the second is slow, and begins when the first is given up. */
        struct pollfd given_up = {first[1], POLLRDHUP, 0};
        CHECK(close(own) == 0 && close(first[0]) == 0 && poll(&given_up, 1, -1) == 1);
        nap(300);
        CHECK(recv(other, much, before, MSG_WAITALL) == before);
        CHECK(recv(other, much, sizeof much, MSG_WAITALL) == sizeof much);
        _exit(0);
    }
    CHECK(close(other) == 0 && sys_xbegin(0) == 0);
    CHECK(send(first[0], much, sizeof much, 0) == sizeof much && send(own, much, sizeof much, 0) == sizeof much);
    CHECK(sys_xend() == 0 && end_of(child) == 0 && strstr(txos_strerror(), "were not sent: the reader took nothing"));
}

static void fill(char *much, size_t size) {
    for (size_t i = 0; i < size; i++)
        much[i] = i % 251;
}

/* What was being sent when it aborts is sent to its end, as the program was told; what follows it is not. */
static void cut(void) {
    static char much[4 << 20], got[4 << 20];
    for (int lost = 0; lost < 2; lost++) {
        connection(SOCK_STREAM);
        fill(much, sizeof much);
        pid_t child = fork();
        if (child == 0) {
            CHECK(close(own) == 0);
            while (!shared[0])
                nap(1);
            CHECK(recv(other, got, sizeof got, MSG_WAITALL) == sizeof got && memcmp(got, much, sizeof got) == 0);
            exact(other, "after");
            _exit(0);
        }
        struct pollfd one = {own, POLLIN, 0};
        CHECK(close(other) == 0 && sys_xbegin(0) == 0 && send(own, much, sizeof much, 0) == sizeof much);
        CHECK(poll(&one, 1, 1) == 0 && send(own, "never", 5, 0) == 5);
        shared[0] = 1;
        if (lost) {
            CHECK(ioctl(0, LOSE) == -1 && errno == ECANCELED && sys_xend() == -1 && errno == ECANCELED);
            CHECK(strstr(reason().what, "sent before that: 4194304 bytes for a socket"));
        } else {
            sys_xabort(1);
        }
        CHECK(send(own, "after", 5, 0) == 5 && end_of(child) == 0);
    }
}

/* A reader that takes nothing finds the end of the connection. */
static void cut_off(void) {
    static char much[4 << 20], got[4 << 20];
    fill(much, sizeof much);
    CHECK(setenv("TXOS_HELD_WAIT", "1", 1) == 0);
    connection(SOCK_STREAM);
    signal(SIGPIPE, SIG_IGN);
    struct pollfd one = {own, POLLIN, 0};
    CHECK(sys_xbegin(0) == 0 && send(own, much, sizeof much, 0) == sizeof much && poll(&one, 1, 1) == 0);
    sys_xabort(1);
    CHECK(send(own, "after", 5, 0) == -1 && errno == EPIPE);
    ssize_t n, all = 0;
    while ((n = read(other, got + all, sizeof got - all)) > 0)
        all += n;
    CHECK(n == 0 && all > 0 && all < (ssize_t)sizeof got && memcmp(got, much, all) == 0);
}

/* A reader that takes nothing keeps nothing from others that have room. */
static void past_others(void) {
    static char much[4 << 20];
    int stuck[2];
    connection(SOCK_STREAM);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, stuck) == 0);
    for (int waits = 0; waits < 2; waits++) {
        CHECK(fcntl(own, F_SETFL, waits ? 0 : O_NONBLOCK) == 0 && sys_xbegin(0) == 0);
        CHECK(send(stuck[0], much, sizeof much, 0) == sizeof much && send(own, "some", 4, 0) == 4);
        /* What can't be held follows what is. */
        ssize_t n = waits ? send(own, "now", 3, MSG_ZEROCOPY) : send(own, much, sizeof much, 0);
        CHECK(n > 0 && n < (ssize_t)sizeof much);
        long paused = sys_xpause();
        CHECK(paused > 0);
        exact(other, "some");
        CHECK(recv(other, much, n, MSG_WAITALL) == n && came(other, NULL));
        /* Nobody reads it to its end. */
        CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR && shutdown(stuck[1], SHUT_RDWR) == 0 && sys_xresume(paused) == 0);
        CHECK(send(own, "held", 4, 0) == 4 && seen(NULL));
        sys_xabort(1);
        CHECK(came(other, NULL) && close(stuck[0]) == 0 && close(stuck[1]) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, stuck) == 0);
    }
}

/* Who is told again and again that it may write, and asks for more, waits for an answer. */
static void only_room(void) {
    static char much[1 << 16];
    for (int way = 0; way < 6; way++) {
        connection(SOCK_STREAM);
        ssize_t before = 0, n;
        /* With no room for the kernel it is the transaction that says so. */
        if (way >= 3)
            while ((n = send(own, much, sizeof much, MSG_DONTWAIT)) > 0)
                before += n;
        pid_t child = fork();
        if (child == 0) {
            for (; before > 0; before -= n)
                CHECK((n = recv(other, much, before < (ssize_t)sizeof much ? before : (ssize_t)sizeof much, 0)) > 0);
            exact(other, "request");
            CHECK(send(other, "answer", 6, 0) == 6);
            _exit(0);
        }
        int all = epoll_create1(0), found = 0;
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};
        CHECK(epoll_ctl(all, EPOLL_CTL_ADD, own, &event) == 0);
        CHECK(sys_xbegin(0) == 0 && send(own, "request", 7, 0) == 7);
        while (!found) {
            struct pollfd one = {own, POLLIN | POLLOUT, 0};
            fd_set in, out;
            FD_ZERO(&in);
            FD_ZERO(&out);
            FD_SET(own, &in);
            FD_SET(own, &out);
            switch (way % 3) {
            case 0: CHECK(poll(&one, 1, -1) == 1); found = one.revents & POLLIN; break;
            case 1: CHECK(select(own + 1, &in, &out, NULL, NULL) > 0); found = FD_ISSET(own, &in); break;
            default: CHECK(epoll_wait(all, &event, 1, -1) == 1); found = event.events & EPOLLIN; break;
            }
        }
        exact(own, "answer");
        CHECK(sys_xend() == 0 && end_of(child) == 0);
    }
    /* Of a socket of which it asks in its calls whether there is room, the kernel says that. */
    connection(SOCK_STREAM);
    while (send(own, much, sizeof much, MSG_DONTWAIT) > 0)
        ;
    struct pollfd one = {own, POLLOUT, 0};
    CHECK(sys_xbegin(0) == 0 && send(own, "x", 1, MSG_DONTWAIT) == -1 && errno == EAGAIN && poll(&one, 1, 0) == 0 && sys_xend() == 0);
}

/* One that is connected to the socket "place", which is made. */
static int sender(int *place) {
    struct sockaddr_un path = {AF_UNIX, "place"};
    int one = socket(AF_UNIX, SOCK_DGRAM, 0);
    *place = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(*place, (void *)&path, sizeof path) == 0 && connect(one, (void *)&path, sizeof path) == 0);
    return one;
}

/* The same of a socket whose queue of messages is full. What is there is there; later messages come. */
static void full_queue(void) {
    CHECK(setenv("TXOS_HELD_WAIT", "1", 1) == 0);
    connection(SOCK_DGRAM);
    int place, fd = sender(&place);
    int before = 0;
    while (send(fd, "before", 6, MSG_DONTWAIT) == 6)
        before++;
    CHECK(errno == EAGAIN && before > 0 && sys_xbegin(0) == 0);
    put("made", "x", O_CREAT);
    CHECK(send(fd, "late", 4, 0) == 4 && send(fd, "later", 5, 0) == 5);
    CHECK(sys_xend() == 0 && is_there("made") && strstr(txos_strerror(), "9 bytes for a socket"));
    while (before--)
        CHECK(came(place, "before"));
    CHECK(came(place, NULL) && sys_xbegin(0) == 0 && send(fd, "again", 5, 0) == 5 && sys_xend() == 0 && came(place, "again"));
}

/* Of such a queue, which others fill as well, there is surely room for one message. */
static void crowded(void) {
    connection(SOCK_DGRAM);
    int place, fd = sender(&place);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && sys_xbegin(TX_STRICT) == 0 && send(fd, "one", 3, 0) == 3);
    CHECK(sys_xend() == 0 && came(place, "one") && sys_xbegin(0) == 0 && send(fd, "one", 3, 0) == 3 && send(fd, "two", 3, 0) == 3);
    sys_xabort(1);
    CHECK(came(place, "one") && came(place, "two") && came(place, NULL));
    /* Of one that is not connected nothing is known. One that waits holds all of it. */
    struct sockaddr_un named = {AF_UNIX, ""};
    socklen_t len = sizeof(sa_family_t) + 6;
    snprintf(named.sun_path + 1, 6, "%05d", (int)getpid() % 100000);
    int receives = socket(AF_UNIX, SOCK_DGRAM, 0), loose = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(receives, (void *)&named, len) == 0 && sys_xbegin(0) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(sendto(loose, "held", 4, 0, (void *)&named, len) == 4);
    sys_xabort(1);
    CHECK(came(receives, NULL) && sys_xbegin(0) == 0 && sendto(loose, "live", 4, MSG_DONTWAIT, (void *)&named, len) == 4);
    sys_xabort(1);
    CHECK(came(receives, "live"));
}

/* What the kernel would refuse is refused at once. */
static void refused(void) {
    static char much[1 << 20];
    struct sockaddr_un path = {AF_UNIX, "\0nobody"};
    connection(SOCK_DGRAM);
    CHECK(sys_xbegin(0) == 0 && send(own, much, sizeof much, 0) == -1 && errno == EMSGSIZE);
    CHECK(write(own, much, sizeof much) == -1 && errno == EMSGSIZE);
    CHECK(send(own, "x", 1, MSG_OOB) == -1 && errno == EOPNOTSUPP);
    int stream[2], udp = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
    struct sockaddr_in net = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    CHECK(sendto(udp, much, 65508, 0, (void *)&net, sizeof net) == -1 && errno == EMSGSIZE && sys_xend() == 0);
    connection(SOCK_STREAM);
    CHECK(sendto(own, "x", 1, 0, (void *)&path, sizeof path) == -1 && errno == EISCONN);
    CHECK(sys_xbegin(TX_STRICT) == 0 && sendto(own, "x", 1, 0, (void *)&path, sizeof path) == -1 && errno == EISCONN && sys_xend() == 0);
    CHECK(came(other, NULL));
}

/* What could not be held is named as well, and nothing begins again. */
static void live(void) {
    static char much[1 << 20];
    connection(SOCK_STREAM);
    volatile int attempts = 0;
    CHECK(fcntl(own, F_SETFL, O_NONBLOCK) == 0 && sys_xbegin(TX_RESTART) >= 0);
    attempts++;
    CHECK(send(own, much, sizeof much, 0) > 0 && ioctl(0, LOSE) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ECANCELED && attempts == 1 && strstr(reason().what, "sent before that: "));
    CHECK(sys_xbegin(TX_STRICT) == 0 && send(own, much, sizeof much, 0) == -1 && errno == ECANCELED && sys_xend() == -1 && errno == ENOTSUP);
}

/* Ways to send, and the end of a connection: all of it in order at the commit, and none of it if it aborts. */
static void ways_to_send(void) {
    for (int commits = 0; commits < 2; commits++) {
        int p[2];
        connection(SOCK_STREAM);
        put("file", "file,", O_CREAT | O_TRUNC);
        CHECK(pipe(p) == 0 && write(p[1], "pipe,", 5) == 5 && sys_xbegin(TX_STRICT) == 0);
        int fd = open("file", O_RDONLY);
        CHECK(send(own, "more,", 5, MSG_MORE) == 5 && sendfile(own, fd, NULL, 100) == 5);
        CHECK(splice(p[0], NULL, own, NULL, 5, 0) == 5 && write(own, "last", 4) == 4);
        CHECK(shutdown(own, SHUT_WR) == 0 && close(own) == 0 && seen(NULL));
        if (commits) {
            CHECK(sys_xend() == 0);
            exact(other, "more,file,pipe,");
            exact(other, "last");
            CHECK(came(other, ""));
        } else {
            sys_xabort(1);
            CHECK(came(other, NULL) && send(own, "is open", 7, 0) == 7 && came(other, "is open"));
        }
    }
}

static void *sends(void *text) {
    CHECK(send(own, text, strlen(text), 0) > 0);
    return NULL;
}

/* Another thread that has the socket overtakes what is held. */
static void overtaken(void) {
    connection(SOCK_DGRAM);
    CHECK(sys_xbegin(0) == 0 && send(own, "held", 4, 0) == 4);
    pthread_t thread;
    long paused = sys_xpause();
    CHECK(pthread_create(&thread, NULL, sends, "by a thread") == 0 && pthread_join(thread, NULL) == 0 && sys_xresume(paused) == 0);
    CHECK(seen("by a thread") && seen(NULL) && sys_xend() == 0 && came(other, "held"));
}

/* A socket that a child has as well, such as standard output: what is held for it comes before what the child sends. */
static void before_a_child(void) {
    for (int kind = 0; kind < 3; kind++) {
        int standard = kind == 1;
        connection(SOCK_DGRAM);
        int before = dup(1), fd = standard ? 1 : own;
        CHECK(kind == 0 || fcntl(own, F_SETFD, FD_CLOEXEC) == 0);
        CHECK(!standard || dup2(own, 1) == 1);
        CHECK(sys_xbegin(0) == 0 && send(fd, "by the parent", 13, 0) == 13 && seen(NULL));
        pid_t child = fork();
        if (child == 0) {
            CHECK(send(fd, "by a child", 10, 0) == 10);
            _exit(0);
        }
        long paused = sys_xpause();
        CHECK(end_of(child) == 0 && sys_xresume(paused) == 0);
        CHECK(seen("by the parent") && seen("by a child") && seen(NULL));
        CHECK(send(fd, "held", 4, 0) == 4 && seen(NULL));
        sys_xabort(1);
        CHECK(came(other, NULL) && dup2(before, 1) == 1 && close(before) == 0);
    }
}

static void network(int type) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    other = socket(AF_INET, type, 0), own = socket(AF_INET, type, 0);
    CHECK(bind(other, (void *)&at, len) == 0 && getsockname(other, (void *)&at, &len) == 0);
    CHECK(type != SOCK_STREAM || listen(other, 1) == 0);
    CHECK(connect(own, (void *)&at, len) == 0);
    if (type == SOCK_STREAM)
        other = accept(other, NULL, NULL);
    else
        CHECK(getsockname(own, (void *)&at, &len) == 0 && connect(other, (void *)&at, len) == 0);
}

/* Before the kernel encrypts a connection, what was held is sent as it is. */
static void encrypted(void) {
    connection(SOCK_STREAM);
    network(SOCK_STREAM);
    CHECK(sys_xbegin(0) == 0 && send(own, "finished", 8, 0) == 8);
    setsockopt(own, SOL_TCP, TCP_ULP, "tls", 3);
    sys_xabort(1);
    exact(other, "finished");
}

/* Urgent bytes are held as others are. What the kernel tells of afterwards is live, after what was held. */
static void sent_with_flags(void) {
    char got[4];
    connection(SOCK_STREAM);
    network(SOCK_STREAM);
    CHECK(sys_xbegin(0) == 0 && send(own, "held", 4, 0) == 4 && send(own, "now", 3, MSG_ZEROCOPY) == 3);
    sys_xabort(1);
    exact(other, "heldnow");
    CHECK(sys_xbegin(TX_STRICT) == 0 && send(own, "more", 4, MSG_MORE) == 4 && send(own, "!", 1, MSG_OOB) == 1 && seen(NULL));
    CHECK(sys_xend() == 0);
    exact(other, "more");
    CHECK(recv(other, got, 1, MSG_OOB) == 1 && got[0] == '!');
    /* A datagram in parts: as a whole, or not at all. */
    network(SOCK_DGRAM);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(TX_STRICT) == 0 && send(own, "a part,", 7, MSG_MORE) == 7 && send(own, "a part", 6, 0) == 6 && seen(NULL));
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        CHECK(commits || (send(own, "after", 5, 0) == 5 && came(other, "after")));
    }
    CHECK(came(other, "a part,a part") && came(other, NULL));
}

/* The address of a name is asked for as the C library does it: the request goes out before the answer is waited for. */
static void lookup(void) {
    connection(SOCK_DGRAM);
    network(SOCK_DGRAM);
    pid_t child = fork();
    if (child == 0) {
        char text[8];
        for (int i = 0; i < 2; i++)
            CHECK(recv(other, text, 8, 0) == 8 && send(other, text, 8, 0) == 8);
        _exit(0);
    }
    struct iovec questions[2] = {{"A       ", 8}, {"AAAA    ", 8}};
    struct mmsghdr both[2] = {{.msg_hdr = {.msg_iov = questions, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = questions + 1, .msg_iovlen = 1}}};
    CHECK(fcntl(own, F_SETFL, O_NONBLOCK) == 0 && sys_xbegin(0) == 0);
    struct pollfd one = {own, POLLOUT, 0};
    CHECK(poll(&one, 1, 0) == 1 && sendmmsg(own, both, 2, MSG_NOSIGNAL) == 2 && both[1].msg_len == 8);
    one.events = POLLIN;
    for (int i = 0; i < 2; i++) {
        char text[16];
        CHECK(poll(&one, 1, 5000) == 1 && recvfrom(own, text, 16, 0, NULL, NULL) == 8 && memcmp(text, questions[i].iov_base, 8) == 0);
    }
    CHECK(sys_xend() == 0 && end_of(child) == 0);
}

/* A socket that is connected to another has what was held sent to the one before. */
static void reconnected(void) {
    connection(SOCK_DGRAM);
    int place, fd = sender(&place), second = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un path = {AF_UNIX, "second"};
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    CHECK(bind(second, (void *)&path, sizeof path) == 0 && sys_xbegin(0) == 0 && send(fd, "first", 5, 0) == 5);
    CHECK(connect(fd, (void *)&path, sizeof path) == 0 && send(fd, "second", 6, 0) == 6 && sys_xend() == 0);
    CHECK(came(place, "first") && came(place, NULL) && came(second, "second") && came(second, NULL));
    CHECK(sys_xbegin(0) == 0 && send(fd, "third", 5, 0) == 5 && connect(fd, &none, sizeof none) == 0);
    CHECK(send(fd, "x", 1, 0) == -1 && errno == ENOTCONN && sys_xend() == 0 && came(second, "third"));
}

/* Killed before the commit nothing is sent. */
static void killed(void) {
    connection(SOCK_DGRAM);
    pid_t child = fork();
    if (child == 0) {
        int p[2];
        CHECK(pipe(p) == 0 && sys_xbegin(0) == 0 && send(own, "never", 5, 0) == 5);
        hand(own, p[0]);
        kill(getpid(), SIGKILL);
    }
    CHECK(end_of(child) == 256 + SIGKILL && came(other, NULL));
}

/* So much is held, and no more. */
static void limit(void) {
    CHECK(setenv("TXOS_HELD_MAX", "1000", 1) == 0);
    connection(SOCK_STREAM);
    static char much[2000];
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(send(own, much, sizeof much, 0) == -1 && errno == ENOSPC && send(own, "some", 4, 0) == 4);
    CHECK(sys_xend() == 0 && came(other, "some"));
}

/* Without a limit that the program has set, what can't be held is sent: here no file may become so long. */
static void no_room_to_hold(void) {
    static char much[3 << 20], got[3 << 20];
    struct rlimit least = {1000, RLIM_INFINITY};
    connection(SOCK_STREAM);
    fill(much, sizeof much);
    pid_t child = fork();
    if (child == 0) {
        CHECK(close(own) == 0 && recv(other, got, sizeof got, MSG_WAITALL) == sizeof got && memcmp(got, much, sizeof got) == 0);
        exact(other, "committed");
        _exit(0);
    }
    /* (The realm and the store are made before.) */
    CHECK(close(other) == 0 && sys_xbegin(0) == 0 && is_there(".") && sys_xend() == 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &least) == 0 && sys_xbegin(0) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(send(own, much + (i << 20), 1 << 20, 0) == 1 << 20);
    CHECK(send(own, "committed", 9, 0) == 9 && sys_xend() == 0 && end_of(child) == 0);
    connection(SOCK_STREAM);
    CHECK(sys_xbegin(TX_STRICT) == 0 && send(own, much, 2 << 20, 0) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ENOTSUP && came(other, NULL));
}

/* That an earlier message was refused does not cost the next. */
static void refused_before(void) {
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    connection(SOCK_DGRAM);
    network(SOCK_DGRAM);
    CHECK(getpeername(own, (void *)&at, &len) == 0 && close(other) == 0);
    for (int parts = 0; parts < 2; parts++) {
        struct pollfd one = {own, 0, 0};
        CHECK(send(own, "nobody", 6, 0) == 6 && poll(&one, 1, -1) == 1 && one.revents & POLLERR);
        other = socket(AF_INET, SOCK_DGRAM, 0);
        CHECK(bind(other, (void *)&at, len) == 0 && sys_xbegin(0) == 0);
        CHECK(!parts || send(own, "a part,", 7, MSG_MORE) == 7);
        CHECK(send(own, "late", 4, 0) == 4 && sys_xend() == 0);
        CHECK(came(other, parts ? "a part,late" : "late") && came(other, NULL) && close(other) == 0);
    }
}

/* Calls that the kernel refuses fail as natively, and nothing of what is held goes out for them. */
static void moved_wrongly(void) {
    connection(SOCK_STREAM);
    struct iovec bytes = {"x", 1};
    CHECK(vmsplice(own, &bytes, 1, 0) == -1 && errno == EBADF && sys_xbegin(TX_STRICT) == 0);
    CHECK(send(own, "held", 4, 0) == 4 && vmsplice(own, &bytes, 1, 0) == -1 && errno == EBADF && seen(NULL) && sys_xend() == 0);
    CHECK(came(other, "held"));
}

/* An option by which messages are sent is one of those that follow it. */
static void options(void) {
    int size = 4;
    connection(SOCK_DGRAM);
    network(SOCK_DGRAM);
    CHECK(sys_xbegin(0) == 0 && send(own, "as a whole", 10, 0) == 10 && seen(NULL));
    CHECK(setsockopt(own, SOL_UDP, UDP_SEGMENT, &size, sizeof size) == 0);
    CHECK(seen("as a whole") && send(own, "four", 4, 0) == 4 && seen(NULL) && sys_xend() == 0 && came(other, "four"));
}

/* In a transaction of several processes nothing is held. */
static void members(void) {
    connection(SOCK_STREAM);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(send(own, "by a member,", 12, 0) == 12);
        _exit(0);
    }
    CHECK(end_of(child) == 0 && send(own, "live", 4, 0) == 4);
    sys_xabort(1);
    CHECK(came(other, "by a member,live"));
}

#define SCENARIO(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    SCENARIO(only_sockets), SCENARIO(asked), SCENARIO(at_once), SCENARIO(connecting), SCENARIO(descriptors), SCENARIO(waits), SCENARIO(no_room), SCENARIO(room), SCENARIO(strict), SCENARIO(named), SCENARIO(gone),
    SCENARIO(killed), SCENARIO(limit), SCENARIO(members), SCENARIO(ended), SCENARIO(full), SCENARIO(full_queue), SCENARIO(crowded),
    SCENARIO(refused), SCENARIO(live), SCENARIO(ways_to_send), SCENARIO(overtaken), SCENARIO(encrypted), SCENARIO(lookup),
    SCENARIO(reconnected), SCENARIO(sent_with_flags), SCENARIO(standard), SCENARIO(before_a_child), SCENARIO(each_its_time),
    SCENARIO(cut), SCENARIO(past_others), SCENARIO(only_room), SCENARIO(no_room_to_hold), SCENARIO(refused_before),
    SCENARIO(moved_wrongly), SCENARIO(options), SCENARIO(stuck), SCENARIO(closed_in_epoll), SCENARIO(no_numbers),
    SCENARIO(all_of_an_answer), SCENARIO(called_off), SCENARIO(cut_off),
};

RUN_ONE_OF(scenarios)
