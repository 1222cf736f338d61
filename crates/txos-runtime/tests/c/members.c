/* Several threads in one transaction, one scenario for each argument. Each runs in a process and a directory of
 * its own, and exits with 0 if all is as txos.h says. */
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
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"

static struct txos_abort reason(void) {
    struct txos_abort a = {.size = sizeof a};
    CHECK(txos_abort_reason(&a) == 0);
    return a;
}

static struct txos_stats stats(void) {
    struct txos_stats s = {.size = sizeof s};
    CHECK(txos_stats(&s) == 0);
    return s;
}

static pthread_t start(void *(*run)(void *), void *argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, argument) == 0);
    return thread;
}

static void *finish(pthread_t thread) {
    void *answer;
    CHECK(pthread_join(thread, &answer) == 0);
    return answer;
}

/* --- They see and make the same changes --- */

static void *takes_part(void *argument) {
    CHECK(txos_in_transaction());
    CHECK(holds("made", "one "));
    put("made", "two ", O_APPEND);
    CHECK(unlink("old") == 0 && mkdir("dir", 0755) == 0);
    put("dir/in", "three", O_CREAT | O_EXCL);
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGUSR1));
    return argument;
}

static void together(int commits) {
    put("old", "x", O_CREAT);
    CHECK(sys_xbegin(TX_STRICT | TX_THREADS) == 0);
    put("made", "one ", O_CREAT | O_EXCL);
    int answer;
    CHECK(finish(start(takes_part, &answer)) == &answer);
    CHECK(holds("made", "one two ") && !is_there("old") && holds("dir/in", "three"));
    if (commits)
        CHECK(sys_xend() == 0);
    else
        sys_xabort(1);
    CHECK(!txos_in_transaction());
    if (commits)
        CHECK(holds("made", "one two ") && !is_there("old") && holds("dir/in", "three"));
    else
        CHECK(!is_there("made") && holds("old", "x") && !is_there("dir"));
    CHECK(stats().unsupported == 0);
}

static void committed(void) {
    together(1);
}

static void aborted(void) {
    together(0);
}

static void *makes_files(void *argument) {
    char name[64], other[64];
    long n = (long)argument;
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "f%ld-%d", n, i);
        snprintf(other, sizeof other, "g%ld-%d", n, i);
        put(name, name, O_CREAT | O_EXCL);
        CHECK(rename(name, other) == 0 && holds(other, name) && !is_there(name));
        if (i % 3 == 0)
            CHECK(unlink(other) == 0);
        put("log", ".", O_CREAT | O_APPEND);
    }
    return NULL;
}

static void many(void) {
    enum { N = 8 };
    for (int round = 0; round < 4; round++) {
        pthread_t thread[N];
        CHECK(sys_xbegin(TX_THREADS) == 0);
        for (long i = 0; i < N; i++)
            thread[i] = start(makes_files, (void *)(i + round % 2 * N));
        for (int i = 0; i < N; i++)
            finish(thread[i]);
        if (round % 2)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        struct stat s;
        CHECK(stat("log", &s) == (round == 0 ? -1 : 0));
        CHECK(round == 0 || s.st_size == N * 40 * ((round + 1) / 2));
        for (int i = 0; i < N * 2; i++) {
            char name[64];
            snprintf(name, sizeof name, "g%d-1", i);
            CHECK(is_there(name) == (round > 0 && i >= N));
        }
        /* For the next round. */
        for (int i = N; i < N * 2 && round == 1; i++)
            for (int j = 0; j < 40; j++) {
                char name[64];
                snprintf(name, sizeof name, "g%d-%d", i, j);
                CHECK(unlink(name) == 0 || j % 3 == 0);
            }
        if (round == 1) {
            put("g8-1", "", O_CREAT); /* only looked at */
            for (int i = 9; i < 16; i++) {
                char name[64];
                snprintf(name, sizeof name, "g%d-1", i);
                put(name, "", O_CREAT);
            }
        }
        if (round == 2)
            for (int i = 8; i < 16; i++) {
                char name[64];
                snprintf(name, sizeof name, "g%d-1", i);
                CHECK(unlink(name) == 0);
            }
    }
}

/* Begun and ended at once, with a thread each. */
static void *touches(void *argument) {
    put("same", "x", O_CREAT | O_APPEND);
    return argument;
}

static void again_and_again(void) {
    for (int i = 0; i < 100; i++) {
        CHECK(sys_xbegin(TX_THREADS) == 0);
        finish(start(touches, NULL));
        CHECK(sys_xend() == 0);
    }
    struct stat s;
    CHECK(stat("same", &s) == 0 && s.st_size == 100);
}

/* --- Waiting for each other --- */

struct ends {
    int in, out;
};

static void *reads(void *argument) {
    struct ends *ends = argument;
    char byte = 0;
    while (byte != 'z') {
        struct pollfd one = {.fd = ends->in, .events = POLLIN};
        CHECK(poll(&one, 1, -1) == 1 && one.revents & POLLIN);
        CHECK(read(ends->in, &byte, 1) == 1);
        usleep(5000); /* the other one is to wait */
        put("heard", (char[]){byte, 0}, O_CREAT | O_APPEND);
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends->out, &set);
        CHECK(select(ends->out + 1, NULL, &set, NULL, NULL) == 1 && FD_ISSET(ends->out, &set));
        CHECK(write(ends->out, &byte, 1) == 1);
    }
    return NULL;
}

/* `low`: there is a number that the kernel has open and the program has closed. */
static void talks(int low) {
    int spare = open("/dev/null", O_RDONLY), there[2], back[2];
    CHECK(sys_xbegin(TX_THREADS) == 0);
    if (low)
        CHECK(close(spare) == 0);
    CHECK(pipe(there) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, back) == 0);
    CHECK(!low || there[0] == spare);
    struct ends ends = {there[0], back[1]};
    pthread_t thread = start(reads, &ends);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, back[0], &event) == 0);
    for (char byte = 'a'; byte <= 'z'; byte++) {
        char answer;
        CHECK(write(there[1], &byte, 1) == 1);
        if (byte % 2) {
            CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
        } else {
            fd_set set;
            FD_ZERO(&set);
            FD_SET(back[0], &set);
            CHECK(select(back[0] + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(back[0], &set));
        }
        CHECK(read(back[0], &answer, 1) == 1 && answer == byte);
    }
    finish(thread);
    struct timeval none = {0, 20000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(back[0], &set);
    CHECK(select(back[0] + 1, &set, NULL, NULL, &none) == 0);
    struct pollfd one = {.fd = back[0], .events = POLLIN};
    CHECK(poll(&one, 1, 20) == 0);
    CHECK(ppoll(&one, 1, &(struct timespec){0, 1000000}, NULL) == 0);
    CHECK(sys_xend() == 0 && holds("heard", "abcdefghijklmnopqrstuvwxyz"));
}

static void pipes(void) {
    talks(0);
}

static void pipes_with_other_numbers(void) {
    talks(1);
}

static void *opens(void *argument) {
    int fd = open(argument, O_WRONLY);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
    return NULL;
}

/* Opening a FIFO waits for its other end; the member that opens that is not held up. */
static void fifos(void) {
    CHECK(mkfifo("old", 0644) == 0);
    CHECK(sys_xbegin(TX_THREADS) == 0 && mkfifo("new", 0644) == 0);
    const char *live = "/dev/shm/txos-test-members-fifo";
    CHECK(unlink(live) == 0 || errno == ENOENT);
    CHECK(mkfifo(live, 0644) == 0);
    const char *names[] = {"old", "new", live};
    for (int i = 0; i < 3; i++) {
        char byte;
        pthread_t thread = start(opens, (void *)names[i]);
        int fd = open(names[i], O_RDONLY);
        CHECK(fd >= 0 && read(fd, &byte, 1) == 1 && byte == 'x' && read(fd, &byte, 1) == 0);
        struct stat s;
        CHECK(fstat(fd, &s) == 0 && S_ISFIFO(s.st_mode) && close(fd) == 0);
        finish(thread);
        CHECK(open(names[i], O_WRONLY | O_NONBLOCK) == -1 && errno == ENXIO);
    }
    CHECK(unlink(live) == 0 && sys_xend() == 0 && is_there("new"));
}

static void *connects(void *argument) {
    struct sockaddr_un *name = argument;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (void *)name, sizeof *name) == 0);
    CHECK(send(fd, "hello", 5, 0) == 5);
    char answer[8];
    CHECK(recv(fd, answer, sizeof answer, 0) == 2 && memcmp(answer, "ok", 2) == 0);
    return NULL;
}

/* A server binds, sets the mode and listens in one transaction with the client that checks it. */
static void sockets(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket"};
    CHECK(sys_xbegin(TX_THREADS) == 0);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(server, (void *)&name, sizeof name) == 0);
    CHECK(chmod("socket", 0600) == 0 && listen(server, 1) == 0);
    pthread_t thread = start(connects, &name);
    int fd = accept(server, NULL, NULL);
    char said[8];
    CHECK(fd > server && recv(fd, said, sizeof said, 0) == 5 && send(fd, "ok", 2, 0) == 2);
    finish(thread);
    CHECK(sys_xend() == 0);
    struct stat s;
    CHECK(stat("socket", &s) == 0 && (s.st_mode & 07777) == 0600 && S_ISSOCK(s.st_mode));
}

static void *locks(void *argument) {
    int fd = open("locked", O_RDWR);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0); /* waits */
    *(volatile int *)argument += 1;
    CHECK(*(volatile int *)argument == 2 && flock(fd, LOCK_UN) == 0);
    return NULL;
}

static void file_locks(void) {
    volatile int done = 0;
    put("locked", "x", O_CREAT);
    CHECK(sys_xbegin(TX_THREADS) == 0);
    int fd = open("locked", O_RDWR);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
    pthread_t thread = start(locks, (void *)&done);
    put("made", "x", O_CREAT);
    CHECK(done == 0);
    done = 1;
    CHECK(flock(fd, LOCK_UN) == 0);
    finish(thread);
    CHECK(done == 2 && sys_xend() == 0);
}

/* --- Aborts --- */

static void *aborts(void *argument) {
    put("by member", "x", O_CREAT);
    sys_xabort(argument != NULL);
    CHECK(!txos_in_transaction() && !is_there("by member"));
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGUSR1));
    CHECK(reason().reason == TXOS_ASKED);
    put("outside", "x", O_CREAT | O_APPEND);
    return NULL;
}

static void abort_by_member(void) {
    CHECK(sys_xbegin(TX_THREADS) == 0);
    put("by beginner", "x", O_CREAT);
    finish(start(aborts, "no restart"));
    CHECK(open("by beginner", O_RDONLY) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ECANCELED && reason().reason == TXOS_ASKED);
    CHECK(!is_there("by beginner") && !is_there("by member") && holds("outside", "x"));
}

static void *loses(void *argument) {
    CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
    CHECK(access(".", F_OK) == -1 && errno == ECANCELED);
    CHECK(reason().reason == TXOS_CONFLICT);
    if (argument)
        CHECK(sys_xend() == -1 && errno == ECANCELED && access(".", F_OK) == 0);
    return argument;
}

static void begins_again(void) {
    volatile int times = 0;
    int attempt = sys_xbegin(TX_RESTART | TX_THREADS);
    CHECK(attempt == times);
    put("made", "x", O_CREAT | O_APPEND);
    switch (times++) {
    case 0:
        finish(start(loses, NULL));
        access(".", F_OK);
        _exit(2); /* it has begun again */
    case 1:
        finish(start(loses, (void *)"leaves"));
        sys_xend();
        _exit(3);
    case 2:
        finish(start(aborts, NULL));
        sys_xend();
        _exit(4);
    case 3:
        CHECK(ioctl(-1, LOSE) == -1);
        _exit(5);
    }
    finish(start(touches, NULL));
    CHECK(sys_xend() == 0 && attempt == 4);
    CHECK(holds("made", "x") && holds("same", "x") && holds("outside", "x"));
}

static volatile int stop;

static void *waits_for_stop(void *argument) {
    while (!stop)
        usleep(1000);
    CHECK(access(".", F_OK) == -1 && errno == ECANCELED);
    return argument;
}

/* Another thread may be using what is on the stack: it begins again when that has left. */
static void not_beside_members(void) {
    volatile int times = 0;
    int attempt = sys_xbegin(TX_RESTART | TX_THREADS);
    CHECK(attempt == times);
    if (times++ == 0) {
        pthread_t thread = start(waits_for_stop, NULL);
        CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
        CHECK(access(".", F_OK) == -1 && errno == ECANCELED);
        stop = 1;
        finish(thread);
        sys_xend();
        _exit(2);
    }
    CHECK(sys_xend() == 0 && attempt == 1);
}

/* The same, without joining: the end waits. */
static void waits_to_begin_again(void) {
    volatile int times = 0;
    int attempt = sys_xbegin(TX_RESTART | TX_THREADS);
    CHECK(attempt == times);
    if (times++ == 0) {
        CHECK(pthread_detach(start(waits_for_stop, NULL)) == 0);
        CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
        stop = 1;
        sys_xend();
        _exit(2);
    }
    CHECK(sys_xend() == 0 && attempt == 1);
}

static volatile int alive;

static void *ends_late(void *argument) {
    alive = 1;
    pthread_barrier_wait(argument);
    usleep(50000);
    alive = 0;
    return argument;
}

/* The same for an abort that asks for it. */
static void abort_waits_to_begin_again(void) {
    static pthread_barrier_t started;
    volatile int times = 0;
    CHECK(pthread_barrier_init(&started, NULL, 2) == 0);
    int attempt = sys_xbegin(TX_RESTART | TX_THREADS);
    CHECK(attempt == times && !alive);
    if (times++ < 3) {
        CHECK(pthread_detach(start(ends_late, &started)) == 0);
        pthread_barrier_wait(&started);
        sys_xabort(0);
        _exit(2);
    }
    CHECK(sys_xend() == 0 && attempt == 3);
}

static int called_off;

static void *calls_off(void *argument) {
    CHECK(txos_abort_if(&called_off) == 0);
    return argument;
}

static void abort_if(void) {
    CHECK(sys_xbegin(TX_THREADS) == 0);
    finish(start(calls_off, NULL));
    CHECK(access(".", F_OK) == 0);
    called_off = 1;
    CHECK(access(".", F_OK) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && reason().reason == TXOS_ASKED);
}

/* --- Ends --- */

static pthread_barrier_t both;

static void *leaves(void *argument) {
    put("inside", "x", O_CREAT);
    CHECK(sys_xbegin(TX_THREADS) == 0 && sys_xend() == 0 && txos_in_transaction());
    CHECK(sys_xend() == 0 && !txos_in_transaction());
    CHECK(!is_there("inside"));
    put("outside", "x", O_CREAT);
    CHECK(sys_xend() == -1 && errno == EINVAL);
    /* It can have its own. */
    CHECK(sys_xbegin(TX_THREADS) == 0);
    put("own", "x", O_CREAT);
    CHECK(sys_xend() == 0);
    return argument;
}

static void member_leaves(void) {
    CHECK(sys_xbegin(TX_THREADS) == 0);
    finish(start(leaves, NULL));
    CHECK(holds("inside", "x"));
    sys_xabort(1);
    CHECK(!is_there("inside") && holds("outside", "x") && holds("own", "x"));
}

static void *slow(void *argument) {
    pthread_barrier_wait(&both);
    for (int i = 0; i < 50; i++) {
        usleep(1000);
        put("slowly", ".", O_CREAT | O_APPEND);
    }
    return argument;
}

static void end_waits(void) {
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0 && sys_xbegin(TX_THREADS) == 0);
    CHECK(pthread_detach(start(slow, NULL)) == 0);
    pthread_barrier_wait(&both);
    CHECK(sys_xend() == 0);
    struct stat s;
    CHECK(stat("slowly", &s) == 0 && s.st_size == 50);
}

static void *ends_in_some_way(void *argument) {
    put("made", "x", O_CREAT | O_APPEND);
    if (argument)
        pthread_exit(NULL);
    syscall(SYS_exit, 0);
    return NULL;
}

static void member_ends(void) {
    CHECK(sys_xbegin(TX_THREADS) == 0);
    finish(start(ends_in_some_way, "pthread_exit"));
    finish(start(ends_in_some_way, NULL));
    CHECK(sys_xend() == 0 && holds("made", "xx"));
}

static void *begins_and_ends(void *argument) {
    CHECK(sys_xbegin(TX_THREADS) == 0);
    put("made", "x", O_CREAT);
    CHECK(pthread_detach(start(waits_for_stop, NULL)) == 0);
    return argument;
}

static void beginner_ends(void) {
    finish(start(begins_and_ends, NULL));
    CHECK(!is_there("made"));
    stop = 1;
    usleep(50000);
    CHECK(sys_xbegin(TX_THREADS) == 0 && sys_xend() == 0);
}

static void *commits_alone(void *argument) {
    CHECK(pthread_join(*(pthread_t *)argument, NULL) == 0);
    CHECK(sys_xbegin(0) == 0);
    put("made", "x", O_CREAT);
    put("too", "x", O_CREAT);
    CHECK(sys_xend() == 0 && holds("made", "x") && holds("too", "x"));
    _exit(0);
}

/* What /proc/self tells of the process is gone with its first thread. */
static void main_ends_first(void) {
    static pthread_t first;
    first = pthread_self();
    start(commits_alone, &first);
    pthread_exit(NULL);
}

static int status_of(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

static void *exits(void *argument) {
    put("by member", "x", O_CREAT);
    exit(argument ? 7 : 0);
}

static void exit_by_member(void) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(sys_xbegin(TX_THREADS) == 0);
        put("by beginner", "x", O_CREAT);
        finish(start(exits, "7"));
    }
    int status = status_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(!is_there("by member") && !is_there("by beginner"));
}

static void *works(void *argument) {
    while (!stop)
        put("worked", ".", O_CREAT | O_APPEND);
    return argument;
}

/* A child is outside, also one of a member, and beside calls of others. */
static void *forks(void *argument) {
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            CHECK(!txos_in_transaction() && !is_there("made"));
            CHECK(sys_xbegin(TX_THREADS) == 0);
            put("by child", ".", O_CREAT | O_APPEND);
            CHECK(sys_xend() == 0);
            _exit(9);
        }
        CHECK(WEXITSTATUS(status_of(child)) == 9);
    }
    return argument;
}

static void fork_beside(void) {
    CHECK(sys_xbegin(TX_THREADS) == 0);
    put("made", "x", O_CREAT);
    pthread_t one = start(works, NULL), two = start(works, NULL);
    finish(start(forks, NULL));
    CHECK(WEXITSTATUS(system("exit 5")) == 5);
    stop = 1;
    finish(one);
    finish(two);
    CHECK(sys_xend() == 0);
    struct stat s;
    CHECK(stat("by child", &s) == 0 && s.st_size == 20 && is_there("worked"));
}

static void *never_ends(void *argument) {
    CHECK(write(*(int *)argument, "r", 1) == 1);
    for (;;)
        pause();
    return NULL;
}

/* A wait that takes too long can be ended from the keyboard; nothing is published. */
static void interrupted(void) {
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(sys_xbegin(TX_THREADS) == 0);
        put("made", "x", O_CREAT);
        start(never_ends, &ready[1]);
        sys_xend();
        _exit(1);
    }
    CHECK(read(ready[0], &byte, 1) == 1 && kill(child, SIGINT) == 0);
    int status = status_of(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT && !is_there("made"));
}

static int handled;

static void handler(int signal) {
    handled += signal == SIGUSR1 && !txos_in_transaction();
}

static void *sets_handler(void *argument) {
    struct sigaction action = {.sa_handler = argument ? handler : SIG_DFL};
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    CHECK(signal(SIGUSR1, handler) != SIG_ERR);
    CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0 && handled == 0); /* not yet */
    return NULL;
}

static void signals(void) {
    struct sigaction now;
    CHECK(sys_xbegin(TX_THREADS) == 0);
    finish(start(sets_handler, "handler"));
    CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == handler);
    sys_xabort(1);
    CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    CHECK(sys_xbegin(TX_THREADS) == 0);
    finish(start(sets_handler, "handler"));
    CHECK(sys_xend() == 0);
    CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == handler);
}

static void *pauses(void *argument) {
    long id = sys_xpause();
    CHECK(id > 0 && !txos_in_transaction() && !is_there("made"));
    put("outside", "x", O_CREAT);
    CHECK(sys_xresume(id) == 0 && holds("made", "x"));
    put("inside", "x", O_CREAT);
    return argument;
}

static void paused(void) {
    CHECK(sys_xbegin(TX_THREADS) == 0);
    put("made", "x", O_CREAT);
    finish(start(pauses, NULL));
    long id = sys_xpause();
    CHECK(id > 0 && !is_there("made") && sys_xresume(id) == 0 && holds("inside", "x"));
    CHECK(sys_xend() == 0 && holds("made", "x") && holds("inside", "x") && holds("outside", "x"));
}

/* --- Threads that run already --- */

static volatile int shown;
static volatile int joined;

static void *joins(void *argument) {
    pthread_barrier_wait(&both); /* the transaction is shown */
    CHECK(!txos_in_transaction() && !is_there("made"));
    CHECK(sys_xjoin(-1) == -1 && errno == EBADF);
    int other = open("/etc/passwd", O_RDONLY);
    CHECK(sys_xjoin(other) == -1 && errno == EINVAL && strstr(txos_strerror(), "txos_share"));
    CHECK(sys_xbegin(TX_THREADS) == 0 && sys_xjoin(shown) == -1 && errno == EBUSY && sys_xend() == 0);
    CHECK(sys_xjoin(shown) == 0 && txos_in_transaction());
    CHECK(holds("made", "x") && sys_xjoin(shown) == -1 && errno == EBUSY);
    put("joined", "x", O_CREAT);
    CHECK(sys_xend() == 0 && !is_there("joined"));
    joined = 1;
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both); /* it is over */
    CHECK(sys_xjoin(shown) == -1 && (errno == EINVAL || errno == EBADF));
    return argument;
}

static void share_and_join(void) {
    CHECK(txos_share() == -1 && errno == EINVAL);
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
    pthread_t thread = start(joins, NULL);
    CHECK(sys_xbegin(TX_THREADS) == 0);
    put("made", "x", O_CREAT);
    shown = txos_share();
    CHECK(shown >= 0 && fcntl(shown, F_GETFD) == FD_CLOEXEC);
    pid_t child = fork();
    if (child == 0)
        _exit(sys_xjoin(shown) == -1 && errno == ENOTSUP ? 9 : 1);
    CHECK(WEXITSTATUS(status_of(child)) == 9);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    CHECK(joined && holds("joined", "x") && sys_xend() == 0);
    CHECK(holds("made", "x") && holds("joined", "x"));
    pthread_barrier_wait(&both);
    finish(thread);
}

static void *joins_as_another(void *argument) {
    /* Past the C library, which would change all threads. */
    CHECK(syscall(SYS_setresuid, -1, 65534, -1) == 0);
    CHECK(sys_xjoin(shown) == -1 && errno == EPERM && strstr(txos_strerror(), "another user"));
    CHECK(!txos_in_transaction());
    return argument;
}

static void join_as_another(void) {
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
    CHECK(sys_xbegin(TX_MANAGED) == 0);
    shown = txos_share();
    CHECK(shown >= 0);
    finish(start(joins_as_another, NULL));
    CHECK(sys_xend() == 0 && close(shown) == 0 && stats().unsupported == 0);
}

static pthread_key_t late;

static void destructor(void *argument) {
    put(argument, "x", O_CREAT);
}

static void *has_destructor(void *argument) {
    access(".", F_OK);
    CHECK(pthread_setspecific(late, argument) == 0);
    return argument;
}

/* What a member's destructors do is part of the transaction. */
static void destructors(void) {
    CHECK(sys_xbegin(0) == 0 && sys_xend() == 0); /* the library's own comes first */
    CHECK(pthread_key_create(&late, destructor) == 0);
    CHECK(sys_xbegin(TX_THREADS) == 0);
    finish(start(has_destructor, "by destructor"));
    CHECK(is_there("by destructor"));
    sys_xabort(1);
    CHECK(!is_there("by destructor"));
}

/* The C library has all threads change their ids, and waits for each. */
static void set_ids(void) {
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0 && sys_xbegin(TX_THREADS) == 0);
    pthread_t thread = start(slow, NULL);
    pthread_barrier_wait(&both);
    CHECK(setuid(getuid()) == 0);
    finish(thread);
    CHECK(sys_xend() == 0);
}

static void *joins_with_own_tables(void *argument) {
    CHECK(unshare(argument ? CLONE_FILES : CLONE_FS) == 0);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    CHECK(sys_xjoin(shown) == -1 && (errno == EPERM || errno == EBADF) && !txos_in_transaction());
    return argument;
}

static void join_with_own_tables(void) {
    for (int files = 0; files < 2; files++) {
        CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
        pthread_t thread = start(joins_with_own_tables, files ? "files" : NULL);
        pthread_barrier_wait(&both);
        CHECK(sys_xbegin(0) == 0);
        shown = txos_share();
        CHECK(shown >= 0);
        pthread_barrier_wait(&both);
        finish(thread);
        CHECK(sys_xend() == 0 && close(shown) == 0);
    }
}

static void *stays_outside(void *argument) {
    return txos_in_transaction() ? NULL : argument;
}

static void managed(void) {
    CHECK(sys_xbegin(TX_MANAGED) == 0);
    CHECK(finish(start(stays_outside, "outside")) != NULL);
    CHECK(sys_xend() == 0 && stats().unsupported == 1);
    /* In one that has failed there is no new member, and nobody outside either. */
    pthread_t thread;
    CHECK(sys_xbegin(TX_THREADS) == 0 && ioctl(-1, LOSE) == -1);
    CHECK(pthread_create(&thread, NULL, stays_outside, NULL) == ECANCELED);
    CHECK(sys_xend() == -1);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
#define SCENARIO(name) {#name, name}
    SCENARIO(committed),
    SCENARIO(aborted),
    SCENARIO(many),
    SCENARIO(again_and_again),
    SCENARIO(pipes),
    SCENARIO(pipes_with_other_numbers),
    SCENARIO(fifos),
    SCENARIO(sockets),
    SCENARIO(file_locks),
    SCENARIO(abort_by_member),
    SCENARIO(begins_again),
    SCENARIO(not_beside_members),
    SCENARIO(waits_to_begin_again),
    SCENARIO(abort_waits_to_begin_again),
    SCENARIO(abort_if),
    SCENARIO(destructors),
    SCENARIO(set_ids),
    SCENARIO(join_with_own_tables),
    SCENARIO(member_leaves),
    SCENARIO(end_waits),
    SCENARIO(member_ends),
    SCENARIO(beginner_ends),
    SCENARIO(main_ends_first),
    SCENARIO(exit_by_member),
    SCENARIO(fork_beside),
    SCENARIO(interrupted),
    SCENARIO(signals),
    SCENARIO(paused),
    SCENARIO(share_and_join),
    SCENARIO(join_as_another),
    SCENARIO(managed),
};

RUN_ONE_OF(scenarios)
