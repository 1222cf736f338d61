/* What a transaction of a thread receives from sockets: taken by the commit, given back by an abort. One scenario for each
 * argument; each exits with 0 if all is as the documentation says. */
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
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "tcp.h"

static void make_pair(int s[2], int type) {
    CHECK(socketpair(AF_UNIX, type, 0, s) == 0);
}

/* Whether these bytes are what a socket has, and nothing else. */
static int has(int fd, const char *expected) {
    char text[256] = "";
    ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    if (n < 0)
        n = 0;
    text[n] = 0;
    return strcmp(text, expected) == 0;
}

/* Begun again, it reads the same. */
static void restart(void) {
    int s[2];
    make_tcp(s);
    CHECK(send(s[1], "request", 7, 0) == 7);
    volatile int attempts = 0;
    char text[16];
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    CHECK(read(s[0], text, sizeof text) == 7 && memcmp(text, "request", 7) == 0);
    if (attempts++ < 2)
        ioctl(-1, LOSE);
    CHECK(sys_xend() == 0 && attempts == 3);
    CHECK(has(s[0], ""));
}

/* An answer is not given back: something was sent before it. What was received before that is taken with it. */
static void conversation(void) {
    for (int held = 0; held < 2; held++) {
        int s[2];
        make_pair(s, SOCK_STREAM);
        CHECK(send(s[1], "greeting", 8, 0) == 8);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(50);
            char line[16];
            close(s[0]);
            _exit(recv(s[1], line, sizeof line, 0) == 5 && send(s[1], "answer", 6, 0) == 6 ? 0 : 1);
        }
        char text[16];
        CHECK(sys_xbegin(0) == 0);
        CHECK(recv(s[0], text, 8, 0) == 8);
        CHECK(send(s[0], "query", 5, 0) == 5);
        CHECK(recv(s[0], text, sizeof text, 0) == 6 && memcmp(text, "answer", 6) == 0);
        sys_xabort(1);
        CHECK(has(s[0], ""));
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        close(s[0]), close(s[1]);
    }
}

/* Somebody else takes what it has read: it does not commit. */
static void stolen(void) {
    int s[2];
    make_pair(s, SOCK_DGRAM);
    CHECK(send(s[1], "once", 4, 0) == 4 && send(s[1], "twice", 5, 0) == 5);
    char text[16];
    CHECK(sys_xbegin(0) == 0);
    CHECK(recv(s[0], text, sizeof text, 0) == 4);
    pid_t child = fork();
    if (child == 0)
        _exit(has(s[0], "once") ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(sys_xend() == -1 && errno == ECANCELED);
    CHECK(has(s[0], "twice") && has(s[0], ""));
}

/* Who sends more than there is room for is not kept waiting. */
static void full(void) {
    for (int kind = 0; kind < 2; kind++) {
        int s[2];
        kind ? make_tcp(s) : make_pair(s, SOCK_STREAM);
        enum { SIZE = 20000000 };
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(50);
            close(s[0]);
            char *all = calloc(1, SIZE);
            size_t sent = 0;
            while (sent < SIZE) {
                ssize_t n = write(s[1], all + sent, SIZE - sent);
                if (n <= 0)
                    _exit(1);
                sent += (size_t)n;
            }
            _exit(0);
        }
        close(s[1]);
        static char buffer[1 << 16];
        size_t received = 0;
        ssize_t n;
        CHECK(sys_xbegin(0) == 0);
        struct pollfd one = {s[0], POLLIN, 0};
        while (poll(&one, 1, -1) == 1 && (n = read(s[0], buffer, sizeof buffer)) > 0)
            received += (size_t)n;
        CHECK(received == SIZE);
        CHECK(sys_xend() == 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        close(s[0]);
    }
}

/* The same with small messages of a Unix socket, whose room is the sender's. */
static void small(void) {
    int s[2];
    make_pair(s, SOCK_STREAM);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(50);
        close(s[0]);
        for (int i = 0; i < 3000; i++)
            if (write(s[1], "x", 1) != 1)
                _exit(1);
        _exit(0);
    }
    close(s[1]);
    int received = 0;
    char byte;
    CHECK(sys_xbegin(0) == 0);
    while (read(s[0], &byte, 1) == 1)
        received++;
    CHECK(received == 3000 && sys_xend() == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Under TX_STRICT it is aborted instead, and all is given back. */
static void strict(void) {
    int s[2], room = 4096;
    make_pair(s, SOCK_STREAM);
    CHECK(setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    static char buffer[8192];
    CHECK(send(s[1], buffer, 8000, 0) == 8000);
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(recv(s[0], buffer, sizeof buffer, 0) == 8000);
    CHECK(recv(s[0], buffer, sizeof buffer, 0) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1);
    CHECK(recv(s[0], buffer, sizeof buffer, 0) == 8000);
}

/* A socket that is closed in the transaction is closed by the commit as if all had been taken: TCP tells no error. */
static void closed(void) {
    int s[2];
    make_tcp(s);
    char text[16];
    CHECK(send(s[1], "last", 4, 0) == 4);
    CHECK(sys_xbegin(0) == 0);
    CHECK(recv(s[0], text, sizeof text, 0) == 4);
    CHECK(close(s[0]) == 0 && sys_xend() == 0);
    CHECK(recv(s[1], text, sizeof text, 0) == 0);
}

/* The end of a stream, and what comes while the transaction runs. */
static void ended(void) {
    for (int kind = 0; kind < 2; kind++) {
        int s[2];
        kind ? make_tcp(s) : make_pair(s, SOCK_STREAM);
        CHECK(send(s[1], "first", 5, 0) == 5);
        char text[16];
        CHECK(sys_xbegin(0) == 0);
        CHECK(recv(s[0], text, sizeof text, 0) == 5);
        pid_t child = fork();
        if (child == 0) {
            /* The other waits by then, or does not: both are right. */
            close(s[0]);
            _exit(send(s[1], "second", 6, 0) == 6 && shutdown(s[1], SHUT_WR) == 0 ? 0 : 1);
        }
        struct pollfd one = {s[0], POLLIN, 0};
        CHECK(poll(&one, 1, 40000) == 1 && one.revents & POLLIN);
        CHECK(recv(s[0], text, sizeof text, 0) == 6 && memcmp(text, "second", 6) == 0);
        CHECK(recv(s[0], text, sizeof text, 0) == 0 && recv(s[0], text, sizeof text, 0) == 0);
        CHECK(poll(&one, 1, -1) == 1 && one.revents & POLLIN);
        sys_xabort(1);
        CHECK(recv(s[0], text, 11, MSG_WAITALL) == 11 && memcmp(text, "firstsecond", 11) == 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

/* Killed: all is there for who else has the socket. */
static void killed(void) {
    int s[2];
    make_tcp(s);
    CHECK(send(s[1], "request", 7, 0) == 7);
    pid_t child = fork();
    if (child == 0) {
        char text[16];
        CHECK(sys_xbegin(0) == 0);
        CHECK(recv(s[0], text, sizeof text, 0) == 7);
        raise(SIGKILL);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(has(s[0], "request"));
}

/* What a killed process has left set makes the next one's transactions receive at once, until that is taken back. */
static void left_behind(void) {
    for (int taken_back = 0; taken_back < 2; taken_back++) {
        int s[2], none = -1;
        char text[16];
        make_pair(s, SOCK_STREAM);
        CHECK(send(s[1], "request", 7, 0) == 7);
        pid_t child = fork();
        if (child == 0) {
            CHECK(sys_xbegin(0) == 0);
            CHECK(recv(s[0], text, sizeof text, 0) == 7);
            raise(SIGKILL);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        if (taken_back)
            CHECK(setsockopt(s[0], SOL_SOCKET, SO_PEEK_OFF, &none, sizeof none) == 0);
        CHECK(sys_xbegin(0) == 0);
        CHECK(recv(s[0], text, sizeof text, 0) == 7);
        sys_xabort(1);
        CHECK(has(s[0], taken_back ? "request" : ""));
    }
}

/* Two transactions at one socket: the second one receives at once, and the first one has lost. */
static void shared(void) {
    int s[2];
    make_pair(s, SOCK_DGRAM);
    CHECK(send(s[1], "once", 4, 0) == 4 && send(s[1], "twice", 5, 0) == 5);
    char text[16];
    CHECK(sys_xbegin(0) == 0);
    CHECK(recv(s[0], text, sizeof text, 0) == 4);
    pid_t child = fork();
    if (child == 0) {
        CHECK(sys_xbegin(0) == 0);
        CHECK(recv(s[0], text, sizeof text, 0) == 4 && memcmp(text, "once", 4) == 0);
        sys_xabort(1);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(sys_xend() == -1 && errno == ECANCELED);
    CHECK(has(s[0], "twice") && has(s[0], ""));
}

/* Two numbers of one socket. */
static void twice(void) {
    int s[2];
    make_pair(s, SOCK_STREAM);
    int copy = dup(s[0]);
    char text[16];
    CHECK(send(s[1], "onetwo", 6, 0) == 6);
    CHECK(sys_xbegin(0) == 0);
    CHECK(read(s[0], text, 3) == 3 && read(copy, text + 3, 3) == 3 && memcmp(text, "onetwo", 6) == 0);
    struct pollfd one = {copy, POLLIN, 0};
    CHECK(poll(&one, 1, 0) == 0);
    sys_xabort(1);
    CHECK(has(copy, "onetwo"));
}

/* A connection that is accepted in the transaction ends with it. */
static void accepted(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&at, len) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&at, &len) == 0 && connect(client, (void *)&at, len) == 0);
    CHECK(send(client, "request", 7, 0) == 7);
    char text[16];
    CHECK(sys_xbegin(0) == 0);
    int server = accept(listener, NULL, NULL);
    CHECK(server >= 0 && recv(server, text, sizeof text, 0) == 7);
    sys_xabort(1);
    CHECK(recv(client, text, sizeof text, 0) <= 0);
    CHECK(fcntl(server, F_GETFD) == -1 && errno == EBADF);
}

/* Live: an abort does not give it back. */
static void live(void) {
    for (int way = 0; way < 4; way++) {
        int s[2], two = 2, none = 0, ends[2];
        char text[16];
        make_pair(s, SOCK_STREAM);
        CHECK(pipe(ends) == 0 && send(s[1], "gone", 4, 0) == 4);
        if (way == 0)
            CHECK(setsockopt(s[0], SOL_SOCKET, SO_RCVLOWAT, &two, sizeof two) == 0);
        if (way == 1)
            CHECK(setsockopt(s[0], SOL_SOCKET, SO_PEEK_OFF, &none, sizeof none) == 0);
        CHECK(sys_xbegin(way == 2 ? TX_THREADS : 0) == 0);
        if (way == 3) {
            /* What was received before is taken along. */
            CHECK(recv(s[0], text, 1, 0) == 1 && splice(s[0], NULL, ends[1], NULL, 3, 0) == 3);
        } else {
            CHECK(recv(s[0], text, sizeof text, 0) == 4);
        }
        sys_xabort(1);
        CHECK(has(s[0], ""));
    }
}

/* Paused code sees what nobody has taken; what it takes, the transaction has not. */
static void paused(void) {
    int s[2];
    make_pair(s, SOCK_DGRAM);
    char text[16];
    CHECK(send(s[1], "request", 7, 0) == 7);
    CHECK(sys_xbegin(0) == 0 && recv(s[0], text, sizeof text, 0) == 7);
    long id = sys_xpause();
    CHECK(id > 0 && has(s[0], "request"));
    CHECK(sys_xresume(id) == 0 && sys_xend() == -1 && errno == ECANCELED);
    CHECK(has(s[0], ""));
}

/* A byte of the stream is urgent when it is looked past, and like any other, or not, when the rest is taken. */
static void urgent(void) {
    for (int way = 0; way < 8; way++) {
        int s[2], commits = way & 1, moves = way & 2, waits = way & 4, left = -1;
        char text[16] = "";
        make_tcp(s);
        if (waits)
            CHECK(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){5, 0}, sizeof(struct timeval)) == 0);
        CHECK(send(s[1], "AB", 2, 0) == 2 && send(s[1], "!", 1, MSG_OOB) == 1 && send(s[1], "CD", 2, 0) == 2);
        struct pollfd one = {s[0], POLLPRI, 0};
        CHECK(poll(&one, 1, 5000) == 1);
        CHECK(sys_xbegin(0) == 0);
        CHECK(recv(s[0], text, 8, 0) == 2 && memcmp(text, "AB", 2) == 0);
        one.events = POLLIN;
        CHECK(poll(&one, 1, 5000) == 1 && one.revents == POLLIN);
        CHECK(recv(s[0], text, 1, 0) == 1 && text[0] == 'C');
        CHECK(ioctl(s[0], FIONREAD, &left) == 0 && left == 1);
        CHECK(recv(s[0], text, 8, 0) == 1 && text[0] == 'D');
        CHECK(recv(s[0], text, 8, MSG_DONTWAIT) == -1 && errno == EAGAIN && poll(&one, 1, 0) == 0);
        if (moves) {
            CHECK(send(s[1], "EF", 2, 0) == 2 && send(s[1], "?", 1, MSG_OOB) == 1);
            CHECK(recv(s[0], text, 8, 0) == 2 && memcmp(text, "EF", 2) == 0);
        }
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        CHECK(send(s[1], "GH", 2, 0) == 2 && shutdown(s[1], SHUT_WR) == 0);
        memset(text, 0, sizeof text);
        for (ssize_t n, had = 0; (n = recv(s[0], text + had, sizeof text - 1 - (size_t)had, 0)) > 0;)
            had += n;
        CHECK(strcmp(text, commits ? "GH" : moves ? "AB!CDEFGH" : "ABCDGH") == 0);
        close(s[0]), close(s[1]);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"restart", restart}, {"conversation", conversation}, {"stolen", stolen}, {"full", full}, {"small", small},
    {"strict", strict}, {"closed", closed}, {"ended", ended}, {"killed", killed}, {"twice", twice}, {"left", left_behind}, {"shared", shared},
    {"accepted", accepted}, {"live", live}, {"paused", paused}, {"urgent", urgent},
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
