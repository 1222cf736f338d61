/* What a transaction has to take before its end, and the next attempt is given. One scenario for each argument; each exits with 0 if
 * all is as the documentation says. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "check.h"
#include "tcp.h"

enum { SIZE = 2000000 };

static unsigned char byte_at(size_t at) {
    return (unsigned char)(at * 31 + at / 251);
}

/* 0: a Unix stream, 1: TCP, 2: a pipe. */
static void make(int s[2], int kind) {
    if (kind == 0)
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    else if (kind == 1)
        make_tcp(s);
    else
        CHECK(pipe(s) == 0);
}

/* A child that writes more than there is room for, and ends. */
static pid_t writer(int s[2], size_t size) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(80);
        close(s[0]);
        unsigned char *all = malloc(size);
        for (size_t i = 0; i < size; i++)
            all[i] = byte_at(i);
        for (size_t sent = 0; sent < size;) {
            ssize_t n = write(s[1], all + sent, size - sent);
            if (n <= 0)
                _exit(1);
            sent += (size_t)n;
        }
        _exit(0);
    }
    close(s[1]);
    return child;
}

static void ends_well(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* One read of at most so many bytes, in one of several ways: how many came, or 0 at the end. */
static size_t take(int fd, int way, unsigned char *to, size_t most) {
    struct iovec parts[2] = {{to, most / 3}, {to + most / 3, most - most / 3}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};
    struct pollfd one = {fd, POLLIN, 0};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    ssize_t n = -1, all;
    int waiting, epoll;
    fd_set set;
    switch (way) {
    case 0:
        n = read(fd, to, most);
        break;
    case 1:
        CHECK(poll(&one, 1, -1) == 1 && one.revents & (POLLIN | POLLHUP));
        CHECK(ioctl(fd, FIONREAD, &waiting) == 0);
        n = readv(fd, parts, 2);
        CHECK(n >= 0 && (waiting == 0 || n > 0));
        break;
    case 2:
        FD_ZERO(&set);
        FD_SET(fd, &set);
        CHECK(select(fd + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(fd, &set));
        n = read(fd, to, most);
        break;
    case 3:
        epoll = epoll_create1(0);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
        CHECK(epoll_wait(epoll, &event, 1, -1) == 1 && event.data.u64 == 7);
        n = read(fd, to, most);
        close(epoll);
        break;
    case 4:
        all = recv(fd, to, most, MSG_PEEK);
        n = recvmsg(fd, &header, 0);
        CHECK(all <= 0 ? n == 0 : n > 0 && header.msg_flags == 0);
        break;
    default:
        n = recv(fd, to, most, MSG_WAITALL);
    }
    CHECK(n >= 0);
    return (size_t)n;
}

/* Reads to the end, and finds each byte once. */
static size_t take_all(int fd, int way) {
    static unsigned char buffer[70000];
    size_t got = 0, n;
    while ((n = take(fd, way, buffer, sizeof buffer)) > 0)
        for (size_t i = 0; i < n; i++, got++)
            CHECK(buffer[i] == byte_at(got));
    return got;
}

/* More than there is room for: each attempt reads all of it, by whatever calls, and the commit takes it. */
static void all_again(void) {
    for (int kind = 0; kind < 3; kind++) {
        for (int way = 0; way < (kind == 2 ? 4 : 6); way++) {
            int s[2];
            make(s, kind);
            pid_t child = writer(s, SIZE);
            volatile int attempts = 0;
            CHECK(sys_xbegin(TX_RESTART) >= 0);
            CHECK(take_all(s[0], way) == SIZE);
            if (attempts++ < 2)
                ioctl(-1, LOSE);
            CHECK(sys_xend() == 0 && attempts == 3);
            char more;
            CHECK(read(s[0], &more, 1) == 0);
            ends_well(child);
            close(s[0]);
        }
    }
}

/* An attempt that loses in the middle, and one that goes further. */
static void in_the_middle(void) {
    for (int kind = 0; kind < 3; kind++) {
        int s[2];
        make(s, kind);
        pid_t child = writer(s, SIZE);
        volatile int attempts = 0;
        static unsigned char buffer[50000];
        CHECK(sys_xbegin(TX_RESTART) >= 0);
        attempts++;
        for (size_t got = 0; got < SIZE;) {
            size_t n = take(s[0], 0, buffer, sizeof buffer);
            for (size_t i = 0; i < n; i++, got++)
                CHECK(buffer[i] == byte_at(got));
            if (attempts < 4 && got > (size_t)attempts * 400000)
                ioctl(-1, LOSE);
        }
        CHECK(sys_xend() == 0 && attempts == 4);
        ends_well(child);
        close(s[0]);
    }
}

/* The attempt that commits reads less than one before: what is lost is told. */
static void less(void) {
    int s[2];
    make(s, 1);
    pid_t child = writer(s, SIZE);
    volatile int attempts = 0;
    static unsigned char buffer[1000];
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    if (attempts++ == 0) {
        CHECK(take_all(s[0], 0) == SIZE);
        ioctl(-1, LOSE);
    }
    CHECK(read(s[0], buffer, sizeof buffer) == sizeof buffer);
    CHECK(sys_xend() == 0 && attempts == 2);
    ends_well(child);
}

/* An abort that is the last one names what was taken. */
static void for_good(void) {
    int s[2];
    make(s, 1);
    pid_t child = writer(s, SIZE);
    CHECK(sys_xbegin(TX_RESTART) == 0);
    CHECK(take_all(s[0], 0) == SIZE);
    sys_xabort(1);
    CHECK(strstr(txos_strerror(), "2000000 bytes from a socket"));
    ends_well(child);
}

/* What is kept can't be moved by the kernel, and is not passed over. */
static void moved(void) {
    int s[2], p[2];
    make(s, 1);
    CHECK(pipe(p) == 0);
    pid_t child = writer(s, SIZE);
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    if (attempts++ == 0) {
        CHECK(take_all(s[0], 0) == SIZE);
        ioctl(-1, LOSE);
    }
    CHECK(splice(s[0], NULL, p[1], NULL, 100, 0) == -1 && errno == EINVAL);
    CHECK(take_all(s[0], 0) == SIZE);
    CHECK(sys_xend() == 0 && attempts == 2);
    ends_well(child);
}

/* Something was sent there: what came before it is no longer given to another attempt, and there is none. */
static void conversation(void) {
    int s[2], status;
    make(s, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(80);
        static char all[SIZE];
        char line[8];
        close(s[0]);
        for (size_t sent = 0; sent < SIZE;) {
            ssize_t n = write(s[1], all + sent, SIZE - sent);
            CHECK(n > 0);
            sent += (size_t)n;
        }
        CHECK(read(s[1], line, 5) == 5 && write(s[1], "yes", 3) == 3);
        _exit(0);
    }
    close(s[1]);
    static char buffer[1 << 16];
    CHECK(sys_xbegin(TX_RESTART) == 0);
    for (size_t got = 0; got < SIZE;)
        got += take(s[0], 0, (void *)buffer, sizeof buffer < SIZE - got ? sizeof buffer : SIZE - got);
    CHECK(write(s[0], "okay?", 5) == 5);
    CHECK(read(s[0], buffer, 3) == 3 && memcmp(buffer, "yes", 3) == 0);
    ioctl(-1, LOSE);
    CHECK(sys_xend() == -1 && errno == ECANCELED);
    CHECK(strstr(txos_strerror(), "2000003 bytes from a socket") || strstr(txos_strerror(), "2000000 bytes from a socket"));
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* A counter that no abort puts back. */
static int *counter(void) {
    int *number = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(number != MAP_FAILED);
    return number;
}

/* A terminal, as the standard input. The master's end. */
static int terminal(void) {
    char name[100];
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    CHECK(ptsname_r(master, name, sizeof name) == 0);
    int slave = open(name, O_RDWR | O_NOCTTY);
    CHECK(slave >= 0 && dup2(slave, 0) == 0 && close(slave) == 0);
    return master;
}

/* What was typed is read again by the next attempt, and what comes after it as well: by streams of the C library, whose memory is put
 * back. */
static void typed(void) {
    int master = terminal();
    static char line[100], more[100];
    CHECK(write(master, "first\nsecond\n", 13) == 13);
    int *attempts = counter();
    CHECK(sys_xbegin(TX_RESTART | TX_CHECKPOINT) >= 0);
    CHECK(fgets(line, sizeof line, stdin) && strcmp(line, "first\n") == 0);
    CHECK(fgets(more, sizeof more, stdin) && strcmp(more, "second\n") == 0);
    if ((*attempts)++ < 2)
        ioctl(-1, LOSE);
    CHECK(sys_xend() == 0 && *attempts == 3);
    CHECK(strcmp(line, "first\n") == 0 && strcmp(more, "second\n") == 0);
    struct pollfd one = {0, POLLIN, 0};
    CHECK(poll(&one, 1, 0) == 0);
    CHECK(write(master, "third\n", 6) == 6 && fgets(line, sizeof line, stdin) && strcmp(line, "third\n") == 0);
}

/* The same by calls, of a program that asks for it; what was typed since comes after that. */
static void typed_by_calls(void) {
    int master = terminal(), waiting;
    char line[100];
    volatile int attempts = 0;
    struct pollfd one = {0, POLLIN, 0};
    CHECK(write(master, "first\n", 6) == 6);
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
    CHECK(ioctl(0, FIONREAD, &waiting) == 0 && waiting == 6);
    CHECK(read(0, line, 3) == 3 && memcmp(line, "fir", 3) == 0);
    CHECK(read(0, line, sizeof line) == 3 && memcmp(line, "st\n", 3) == 0);
    CHECK(poll(&one, 1, 0) == 0);
    if (attempts++ < 2)
        ioctl(-1, LOSE);
    CHECK(write(master, "second\n", 7) == 7);
    CHECK(read(0, line, sizeof line) == 7 && memcmp(line, "second\n", 7) == 0);
    CHECK(sys_xend() == 0 && attempts == 3);
}

/* Each attempt reads line by line, and finds the end where it was. */
static void line_by_line(void) {
    int master = terminal();
    char line[100];
    volatile int attempts = 0;
    CHECK(write(master, "first\nsecond\n\004third\n", 20) == 20);
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    CHECK(read(0, line, sizeof line) == 6 && memcmp(line, "first\n", 6) == 0);
    CHECK(read(0, line, sizeof line) == 7 && memcmp(line, "second\n", 7) == 0);
    CHECK(read(0, line, sizeof line) == 0);
    CHECK(read(0, line, sizeof line) == 6 && memcmp(line, "third\n", 6) == 0);
    if (attempts++ < 2)
        ioctl(-1, LOSE);
    CHECK(sys_xend() == 0 && attempts == 3);
}

/* The socket is read by a number that is closed then: what was looked at by that is taken by the commit, and given back by an abort. */
static void by_a_number_that_is_closed(void) {
    for (int aborts = 0; aborts < 2; aborts++) {
        int s[2], other[2];
        char text[100];
        make(s, 0), make(other, 0);
        CHECK(write(s[1], "header body", 11) == 11 && write(other[1], "another", 7) == 7);
        CHECK(sys_xbegin(0) == 0);
        int number = dup(s[0]);
        CHECK(read(number, text, 7) == 7 && memcmp(text, "header ", 7) == 0);
        CHECK(close(number) == 0 && dup(other[0]) == number);
        if (aborts) {
            CHECK(read(s[0], text, 2) == 2 && memcmp(text, "bo", 2) == 0);
            sys_xabort(1);
        } else {
            CHECK(sys_xend() == 0);
        }
        ssize_t n = recv(s[0], text, sizeof text, MSG_DONTWAIT);
        CHECK(aborts ? n == 11 && memcmp(text, "header body", 11) == 0 : n == 4 && memcmp(text, "body", 4) == 0);
        CHECK(recv(other[0], text, sizeof text, MSG_DONTWAIT) == 7);
    }
}

/* A pipe is read by another open file of it, in both attempts. */
static void by_two_open_files(void) {
    int p[2];
    make(p, 2);
    pid_t child = writer(p, SIZE);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", p[0]);
    static unsigned char buffer[SIZE];
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    int other = open(path, O_RDONLY);
    CHECK(other >= 0);
    size_t got = 0;
    for (int turn = 0; got < SIZE; turn++)
        got += take(turn % 2 ? other : p[0], 0, buffer + got, SIZE - got);
    for (size_t i = 0; i < SIZE; i++)
        CHECK(buffer[i] == byte_at(i));
    if (attempts++ == 0)
        ioctl(-1, LOSE);
    CHECK(sys_xend() == 0 && attempts == 2);
    ends_well(child);
}

/* Calls that wait for all, where a part is kept and the rest has not come yet. */
static void the_rest_as_well(void) {
    int s[2];
    make(s, 1);
    pid_t child = writer(s, SIZE);
    static unsigned char buffer[SIZE];
    struct iovec parts[2] = {{buffer, 700000}, {buffer + 700000, SIZE - 700000}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    if (attempts++ == 0) {
        for (size_t got = 0; got < SIZE / 2;)
            got += take(s[0], 0, buffer, SIZE / 2 - got);
        ioctl(-1, LOSE);
    }
    CHECK(recvmsg(s[0], &header, MSG_WAITALL) == SIZE);
    for (size_t i = 0; i < SIZE; i++)
        CHECK(buffer[i] == byte_at(i));
    CHECK(sys_xend() == 0 && attempts == 2);
    ends_well(child);
}

/* An epoll descriptor that told of it once tells of what is kept. */
static void told_once(void) {
    int s[2];
    make(s, 1);
    pid_t child = writer(s, SIZE);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 7};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, s[0], &event) == 0);
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    CHECK(epoll_wait(epoll, &event, 1, 20000) == 1 && event.data.u64 == 7);
    CHECK(take_all(s[0], 0) == SIZE);
    if (attempts++ == 0)
        ioctl(-1, LOSE);
    CHECK(sys_xend() == 0 && attempts == 2);
    ends_well(child);
}

/* After a prompt that is seen, what is typed is the answer to it: another attempt prompts again. */
static void prompted(void) {
    int master = terminal();
    char line[100];
    volatile int attempts = 0;
    CHECK(write(master, "answer\nagain\n", 13) == 13);
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    CHECK(write(2, "question? ", 10) == 10);
    CHECK(read(0, line, sizeof line) == (attempts == 0 ? 7 : 6));
    if (attempts++ == 0)
        ioctl(-1, LOSE);
    CHECK(memcmp(line, "again\n", 6) == 0 && sys_xend() == 0 && attempts == 2);
}

/* What was typed before a prompt is the transaction's, which does not begin again once the prompt is seen. */
static void prompted_late(void) {
    int master = terminal();
    char line[100];
    CHECK(write(master, "first\n", 6) == 6);
    CHECK(sys_xbegin(TX_RESTART) == 0);
    CHECK(read(0, line, sizeof line) == 6);
    CHECK(write(2, "question? ", 10) == 10);
    ioctl(-1, LOSE);
    CHECK(sys_xend() == -1 && errno == ECANCELED && strstr(txos_strerror(), "6 bytes from a terminal (descriptor 0)"));
}

/* A pipe as the standard input, by streams, without being asked for anything. */
static void filtered(void) {
    int p[2];
    CHECK(pipe(p) == 0 && dup2(p[0], 0) == 0 && close(p[0]) == 0);
    CHECK(write(p[1], "first\nsecond\nthird\n", 19) == 19);
    static char line[100];
    int *attempts = counter();
    CHECK(fgets(line, sizeof line, stdin) == line && strcmp(line, "first\n") == 0);
    CHECK(write(p[1], "fourth\n", 7) == 7 && close(p[1]) == 0);
    CHECK(sys_xbegin(TX_RESTART | TX_CHECKPOINT) >= 0);
    for (int i = 0; i < 3; i++)
        CHECK(fgets(line, sizeof line, stdin) == line);
    CHECK(strcmp(line, "fourth\n") == 0 && !fgets(line, sizeof line, stdin));
    if ((*attempts)++ < 2)
        ioctl(-1, LOSE);
    CHECK(sys_xend() == 0 && *attempts == 3);
}

/* The same with an abort that is the last one: all is there for what comes after it. */
static void filtered_for_good(void) {
    int p[2];
    CHECK(pipe(p) == 0 && dup2(p[0], 0) == 0 && close(p[0]) == 0);
    CHECK(write(p[1], "first\nsecond\n", 13) == 13 && close(p[1]) == 0);
    static char line[100];
    if (sys_xbegin(TX_CHECKPOINT) == 0) {
        CHECK(fgets(line, sizeof line, stdin) == line && strcmp(line, "first\n") == 0);
        sys_xabort(1);
        _exit(1);
    }
    CHECK(errno == ECANCELED);
    CHECK(fgets(line, sizeof line, stdin) == line && strcmp(line, "first\n") == 0);
    CHECK(fgets(line, sizeof line, stdin) == line && strcmp(line, "second\n") == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"all_again", all_again}, {"in_the_middle", in_the_middle}, {"less", less}, {"for_good", for_good}, {"moved", moved},
    {"conversation", conversation}, {"typed", typed}, {"line_by_line", line_by_line}, {"by_a_number_that_is_closed", by_a_number_that_is_closed},
    {"by_two_open_files", by_two_open_files}, {"the_rest_as_well", the_rest_as_well}, {"told_once", told_once}, {"typed_by_calls", typed_by_calls}, {"prompted", prompted}, {"prompted_late", prompted_late},
    {"filtered", filtered}, {"filtered_for_good", filtered_for_good},
};

int main(int argc, char **argv) {
    alarm(100);
    for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    }
    return 2;
}
