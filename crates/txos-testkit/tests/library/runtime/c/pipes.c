/* What a transaction of a thread reads from pipes and FIFOs: taken by the commit, left there by an abort. One scenario for each
 * argument; each exits with 0 if all is as the documentation says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* Whose turn it is. It is shared with children, and no transaction knows of it. */
static volatile int *turn;

static void await(int number) {
    while (*turn < number)
        sched_yield();
}

static void make_pipe(int p[2], const char *holds) {
    CHECK(pipe(p) == 0);
    CHECK(write(p[1], holds, strlen(holds)) == (ssize_t)strlen(holds));
}

/* Whether these bytes are what a pipe has, and nothing else. */
static int has(int fd, const char *expected) {
    char text[256] = "";
    struct pollfd one = {fd, POLLIN, 0};
    ssize_t n = 0, got;
    while (poll(&one, 1, 0) == 1 && one.revents & POLLIN && (got = read(fd, text + n, sizeof text - 1 - (size_t)n)) > 0)
        n += got;
    text[n] = 0;
    if (strcmp(text, expected) != 0)
        fprintf(stderr, "has \"%s\", not \"%s\"\n", text, expected);
    return strcmp(text, expected) == 0;
}

static int reads(int fd, size_t most, const char *expected) {
    char text[256];
    ssize_t n = read(fd, text, most);
    return n == (ssize_t)strlen(expected) && memcmp(text, expected, strlen(expected)) == 0;
}

static void ends_well(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Begun again, it reads the same. The commit takes that, and leaves the rest. */
static void restart(void) {
    int p[2];
    make_pipe(p, "request and more");
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    CHECK(reads(p[0], 3, "req") && reads(p[0], 4, "uest"));
    if (attempts++ < 2)
        ioctl(-1, LOSE);
    CHECK(sys_xend() == 0 && attempts == 3);
    CHECK(has(p[0], " and more"));
}

/* Without being asked for, it is gone at once, and nothing else happens; also under TX_STRICT. */
static void not_asked(void) {
    for (int strict = 0; strict < 2; strict++) {
        int p[2], left;
        make_pipe(p, "request and more");
        volatile int attempts = 0;
        CHECK(sys_xbegin(TX_RESTART | (strict ? TX_STRICT : 0)) >= 0);
        if (attempts++ < 1) {
            CHECK(reads(p[0], 7, "request"));
            CHECK(ioctl(p[0], FIONREAD, &left) == 0 && left == 9);
            ioctl(-1, LOSE);
        }
        CHECK(sys_xend() == 0 && attempts == 2);
        CHECK(has(p[0], " and more"));
        close(p[0]), close(p[1]);
    }
}

/* Killed: all is there for who else has the pipe. */
static void killed(void) {
    int p[2], status;
    make_pipe(p, "request");
    pid_t child = fork();
    if (child == 0) {
        CHECK(sys_xbegin(0) == 0);
        CHECK(reads(p[0], 5, "reque"));
        raise(SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(has(p[0], "request"));
}

/* What comes while the transaction waits for it, and the end. */
static void ended(void) {
    int p[2];
    make_pipe(p, "first");
    pid_t child = fork();
    if (child == 0) {
        close(p[0]);
        await(1);
        _exit(write(p[1], "second", 6) == 6 ? 0 : 1);
    }
    close(p[1]);
    CHECK(sys_xbegin(0) == 0);
    CHECK(reads(p[0], 100, "first"));
    *turn = 1;
    CHECK(reads(p[0], 100, "second"));
    CHECK(reads(p[0], 100, "") && reads(p[0], 100, ""));
    struct pollfd one = {p[0], POLLIN, 0};
    CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLHUP);
    sys_xabort(1);
    CHECK(has(p[0], "firstsecond") && reads(p[0], 1, ""));
    ends_well(child);
}

/* The same by poll, select and epoll: each wakes when more has come. */
static void awaited(void) {
    for (int way = 0; way < 3; way++) {
        int p[2], epoll = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
        make_pipe(p, "first");
        CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, p[0], &event) == 0);
        *turn = 0;
        pid_t child = fork();
        if (child == 0) {
            await(1);
            _exit(write(p[1], "second", 6) == 6 ? 0 : 1);
        }
        CHECK(sys_xbegin(0) == 0);
        CHECK(reads(p[0], 100, "first"));
        struct pollfd one = {p[0], POLLIN, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(p[0], &set);
        struct timeval none = {0, 0};
        CHECK(poll(&one, 1, 0) == 0 && epoll_wait(epoll, &event, 1, 0) == 0);
        CHECK(select(p[0] + 1, &set, NULL, NULL, &none) == 0);
        *turn = 1;
        FD_SET(p[0], &set);
        if (way == 0)
            CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
        if (way == 1)
            CHECK(select(p[0] + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(p[0], &set));
        if (way == 2)
            CHECK(epoll_wait(epoll, &event, 1, -1) == 1 && event.events == EPOLLIN && event.data.u64 == 7);
        CHECK(reads(p[0], 100, "second"));
        sys_xabort(1);
        CHECK(has(p[0], "firstsecond"));
        ends_well(child);
        close(p[0]), close(p[1]), close(epoll);
    }
}

/* epoll tells once: what was read is taken. So is what is under another epoll descriptor, and what is there twice. */
static void told_once(void) {
    for (int way = 0; way < 5; way++) {
        int p[2], q[2], epoll = epoll_create1(0), other = epoll_create1(0);
        int once = way == 0 ? EPOLLET : way == 3 ? EPOLLONESHOT : 0;
        struct epoll_event event = {.events = EPOLLIN | once, .data.u64 = 7};
        make_pipe(p, "first"), make_pipe(q, "");
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, p[0], &event) == 0);
        if (way == 1)
            CHECK(epoll_ctl(other, EPOLL_CTL_ADD, epoll, &event) == 0);
        if (way == 2)
            CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, q[0], &event) == 0);
        CHECK(sys_xbegin(0) == 0);
        CHECK(reads(p[0], 100, "first"));
        struct pollfd one = {epoll, POLLIN, 0};
        if (way == 4)
            CHECK(poll(&one, 1, 0) == 0);
        else
            CHECK(epoll_wait(way == 1 ? other : epoll, &event, 1, 0) == 0);
        sys_xabort(1);
        CHECK(has(p[0], ""));
        close(p[0]), close(p[1]), close(q[0]), close(q[1]), close(epoll), close(other);
    }
}

/* A writer that has more than there is room for is not kept waiting, however the reader waits. */
static void full(void) {
    for (int way = 0; way < 5; way++) {
        enum { SIZE = 3000000 };
        int p[2];
        CHECK(pipe(p) == 0);
        pid_t child = fork();
        if (child == 0) {
            alarm(80);
            close(p[0]);
            static char all[SIZE];
            size_t sent = 0;
            /* Pieces that take a page each, or all at once. */
            size_t piece = way == 1 ? 2049 : SIZE;
            while (sent < SIZE) {
                ssize_t n = write(p[1], all + sent, piece < SIZE - sent ? piece : SIZE - sent);
                if (n <= 0)
                    _exit(1);
                sent += (size_t)n;
            }
            _exit(0);
        }
        close(p[1]);
        static char buffer[1 << 12];
        size_t received = 0;
        ssize_t n;
        int waits = 0;
        if (way == 3 || way == 4)
            CHECK(fcntl(p[0], F_SETFL, O_NONBLOCK) == 0);
        CHECK(sys_xbegin(0) == 0);
        struct pollfd one = {p[0], POLLIN, 0};
        for (;;) {
            if (way == 2)
                CHECK(poll(&one, 1, -1) == 1);
            while (way == 4 && poll(&one, 1, 0) == 0)
                waits++;
            n = read(p[0], buffer, sizeof buffer);
            if (n == 0)
                break;
            CHECK(n > 0 || (way > 2 && errno == EAGAIN));
            received += n > 0 ? (size_t)n : 0;
        }
        CHECK(received == SIZE);
        CHECK(sys_xend() == 0);
        ends_well(child);
        close(p[0]);
    }
}

/* A writer waits for room while the transaction waits for something else. */
static void elsewhere(void) {
    char name[] = "lock-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0);
    for (int way = 0; way < 5; way++) {
        int p[2], q[2], s[2];
        static char all[1 << 16];
        make_pipe(p, ""), make_pipe(q, "");
        CHECK(fcntl(p[0], F_GETPIPE_SZ) == sizeof all && write(p[1], all, sizeof all) == sizeof all);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
        *turn = 0;
        pid_t child = fork();
        if (child == 0) {
            alarm(80);
            close(p[0]), close(q[0]), close(s[0]);
            int own = open(name, O_RDWR);
            if (own < 0 || flock(own, LOCK_EX) != 0)
                _exit(1);
            *turn = 1;
            await(2);
            /* There is room by what the other has read. */
            if (write(p[1], all, 4096) != 4096)
                _exit(1);
            *turn = 3;
            if (write(q[1], "x", 1) != 1 || write(s[1], "x", 1) != 1)
                _exit(1);
            _exit(0);
        }
        await(1);
        char byte;
        CHECK(sys_xbegin(0) == 0);
        CHECK(read(p[0], all, 4096) == 4096);
        *turn = 2;
        int status;
        struct pollfd one = {q[0], POLLIN, 0};
        if (way == 0)
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        if (way == 1)
            CHECK(flock(file, LOCK_EX) == 0 && flock(file, LOCK_UN) == 0);
        if (way == 2)
            CHECK(poll(&one, 1, -1) == 1);
        if (way == 3)
            CHECK(recv(s[0], &byte, 1, 0) == 1);
        while (way == 4 && *turn < 3) {
            struct timespec moment = {0, 1000000};
            nanosleep(&moment, NULL);
        }
        sys_xabort(1);
        if (way > 0)
            ends_well(child);
        CHECK(fcntl(p[0], F_SETFL, O_NONBLOCK) == 0);
        size_t left = 0;
        ssize_t n;
        while ((n = read(p[0], all, sizeof all)) > 0)
            left += (size_t)n;
        /* What the transaction has read is not among it. */
        CHECK(left == sizeof all);
        close(p[0]), close(p[1]), close(q[0]), close(q[1]), close(s[0]), close(s[1]);
    }
    unlink(name);
}

/* Somebody writes to a full pipe in a transaction whose objects this one wants: it does not wait in vain. */
static void opponent(void) {
    int p[2], file = open("wanted", O_RDWR | O_CREAT, 0666);
    CHECK(file >= 0 && write(file, "before", 6) == 6);
    static char all[1 << 16];
    make_pipe(p, "");
    CHECK(write(p[1], all, sizeof all) == sizeof all);
    pid_t child = fork();
    if (child == 0) {
        alarm(80);
        close(p[0]);
        CHECK(sys_xbegin(TX_PROCESSES) == 0);
        CHECK(pwrite(file, "behin", 5, 0) == 5 && pwrite(file, "d", 1, 5) == 1);
        /* It has several processes, and gives way to nobody. */
        pid_t member = fork();
        if (member == 0)
            _exit(0);
        ends_well(member);
        *turn = 1;
        await(2);
        CHECK(write(p[1], all, 4096) == 4096);
        CHECK(sys_xend() == 0);
        _exit(0);
    }
    await(1);
    char text[7] = "";
    CHECK(sys_xbegin(0) == 0);
    CHECK(read(p[0], all, 4096) == 4096);
    *turn = 2;
    /* The other one commits; what it has changed this one reads, or it has lost. A wait for its end would last a minute. */
    time_t begun = time(NULL);
    int seen = pread(file, text, 6, 0) == 6;
    CHECK(seen ? strcmp(text, "behind") == 0 : errno == ECANCELED);
    CHECK(sys_xend() == (seen ? 0 : -1));
    ends_well(child);
    CHECK(time(NULL) - begun < 50);
    CHECK(pread(file, text, 6, 0) == 6 && strcmp(text, "behind") == 0);
}

/* Somebody else takes what it has read: it does not commit, or is told by the next read. */
static void stolen(void) {
    for (int way = 0; way < 2; way++) {
        int p[2];
        make_pipe(p, "once and twice");
        *turn = 0;
        pid_t child = fork();
        if (child == 0) {
            await(1);
            int right = reads(p[0], 5, "once ");
            *turn = 2;
            _exit(right ? 0 : 1);
        }
        CHECK(sys_xbegin(0) == 0);
        CHECK(reads(p[0], 4, "once"));
        *turn = 1;
        await(2);
        if (way == 1)
            CHECK(!reads(p[0], 100, "twice") && errno == ECANCELED);
        CHECK(sys_xend() == -1 && errno == ECANCELED);
        CHECK(strstr(txos_strerror(), "has read from a pipe"));
        CHECK(has(p[0], "and twice"));
        ends_well(child);
    }
}

/* Two transactions that have read the same: one commits. */
static void rivals(void) {
    for (int round = 0; round < 100; round++) {
        int p[2], status;
        make_pipe(p, "jobs");
        *turn = 0;
        pid_t child = fork();
        /* Each changes a file of its own, which takes its time. */
        int file = open(child == 0 ? "one" : "other", O_RDWR | O_CREAT, 0666);
        CHECK(sys_xbegin(TX_DURABLE) == 0);
        CHECK(reads(p[0], 1, "j"));
        CHECK(pwrite(file, "x", 1, round) == 1);
        __atomic_add_fetch(turn, 1, __ATOMIC_SEQ_CST);
        await(2);
        int committed = sys_xend() == 0;
        CHECK(committed || errno == ECANCELED);
        if (child == 0)
            _exit(committed);
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK(committed + WEXITSTATUS(status) == 1);
        CHECK(has(p[0], "obs"));
        close(p[0]), close(p[1]), close(file);
    }
}

/* Who writes can change what is in the pipe, and does so each time: that does not go on for ever. */
static void changed(void) {
    int p[2];
    static char page[4096] __attribute__((aligned(4096)));
    struct iovec all = {page, 4};
    CHECK(pipe(p) == 0);
    memcpy(page, "some", 4);
    CHECK(vmsplice(p[1], &all, 1, 0) == 4);
    int lost = 0;
    for (;; lost++) {
        char text[4];
        CHECK(sys_xbegin(0) == 0 && read(p[0], text, 4) == 4);
        page[0]++;
        if (sys_xend() == 0)
            break;
        CHECK(errno == ECANCELED && lost < 100);
    }
    CHECK(lost == 16 && has(p[0], ""));
}

/* Who finds nothing a hundred times, or for a second, waits: what was read is taken. */
static void vain(void) {
    for (int way = 0; way < 2; way++) {
        int p[2], left;
        char byte;
        make_pipe(p, "gone");
        pid_t child = fork();
        if (child == 0) {
            alarm(80);
            do {
                sched_yield();
                if (ioctl(p[0], FIONREAD, &left) != 0)
                    _exit(1);
            } while (left > 0);
            _exit(write(p[1], "x", 1) == 1 ? 0 : 1);
        }
        if (way == 0)
            CHECK(fcntl(p[0], F_SETFL, O_NONBLOCK) == 0);
        CHECK(sys_xbegin(0) == 0);
        CHECK(reads(p[0], 4, "gone"));
        while (read(p[0], &byte, 1) != 1)
            CHECK(way == 0 && errno == EAGAIN);
        sys_xabort(1);
        CHECK(has(p[0], ""));
        ends_well(child);
        close(p[0]), close(p[1]);
    }
}

/* A child reads what follows. */
static void child(void) {
    int p[2];
    make_pipe(p, "headbody");
    CHECK(sys_xbegin(0) == 0);
    CHECK(reads(p[0], 4, "head"));
    pid_t child = fork();
    if (child == 0)
        _exit(has(p[0], "body") ? 0 : 1);
    ends_well(child);
    sys_xabort(1);
    CHECK(has(p[0], ""));
}

/* By two numbers, and one that was made, closed and made again. */
static void twice(void) {
    int p[2], q[2];
    make_pipe(p, "onetwothree"), make_pipe(q, "other");
    int copy = dup(p[0]);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(0) == 0);
        CHECK(reads(p[0], 3, "one") && reads(copy, 3, "two"));
        int third = dup(copy);
        CHECK(third >= 0 && close(p[0]) == 0 && reads(third, 3, "thr") && close(third) == 0);
        CHECK(dup2(q[0], copy) == copy && reads(copy, 2, "ot"));
        /* And by its name in /proc. */
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", q[0]);
        int again = open(path, O_RDONLY);
        CHECK(again >= 0 && reads(again, 1, "h") && close(again) == 0);
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
    }
    CHECK(fcntl(p[0], F_GETFD) == -1 && has(q[0], "er"));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", p[1]);
    int left = open(path, O_RDONLY | O_NONBLOCK);
    CHECK(left >= 0 && has(left, "ee"));
}

/* A FIFO that is opened a second time in the transaction: what was read is taken. */
static void fifo(void) {
    char text[16];
    CHECK(mkfifo("fifo", 0600) == 0);
    int first = open("fifo", O_RDONLY | O_NONBLOCK), writer = open("fifo", O_WRONLY);
    CHECK(first >= 0 && writer >= 0 && write(writer, "onetwo", 6) == 6);
    CHECK(sys_xbegin(0) == 0);
    CHECK(reads(first, 3, "one"));
    int second = open("fifo", O_RDONLY | O_NONBLOCK);
    CHECK(second >= 0 && reads(second, 3, "two"));
    sys_xabort(1);
    CHECK(has(first, "") && write(writer, "left", 4) == 4 && close(writer) == 0);
    /* One that is opened when nobody writes there any more, and something is left. */
    int late = open("fifo", O_RDONLY | O_NONBLOCK);
    CHECK(late >= 0 && close(first) == 0);
    CHECK(sys_xbegin(0) == 0);
    CHECK(reads(late, 16, "left") && read(late, text, sizeof text) == 0);
    CHECK(sys_xend() == 0);
    /* And one in which nothing is. */
    CHECK(sys_xbegin(0) == 0);
    CHECK(read(late, text, sizeof text) == 0);
    CHECK(sys_xend() == 0 && unlink("fifo") == 0);
}

/* One transaction in another. */
static void nested(void) {
    int p[2];
    make_pipe(p, "onetwo");
    CHECK(sys_xbegin(0) == 0 && reads(p[0], 3, "one"));
    CHECK(sys_xbegin(0) == 0 && reads(p[0], 3, "two") && sys_xend() == 0);
    sys_xabort(1);
    CHECK(has(p[0], "onetwo"));
}

/* Under TX_STRICT it is aborted instead, and all is left. */
static void strict(void) {
    for (int way = 0; way < 3; way++) {
        int p[2], q[2];
        make_pipe(p, "request"), make_pipe(q, "");
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(reads(p[0], 3, "req"));
        struct pollfd one = {q[0], POLLIN, 0};
        if (way == 0)
            CHECK(poll(&one, 1, -1) == -1 && errno == ECANCELED);
        if (way == 1)
            CHECK(splice(p[0], NULL, q[1], NULL, 1, 0) == -1 && errno == ECANCELED);
        if (way == 2)
            CHECK(fcntl(p[0], F_SETPIPE_SZ, 4096) == -1 && errno == ECANCELED);
        CHECK(sys_xend() == -1);
        CHECK(has(p[0], "request"));
    }
    /* But not because it is paused. */
    int p[2];
    make_pipe(p, "request");
    CHECK(sys_xbegin(TX_STRICT) == 0 && reads(p[0], 3, "req"));
    long id = sys_xpause();
    CHECK(id > 0 && has(p[0], "uest") && sys_xresume(id) == 0 && sys_xend() == 0);
}

/* An answer is not left for the next attempt, by whatever way the request went. */
static void conversation(void) {
    for (int way = 0; way < 2; way++) {
        int to[2], from[2], s[2];
        make_pipe(to, ""), make_pipe(from, "greeting");
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
        pid_t child = fork();
        if (child == 0) {
            alarm(80);
            close(from[0]), close(to[1]), close(s[1]);
            int right = reads(way ? s[0] : to[0], 5, "query") && write(from[1], "answer", 6) == 6;
            _exit(right ? 0 : 1);
        }
        close(from[1]), close(s[0]);
        CHECK(sys_xbegin(0) == 0);
        CHECK(reads(from[0], 8, "greeting"));
        CHECK(write(way ? s[1] : to[1], "query", 5) == 5);
        CHECK(reads(from[0], 6, "answer"));
        sys_xabort(1);
        CHECK(has(from[0], ""));
        ends_well(child);
        close(from[0]), close(to[0]), close(to[1]), close(s[1]);
    }
}

/* What can't only look takes what was read before, and what it reads. */
static void live(void) {
    for (int way = 0; way < 10; way++) {
        int p[2], q[2], s[2], number;
        make_pipe(p, "gone"), make_pipe(q, "");
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
        if (way == 0) {
            close(p[0]), close(p[1]);
            CHECK(pipe2(p, O_DIRECT) == 0 && write(p[1], "gone", 4) == 4);
        }
        /* (Who may not have one so large has another reason here.) */
        if (way == 8 && fcntl(p[0], F_SETPIPE_SZ, 2 << 20) == -1)
            continue;
        CHECK(sys_xbegin(way == 1 ? TX_THREADS : way == 2 ? TX_MANAGED : 0) == 0);
        CHECK(reads(p[0], 4, "gone"));
        if (way == 3)
            CHECK(splice(p[0], NULL, q[1], NULL, 1, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
        if (way == 4)
            CHECK(tee(p[0], q[1], 1, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
        if (way == 5)
            CHECK(fcntl(p[0], F_SETPIPE_SZ, 4096) == 4096);
        if (way == 6) {
            struct iovec byte = {"x", 1};
            union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
            } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
            memcpy(CMSG_DATA(&control.header), &p[0], sizeof(int));
            struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
            CHECK(sendmsg(s[1], &message, 0) == 1);
        }
        if (way == 7) {
            long id = sys_xpause();
            CHECK(id > 0 && has(p[0], "") && sys_xresume(id) == 0);
        }
        if (way == 9) {
            char byte;
            struct iovec one = {&byte, 1};
            CHECK(vmsplice(p[0], &one, 1, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
        }
        CHECK(ioctl(p[0], FIONREAD, &number) == 0 && number == 0);
        sys_xabort(1);
        CHECK(has(p[0], ""));
        close(p[0]), close(p[1]), close(q[0]), close(q[1]), close(s[0]), close(s[1]);
    }
}

/* No descriptor is left for a copy. */
static void no_number(void) {
    int p[2];
    struct rlimit few = {256, 256};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    make_pipe(p, "gone");
    CHECK(sys_xbegin(0) == 0 && sys_xend() == 0);
    while (dup(p[1]) >= 0)
        ;
    CHECK(errno == EMFILE && sys_xbegin(0) == 0);
    CHECK(reads(p[0], 4, "gone"));
    sys_xabort(1);
    CHECK(has(p[0], ""));
}

static void *nothing(void *arg) {
    while (*turn < 1)
        sched_yield();
    return arg;
}

/* Its own threads talk by a pipe: live. */
static void threads(void) {
    int p[2], q[2];
    pthread_t other;
    make_pipe(p, "gone"), make_pipe(q, "kept");
    CHECK(pthread_create(&other, NULL, nothing, NULL) == 0);
    int writer = q[1];
    CHECK(close(writer) == 0);
    CHECK(sys_xbegin(0) == 0);
    CHECK(reads(p[0], 4, "gone") && reads(q[0], 4, "kept"));
    sys_xabort(1);
    CHECK(has(p[0], "") && has(q[0], "kept"));
    *turn = 1;
    CHECK(pthread_join(other, NULL) == 0);
}

/* What a new process writes is no part of what the next attempt finds. */
static void answer(void) {
    int p[2];
    make_pipe(p, "");
    for (int attempt = 0; attempt < 2; attempt++) {
        CHECK(sys_xbegin(0) == 0);
        pid_t child = fork();
        if (child == 0)
            _exit(write(p[1], attempt ? "two" : "one", 3) == 3 ? 0 : 1);
        CHECK(reads(p[0], 3, attempt ? "two" : "one"));
        ends_well(child);
        sys_xabort(1);
    }
    CHECK(has(p[0], ""));
}

/* What decides with it may wait for anybody: it is taken before. */
static void prepared(void) {
    int p[2];
    make_pipe(p, "gone");
    CHECK(sys_xbegin(0) == 0);
    CHECK(reads(p[0], 4, "gone"));
    CHECK(txos_prepare() == 0 && has(p[0], ""));
    CHECK(txos_finish(0) == 0);
    CHECK(has(p[0], ""));
}

/* Closed in the transaction, it is closed by the commit, for who else has it without what was read. */
static void closed(void) {
    int p[2];
    make_pipe(p, "readleft");
    *turn = 0;
    pid_t child = fork();
    if (child == 0) {
        close(p[1]);
        await(1);
        _exit(has(p[0], "left") ? 0 : 1);
    }
    CHECK(sys_xbegin(0) == 0);
    CHECK(reads(p[0], 4, "read") && close(p[0]) == 0 && sys_xend() == 0);
    *turn = 1;
    ends_well(child);
}

static char *told;
static size_t told_at;

#define TELL(...) (told_at += (size_t)sprintf(told + told_at, __VA_ARGS__))

static void tell_read(int fd, void *to, size_t most) {
    errno = 0;
    ssize_t n = read(fd, to, most);
    TELL("read %zd %d %.*s\n", n, n < 0 ? errno : 0, n > 0 && to ? (int)n : 0, (char *)to);
}

/* Calls whose answers are to be the same in a transaction. */
static void calls(int fd, int writer, int other) {
    char text[64], more[8];
    int number = -1;
    tell_read(fd, text, 0);
    tell_read(fd, text, 3);
    CHECK(ioctl(fd, FIONREAD, &number) == 0);
    TELL("there %d\n", number);
    struct iovec two[2] = {{text, 2}, {more, 3}};
    ssize_t n = readv(fd, two, 2);
    TELL("readv %zd %.2s %.3s\n", n, text, more);
    tell_read(fd, (void *)8, 4);
    tell_read(writer, text, 4);
    n = preadv2(fd, two, 1, -1, 0);
    TELL("preadv2 %zd %.2s\n", n, text);
    n = pread(fd, text, 1, 0);
    TELL("pread %zd %d\n", n, errno);
    struct pollfd asked[2] = {{fd, POLLIN | POLLRDNORM, 0}, {other, POLLIN, 0}};
    int found = poll(asked, 2, 0);
    TELL("poll %d %x %x\n", found, asked[0].revents, asked[1].revents);
    tell_read(fd, text, sizeof text);
    found = poll(asked, 2, 0);
    TELL("poll %d %x %x\n", found, asked[0].revents, asked[1].revents);
    CHECK(ioctl(fd, FIONREAD, &number) == 0);
    TELL("there %d\n", number);
    tell_read(fd, text, sizeof text);
    TELL("flags %x\n", fcntl(fd, F_GETFL));
    int copy = dup(fd);
    tell_read(copy, text, sizeof text);
    TELL("close %d\n", close(copy));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    FD_SET(other, &set);
    struct timeval none = {0, 0};
    found = select(fd > other ? fd + 1 : other + 1, &set, NULL, NULL, &none);
    TELL("select %d %d %d\n", found, !!FD_ISSET(fd, &set), !!FD_ISSET(other, &set));
}

static void native(void) {
    static char with[4096], without[4096];
    for (int ends = 0; ends < 2; ends++) {
        for (int in = 0; in < 2; in++) {
            int p[2], q[2];
            make_pipe(p, "one two three four"), make_pipe(q, "");
            CHECK(fcntl(p[0], F_SETFL, O_NONBLOCK) == 0);
            if (ends)
                CHECK(dup2(q[1], p[1]) == p[1]);
            told = in ? with : without, told_at = 0;
            if (in)
                CHECK(sys_xbegin(0) == 0);
            calls(p[0], p[1], q[0]);
            if (in)
                sys_xabort(1);
            CHECK(has(p[0], in ? "one two three four" : ""));
            close(p[0]), close(p[1]), close(q[0]), close(q[1]);
        }
        if (strcmp(with, without) != 0)
            fprintf(stderr, "natively:\n%sin a transaction:\n%s", without, with);
        CHECK(strcmp(with, without) == 0);
    }
}

/* Many pipes, each of another size. */
static void many(void) {
    enum { PIPES = 200 };
    int p[PIPES][2];
    for (int i = 0; i < PIPES; i++) {
        make_pipe(p[i], "kept");
        CHECK(fcntl(p[i][0], F_SETPIPE_SZ, 4096 << i % 3) > 0);
    }
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(0) == 0);
        for (int i = 0; i < PIPES; i++)
            CHECK(reads(p[i][0], 2, "ke"));
        for (int i = 0; i < PIPES; i++)
            CHECK(reads(p[i][0], 1, "p"));
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
    }
    for (int i = 0; i < PIPES; i++)
        CHECK(has(p[i][0], "t"));
}

/* The writer makes the pipe larger, fills it and ends: nothing is missing. */
static void grown(void) {
    int p[2];
    make_pipe(p, "x");
    *turn = 0;
    pid_t child = fork();
    if (child == 0) {
        static char all[200000];
        alarm(80);
        close(p[0]);
        await(1);
        if (fcntl(p[1], F_SETPIPE_SZ, 1 << 20) != 1 << 20 || write(p[1], all, sizeof all) != sizeof all)
            _exit(1);
        _exit(0);
    }
    close(p[1]);
    CHECK(sys_xbegin(0) == 0);
    static char buffer[1 << 12];
    CHECK(read(p[0], buffer, 1) == 1);
    *turn = 1;
    ssize_t n, all = 0;
    while ((n = read(p[0], buffer, sizeof buffer)) > 0)
        all += n;
    CHECK(n == 0 && all == 200000 && sys_xend() == 0);
    CHECK(has(p[0], ""));
    ends_well(child);
}

/* Somebody else has read a record: of the next one, which begins like the end of it, nothing is taken. */
static void shifted(void) {
    int p[2], record;
    const int records[2] = {0x0aff, 0x0b00};
    CHECK(pipe(p) == 0 && write(p[1], records, sizeof records) == sizeof records);
    pid_t child = fork();
    if (child == 0) {
        await(1);
        int right = read(p[0], &record, 4) == 4 && record == records[0];
        *turn = 2;
        _exit(right ? 0 : 1);
    }
    CHECK(sys_xbegin(0) == 0);
    CHECK(read(p[0], &record, 4) == 4 && record == records[0]);
    *turn = 1;
    await(2);
    long id = sys_xpause();
    CHECK(id > 0 && read(p[0], &record, 4) == 4 && record == records[1] && sys_xresume(id) == 0);
    sys_xabort(1);
    ends_well(child);
}

/* The pipe holds a page of the file that the commit changes. */
static void spliced(void) {
    int p[2], file = open("spliced", O_RDWR | O_CREAT, 0666);
    CHECK(file >= 0 && write(file, "0123456789rest", 14) == 14);
    off_t at = 0;
    CHECK(pipe(p) == 0 && splice(file, &at, p[1], NULL, 14, 0) == 14);
    CHECK(sys_xbegin(0) == 0);
    CHECK(reads(p[0], 10, "0123456789"));
    CHECK(pwrite(file, "XX", 2, 0) == 2);
    CHECK(sys_xend() == 0);
    CHECK(has(p[0], "rest"));
}

/* Something goes out, and then it loses: it does not begin again with the next request. */
static void logged(void) {
    for (int way = 0; way < 2; way++) {
        int p[2];
        make_pipe(p, "req1req2");
        volatile int attempts = 0;
        CHECK(sys_xbegin(TX_RESTART) >= 0);
        attempts++;
        if (way == 0)
            CHECK(reads(p[0], 4, "req1"));
        CHECK(dprintf(1, "a line\n") == 7);
        if (way == 1)
            CHECK(reads(p[0], 4, "req1"));
        ioctl(-1, LOSE);
        CHECK(sys_xend() == -1 && attempts == 1);
        CHECK(has(p[0], "req2"));
        close(p[0]), close(p[1]);
    }
    /* Under TX_STRICT it is aborted instead, and the request is there. */
    int p[2];
    make_pipe(p, "req1");
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(reads(p[0], 4, "req1"));
    dprintf(1, "a line\n");
    CHECK(sys_xend() == -1 && has(p[0], "req1"));
    /* So is one that reads after it. */
    CHECK(write(p[1], "req2", 4) == 4 && sys_xbegin(TX_STRICT) == 0);
    char text[4];
    dprintf(1, "a line\n");
    CHECK(read(p[0], text, 4) == -1);
    CHECK(sys_xend() == -1 && has(p[0], "req2"));
}

/* Losing to rivals, however often, makes no later one read at once. */
static void outrun(void) {
    int p[2];
    make_pipe(p, "");
    *turn = 0;
    enum { TIMES = 20 };
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < TIMES; i++) {
            await(2 * i + 1);
            if (!reads(p[0], 4, "jobs"))
                _exit(1);
            *turn = 2 * i + 2;
        }
        _exit(0);
    }
    for (int i = 0; i < TIMES; i++) {
        CHECK(write(p[1], "jobs", 4) == 4);
        CHECK(sys_xbegin(0) == 0 && reads(p[0], 4, "jobs"));
        *turn = 2 * i + 1;
        await(2 * i + 2);
        CHECK(sys_xend() == -1 && errno == ECANCELED);
    }
    CHECK(write(p[1], "jobs", 4) == 4);
    CHECK(sys_xbegin(0) == 0 && reads(p[0], 4, "jobs"));
    sys_xabort(1);
    CHECK(has(p[0], "jobs"));
    ends_well(child);
}

/* The transaction waits in loops of calls that say nothing of waiting. */
static void spins(void) {
    char name[] = "spin-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0);
    for (int way = 0; way < 3; way++) {
        int p[2], q[2], left = 0;
        static char all[1 << 16];
        make_pipe(p, ""), make_pipe(q, "");
        CHECK(write(p[1], all, sizeof all) == sizeof all);
        *turn = 0;
        pid_t child = fork();
        if (child == 0) {
            alarm(80);
            close(p[0]), close(q[0]);
            int own = open(name, O_RDWR);
            if (own < 0 || flock(own, LOCK_EX) != 0)
                _exit(1);
            *turn = 1;
            if (write(p[1], all, 4096) != 4096)
                _exit(1);
            *turn = 2;
            _exit(write(q[1], "x", 1) == 1 && flock(own, LOCK_UN) == 0 ? 0 : 1);
        }
        await(1);
        CHECK(sys_xbegin(0) == 0);
        CHECK(read(p[0], all, 4096) == 4096);
        while (way == 0 && flock(file, LOCK_EX | LOCK_NB) != 0)
            CHECK(errno == EWOULDBLOCK);
        while (way == 1 && left == 0)
            CHECK(ioctl(q[0], FIONREAD, &left) == 0);
        while (way == 2 && *turn < 2)
            CHECK(getppid() > 0);
        sys_xabort(1);
        CHECK(way > 0 || flock(file, LOCK_UN) == 0);
        ends_well(child);
        close(p[0]), close(p[1]), close(q[0]), close(q[1]);
    }
    unlink(name);
}

/* All numbers are used up after the first read: the commit needs none. */
static void used_up(void) {
    int p[2];
    struct rlimit few = {256, 256};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    make_pipe(p, "oneleft");
    CHECK(sys_xbegin(0) == 0);
    CHECK(reads(p[0], 3, "one"));
    while (dup(p[1]) >= 0)
        ;
    CHECK(errno == EMFILE && sys_xend() == 0);
    CHECK(has(p[0], "left"));
}

/* The writer's end alone makes packets. */
static void packets(void) {
    int p[2];
    char text[8];
    CHECK(pipe(p) == 0 && fcntl(p[1], F_SETFL, O_DIRECT) == 0);
    CHECK(write(p[1], "a", 1) == 1 && write(p[1], "bcd", 3) == 3);
    CHECK(sys_xbegin(0) == 0);
    CHECK(read(p[0], text, 8) == 1 && read(p[0], text, 8) == 3);
    CHECK(sys_xend() == 0);
    CHECK(has(p[0], ""));
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"restart", restart}, {"not_asked", not_asked}, {"killed", killed}, {"ended", ended}, {"awaited", awaited}, {"told_once", told_once}, {"full", full},
    {"elsewhere", elsewhere}, {"opponent", opponent}, {"stolen", stolen}, {"rivals", rivals}, {"changed", changed}, {"vain", vain}, {"child", child}, {"twice", twice}, {"fifo", fifo},
    {"nested", nested}, {"strict", strict}, {"conversation", conversation}, {"live", live}, {"threads", threads}, {"no_number", no_number}, {"answer", answer},
    {"prepared", prepared}, {"closed", closed}, {"native", native}, {"many", many}, {"grown", grown}, {"shifted", shifted}, {"spliced", spliced}, {"logged", logged},
    {"outrun", outrun}, {"spins", spins}, {"used_up", used_up}, {"packets", packets},
};

int main(int argc, char **argv) {
    alarm(100);
    turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(turn != MAP_FAILED);
    for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    }
    return 2;
}
