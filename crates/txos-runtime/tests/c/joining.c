/* Processes that run already join a program's own transaction, one scenario for each argument. Each runs in a process and a
 * directory of its own, and exits with 0 if all is as txos.h says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"

/* Waits until something is there, in the transaction. */
static void await(const char *path) {
    while (!is_there(path)) {
        CHECK(errno == ENOENT);
        sched_yield();
    }
}

static int reason(void) {
    struct txos_abort a = {.size = sizeof a};
    CHECK(txos_abort_reason(&a) == 0);
    return a.reason;
}

/* Between this process and the other, which runs already when the transaction begins: a byte, and a descriptor beside it. */
static int channel[2];

static void tell(int fd) {
    char byte = 'x', control[CMSG_SPACE(sizeof fd)] __attribute__((aligned(8))) = {0};
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = control;
        m.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    CHECK(sendmsg(channel[0], &m, 0) == 1);
}

/* What was told: a descriptor, or -1; -2: the other one is gone. */
static int hear(void) {
    char byte, control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(channel[1], &m, MSG_CMSG_CLOEXEC);
    CHECK(n >= 0);
    if (n == 0)
        return -2;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    int fd = -1;
    if (c)
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

/* Starts the other process: it gets descriptors by `hear`, and talks back by `tell`. */
static pid_t other(void (*work)(void)) {
    int there[2], back[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, there) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, back) == 0);
    pid_t process = fork();
    CHECK(process >= 0);
    int first = process == 0;
    channel[0] = first ? back[1] : there[0];
    channel[1] = first ? there[1] : back[0];
    close(first ? there[0] : there[1]);
    close(first ? back[0] : back[1]);
    if (first) {
        work();
        _exit(0);
    }
    return process;
}

/* Shows the transaction to the other process. What is outside happens outside. */
static void show(void) {
    int door = txos_share();
    CHECK(door >= 0 && fcntl(door, F_GETFD) == FD_CLOEXEC);
    long id = sys_xpause();
    CHECK(id >= 0);
    tell(door);
    CHECK(close(door) == 0 && sys_xresume(id) == 0);
}

static void outside(void (*work)(void)) {
    long id = sys_xpause();
    CHECK(id >= 0);
    work();
    CHECK(sys_xresume(id) == 0);
}

static void wait_for_word(void) { CHECK(hear() == -1); }
static void give_word(void) { tell(-1); }

/* --- Committed -------------------------------------------------------------------------------- */

static void joins(void) {
    int old = open("old", O_RDWR), log = open("log", O_WRONLY | O_APPEND), dir = open("below", O_RDONLY | O_DIRECTORY);
    CHECK(old >= 0 && log >= 0 && dir >= 0);
    umask(027);
    CHECK(chdir("below") == 0);
    int door = hear();
    CHECK(door >= 0 && sys_xjoin(door) == 0 && txos_in_transaction() && close(door) == 0);
    CHECK(sys_xjoin(door) == -1 && errno == EBUSY);
    CHECK(txos_share() == -1 && errno == EPERM && sys_xpause() == -1 && errno == EPERM);
    /* Its own working directory, mask and descriptors are the transaction's. */
    char cwd[4096];
    CHECK(getcwd(cwd, sizeof cwd) && strcmp(strrchr(cwd, '/'), "/below") == 0);
    CHECK(holds("../made", "by who began") && holds("inner", ""));
    put("new", "new", O_CREAT);
    struct stat s;
    CHECK(stat("new", &s) == 0 && (s.st_mode & 0777) == 0640);
    CHECK(pwrite(old, "Y", 1, 0) == 1 && lseek(old, 2, SEEK_SET) == 2 && write(log, "line\n", 5) == 5);
    CHECK(fstatat(dir, "new", &s, 0) == 0 && mkdirat(dir, "dir", 0777) == 0);
    int kept = open("new", O_RDONLY);
    CHECK(kept >= 0 && dup2(old, 77) == 77 && holds("../old", "Yld"));
    CHECK(sys_xend() == 0 && !txos_in_transaction());
    /* Outside again: nothing of the transaction is there before it is committed. */
    CHECK(!is_there("../made") && !is_there("new") && holds("../old", "old") && holds("../log", ""));
    CHECK(fcntl(kept, F_GETFD) == -1 && fcntl(77, F_GETFD) == -1 && fcntl(old, F_GETFD) == 0);
    CHECK(getcwd(cwd, sizeof cwd) && strcmp(strrchr(cwd, '/'), "/below") == 0 && umask(0) == 027);
    give_word();
    wait_for_word();
    CHECK(holds("../made", "by who began") && holds("new", "new") && is_there("dir") && holds("../old", "Yld"));
    CHECK(lseek(old, 0, SEEK_CUR) == 2 && holds("../log", "line\n"));
    /* It can join another one. */
    door = hear();
    CHECK(sys_xjoin(door) == 0 && close(door) == 0);
    put("../second", "", O_CREAT);
    CHECK(sys_xend() == 0);
    give_word();
}

static void committed(void) {
    put("old", "old", O_CREAT);
    put("log", "", O_CREAT);
    CHECK(mkdir("below", 0777) == 0);
    pid_t process = other(joins);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    put("made", "by who began", O_CREAT);
    put("below/inner", "", O_CREAT);
    show();
    outside(wait_for_word);
    CHECK(holds("old", "Yld") && holds("below/new", "new") && holds("log", "line\n"));
    CHECK(sys_xend() == 0);
    tell(-1);
    CHECK(sys_xbegin(TX_PROCESSES | TX_THREADS) == 0);
    show();
    outside(wait_for_word);
    CHECK(is_there("second") && sys_xend() == 0 && is_there("second") && end_of(process) == 0);
}

/* --- Aborted ---------------------------------------------------------------------------------- */

static void is_told(void) {
    CHECK(mkdir("own", 0755) == 0 && chdir("own") == 0 && umask(022) == 022);
    int old = open("../old", O_RDWR), door = hear();
    CHECK(sys_xjoin(door) == 0);
    put("../made", "", O_CREAT);
    CHECK(write(old, "new", 3) == 3 && holds("../old", "new") && chdir("..") == 0 && umask(077) == 022);
    int made = open("made", O_RDWR);
    CHECK(made >= 0);
    give_word();
    while (is_there("made"))
        sched_yield();
    CHECK(errno == ECANCELED && open("old", O_RDONLY) == -1 && errno == ECANCELED && fork() == -1 && errno == ECANCELED);
    CHECK(write(old, "x", 1) == -1 && errno == ECANCELED && close(made) == 0 && txos_in_transaction());
    CHECK(sys_xend() == -1 && errno == ECANCELED && !txos_in_transaction() && reason() == TXOS_ASKED);
    CHECK(strstr(txos_strerror(), "joined was aborted"));
    CHECK(!is_there("../made") && holds("../old", "old") && lseek(old, 0, SEEK_CUR) == 0 && umask(0) == 022);
    CHECK(fcntl(made, F_GETFD) == -1 && sys_xjoin(door) == -1 && errno == EINVAL);
    /* On with transactions of its own. */
    CHECK(sys_xbegin(0) == 0);
    put("after", "", O_CREAT);
    CHECK(sys_xend() == 0 && is_there("after"));
}

static void aborted(void) {
    put("old", "old", O_CREAT);
    pid_t process = other(is_told);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    show();
    outside(wait_for_word);
    CHECK(is_there("made"));
    sys_xabort(1);
    CHECK(!txos_in_transaction() && !is_there("made") && end_of(process) == 0 && is_there("own/after"));
}

static void gives_up(void) {
    CHECK(sys_xjoin(hear()) == 0);
    put("made", "", O_CREAT);
    sys_xabort(1);
    CHECK(!txos_in_transaction() && !is_there("made") && !is_there("before") && reason() == TXOS_ASKED);
    put("outside", "", O_CREAT);
}

static void abort_by_other(void) {
    pid_t process = other(gives_up);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    put("before", "", O_CREAT);
    show();
    while (is_there("before"))
        sched_yield();
    CHECK(errno == ECANCELED && sys_xend() == -1 && errno == ECANCELED && reason() == TXOS_ASKED);
    CHECK(!is_there("before") && !is_there("made") && end_of(process) == 0 && is_there("outside"));
}

static void joins_twice(void) {
    CHECK(sys_xjoin(hear()) == 0);
    put("first", "", O_CREAT);
    give_word();
    while (is_there("first"))
        sched_yield();
    CHECK(sys_xend() == -1 && reason() == TXOS_CONFLICT);
    CHECK(sys_xjoin(hear()) == 0 && !is_there("first"));
    put("next", "", O_CREAT);
    CHECK(sys_xend() == 0);
}

/* A conflict: who began begins again, and the other joins again. */
static void begins_again(void) {
    pid_t process = other(joins_twice);
    int attempt = sys_xbegin(TX_PROCESSES | TX_RESTART);
    CHECK(attempt >= 0);
    show();
    if (attempt == 0) {
        outside(wait_for_word);
        syscall(16, -1, LOSE, 0);
    } else {
        await("next");
    }
    CHECK(sys_xend() == 0 && attempt > 0 && end_of(process) == 0);
    CHECK(is_there("next") && !is_there("first"));
}

/* --- Ends ------------------------------------------------------------------------------------- */

static void stays(void) {
    CHECK(sys_xjoin(hear()) == 0);
    put("made", "", O_CREAT);
    give_word();
    for (;;)
        pause();
}

static void other_killed(void) {
    pid_t process = other(stays);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    show();
    outside(wait_for_word);
    long id = sys_xpause();
    CHECK(id >= 0 && kill(process, SIGKILL) == 0 && end_of(process) == 256 + SIGKILL && sys_xresume(id) == 0);
    CHECK(is_there("made") && sys_xend() == 0 && is_there("made"));
}

static void *joins_and_ends(void *door) {
    CHECK(sys_xjoin(*(int *)door) == 0);
    put("made", "", O_CREAT);
    return NULL;
}

static void thread_of_it(void) {
    int door = hear();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, joins_and_ends, &door) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(!is_there("made") && sys_xjoin(door) == 0 && is_there("made"));
    put("again", "", O_CREAT);
    CHECK(sys_xend() == 0);
}

/* A thread that ends has left. */
static void ends_inside(void) {
    pid_t process = other(thread_of_it);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    show();
    await("again");
    CHECK(sys_xend() == 0 && is_there("made") && end_of(process) == 0);
}

static void outlives(void) {
    CHECK(sys_xjoin(hear()) == 0);
    put("made", "", O_CREAT);
    give_word();
    while (is_there("made"))
        sched_yield();
    CHECK(errno == ECANCELED && sys_xend() == -1 && reason() == TXOS_EXITED && !is_there("made"));
    give_word();
}

static void beginner_killed(void) {
    int there[2];
    CHECK(pipe(there) == 0);
    pid_t began = fork();
    if (began == 0) {
        pid_t process = other(outlives);
        (void)process;
        CHECK(sys_xbegin(TX_PROCESSES) == 0);
        show();
        outside(wait_for_word);
        raise(SIGKILL);
    }
    close(there[1]);
    CHECK(end_of(began) == 256 + SIGKILL);
    char byte;
    /* The other one has its end as long as it runs. */
    CHECK(read(there[0], &byte, 1) == 0 && !is_there("made"));
}

static void runs_programs(void) {
    int door = hear();
    CHECK(sys_xjoin(door) == 0);
    CHECK(system("test -e before && echo child > made && mkdir dir") == 0 && holds("made", "child\n"));
    execl("/bin/sh", "sh", "-c", "echo program >> made && test -d dir && mkdir end", NULL);
    CHECK(0);
}

static void programs(void) {
    pid_t process = other(runs_programs);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    put("before", "", O_CREAT);
    show();
    await("end");
    CHECK(sys_xend() == 0 && holds("made", "child\nprogram\n") && is_there("dir") && end_of(process) == 0);
}

static void *joins_here(void *door) {
    CHECK(sys_xjoin(*(int *)door) == 0 && is_there("before"));
    put("by thread", "", O_CREAT);
    CHECK(sys_xend() == 0);
    return NULL;
}

/* Threads of the process that began join by the same descriptor. */
static void thread_of_who_began(void) {
    pthread_t thread;
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    put("before", "", O_CREAT);
    int door = txos_share();
    CHECK(door >= 0 && sys_xend() == 0);
    CHECK(sys_xjoin(door) == -1 && errno == EINVAL && close(door) == 0);
    CHECK(sys_xbegin(TX_PROCESSES) == 0 && (door = txos_share()) >= 0);
    long id = sys_xpause();
    CHECK(id >= 0 && pthread_create(&thread, NULL, joins_here, &door) == 0 && sys_xresume(id) == 0);
    await("by thread");
    CHECK(sys_xend() == 0 && pthread_join(thread, NULL) == 0 && is_there("by thread") && close(door) == 0);
}

/* --- Refused ---------------------------------------------------------------------------------- */

static void is_refused(void) {
    int pair[2], door = hear();
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    CHECK(sys_xjoin(pair[0]) == -1 && errno == EINVAL && sys_xjoin(-1) == -1 && errno == EBADF);
    char byte;
    CHECK(recv(pair[1], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    /* What only looks like one: nothing is sent there. */
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int size = 1 + snprintf(name.sun_path + 1, 64, "txos transaction %d 0000000000000007", getppid());
    CHECK(bind(pair[1], (struct sockaddr *)&name, offsetof(struct sockaddr_un, sun_path) + size) == 0);
    CHECK(sys_xjoin(pair[0]) == -1 && errno == EPERM && recv(pair[1], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    CHECK(mkdir("other", 0755) == 0);
    if (geteuid() == 0) {
        pid_t child = fork();
        if (child == 0) {
            CHECK(setuid(65534) == 0 && sys_xjoin(door) == -1 && errno == EPERM && strstr(txos_strerror(), "another user"));
            _exit(0);
        }
        CHECK(end_of(child) == 0);
        child = fork();
        if (child == 0) {
            CHECK(chroot("other") == 0 && sys_xjoin(door) == -1 && errno == EPERM && !txos_in_transaction());
            _exit(0);
        }
        CHECK(end_of(child) == 0);
        child = fork();
        if (child == 0) {
            CHECK(unshare(CLONE_NEWNS) == 0 && sys_xjoin(door) == -1 && errno == EPERM);
            _exit(0);
        }
        CHECK(end_of(child) == 0);
    }
    /* Removed in the transaction, it is still there outside. */
    CHECK(chdir("removed") == 0 && sys_xjoin(door) == -1 && errno == ENOENT && strstr(txos_strerror(), "working directory"));
    CHECK(chdir("..") == 0 && sys_xjoin(door) == 0);
    CHECK(sys_xend() == 0 && sys_xjoin(door) == 0 && sys_xend() == 0);
    give_word();
    /* Of a transaction that is over, and of one that has no place for processes. */
    int lone = hear();
    CHECK(sys_xjoin(door) == -1 && errno == EINVAL && strstr(txos_strerror(), "over"));
    CHECK(sys_xjoin(lone) == -1 && errno == ENOTSUP && strstr(txos_strerror(), "TX_PROCESSES"));
    give_word();
}

static void refused(void) {
    CHECK(mkdir("removed", 0755) == 0);
    pid_t process = other(is_refused);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    CHECK(rmdir("removed") == 0);
    show();
    outside(wait_for_word);
    CHECK(sys_xend() == 0 && !is_there("removed"));
    CHECK(sys_xbegin(TX_THREADS) == 0);
    show();
    outside(wait_for_word);
    CHECK(sys_xend() == 0 && end_of(process) == 0);
}

static pthread_barrier_t barrier;

static void *tries(void *door) {
    pthread_barrier_wait(&barrier);
    /* It is outside: it neither sees what the other thread has made, nor can it join meanwhile. */
    CHECK(!txos_in_transaction() && !is_there("made"));
    CHECK(sys_xjoin(*(int *)door) == -1 && errno == EBUSY && strstr(txos_strerror(), "another thread"));
    put("outside", "", O_CREAT);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void has_threads(void) {
    int door = hear();
    pthread_t thread;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, tries, &door) == 0 && sys_xjoin(door) == 0);
    put("made", "", O_CREAT);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    put("last", "", O_CREAT);
    CHECK(sys_xend() == 0 && pthread_join(thread, NULL) == 0);
}

static void beside_threads(void) {
    pid_t process = other(has_threads);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    show();
    await("last");
    CHECK(sys_xend() == 0 && is_there("made") && is_there("last") && is_there("outside") && end_of(process) == 0);
}

/* --- Numbers ---------------------------------------------------------------------------------- */

static void *does_nothing(void *inside) {
    CHECK(txos_in_transaction() && is_there("made"));
    return inside;
}

static void goes_on_writing(void) {
    int old = open("old", O_RDWR), twin = dup(old), door = hear();
    CHECK(old >= 0 && twin >= 0 && sys_xjoin(door) == 0);
    pthread_t thread;
    put("made", "", O_CREAT);
    CHECK(pthread_create(&thread, NULL, does_nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    give_word();
    while (!is_there("go")) {
        CHECK(errno == ENOENT);
        sched_yield();
    }
    /* One open file. */
    CHECK(write(old, "a", 1) == 1 && write(twin, "b", 1) == 1 && lseek(old, 0, SEEK_CUR) == 2);
    pid_t child = fork();
    if (child == 0) {
        CHECK(write(old, "c", 1) == 1 && sys_xend() == 0 && !is_there("made"));
        /* It has what it had before. */
        CHECK(lseek(old, 0, SEEK_CUR) == 0 && fcntl(twin, F_GETFD) == 0);
        _exit(0);
    }
    CHECK(end_of(child) == 0 && sys_xend() == 0);
}

/* Does a high number lead there? */
static int leads_to_old(void) {
    struct stat old, s;
    CHECK(stat("old", &old) == 0);
    for (int fd = 64; fd < 70000; fd++)
        if (fstat(fd, &s) == 0 && s.st_ino == old.st_ino && s.st_dev == old.st_dev)
            return 1;
    return 0;
}

/* What is kept for others is no number of the process that began. */
static void numbers(void) {
    put("old", "xyz", O_CREAT);
    pid_t process = other(goes_on_writing);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    show();
    outside(wait_for_word);
    CHECK(syscall(SYS_close_range, 64, ~0U, 0) == 0);
    CHECK(!leads_to_old());
    pid_t child = fork();
    if (child == 0)
        _exit(leads_to_old());
    CHECK(end_of(child) == 0);
    put("go", "", O_CREAT);
    CHECK(sys_xend() == 0 && holds("old", "abc") && end_of(process) == 0);
}

static void *takes_the_number(void *number) {
    int fd = *(int *)number, ends[2];
    pthread_barrier_wait(&barrier);
    CHECK(pipe(ends) == 0 && close(fd) == 0 && dup2(ends[0], fd) == fd);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void has_a_thread(void) {
    int old = open("old", O_RDWR), door = hear();
    pthread_t thread;
    CHECK(old >= 0 && pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, takes_the_number, &old) == 0 && sys_xjoin(door) == 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK(sys_xend() == 0 && pthread_join(thread, NULL) == 0);
    struct stat s;
    CHECK(fstat(old, &s) == 0 && S_ISFIFO(s.st_mode));
    give_word();
}

/* What another thread has at a number by now stays there. */
static void taken_number(void) {
    put("old", "xyz", O_CREAT);
    pid_t process = other(has_a_thread);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    show();
    outside(wait_for_word);
    CHECK(sys_xend() == 0 && end_of(process) == 0 && holds("old", "xyz"));
}

static void sleeps(void) {
    int old = open("old", O_RDWR);
    CHECK(old >= 0 && sys_xjoin(hear()) == 0);
    give_word();
    while (is_there("old"))
        sched_yield();
    CHECK(errno == ECANCELED && close(old) == 0);
    for (;;)
        sleep(100);
}

/* After the abort a signal reaches it as ever. */
static void signals_after_abort(void) {
    put("old", "", O_CREAT);
    pid_t process = other(sleeps);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    show();
    outside(wait_for_word);
    sys_xabort(1);
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/syscall", process);
    do {
        int fd = open(path, O_RDONLY);
        ssize_t n = read(fd, line, sizeof line - 1);
        line[n > 0 ? n : 0] = 0;
        CHECK(fd >= 0 && close(fd) == 0);
    } while (atoi(line) != SYS_clock_nanosleep);
    CHECK(kill(process, SIGTERM) == 0 && end_of(process) == 256 + SIGTERM);
}

/* --- Many ------------------------------------------------------------------------------------- */

#define PROCESSES 6
#define LINES 60

static void appends(void) {
    int log = open("log", O_WRONLY | O_APPEND);
    CHECK(log >= 0 && sys_xjoin(hear()) == 0);
    for (int line = 0; line < LINES; line++)
        CHECK(write(log, "0123456789\n", 11) == 11);
    CHECK(sys_xend() == 0);
}

static void many(void) {
    put("log", "", O_CREAT);
    int to[PROCESSES];
    pid_t processes[PROCESSES];
    for (int n = 0; n < PROCESSES; n++) {
        processes[n] = other(appends);
        to[n] = channel[0];
    }
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    int door = txos_share();
    long id = sys_xpause();
    for (int n = 0; n < PROCESSES; n++) {
        channel[0] = to[n];
        tell(door);
    }
    CHECK(close(door) == 0 && sys_xresume(id) == 0);
    struct stat s;
    while (stat("log", &s) == 0 && s.st_size < PROCESSES * LINES * 11)
        sched_yield();
    CHECK(sys_xend() == 0 && stat("log", &s) == 0 && s.st_size == PROCESSES * LINES * 11);
    for (int n = 0; n < PROCESSES; n++)
        CHECK(end_of(processes[n]) == 0);
}

/* --- The race of a socket --------------------------------------------------------------------- */

/* A server makes its socket, and then gives it the mode that keeps others out. (Operating systems should provide
 * transactions, 3.2.) */
static void serves(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    for (int door; (door = hear()) >= 0;) {
        CHECK(sys_xjoin(door) == 0 && close(door) == 0);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        unlink("socket");
        CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
        CHECK(chmod("socket", 0700) == 0 && listen(fd, 1) == 0 && sys_xend() == 0 && close(fd) == 0);
        give_word();
    }
}

static void socket_race(void) {
    pid_t process = other(serves);
    umask(0);
    for (int round = 0; round < 20; round++) {
        CHECK(sys_xbegin(TX_PROCESSES) == 0);
        show();
        outside(wait_for_word);
        /* The client checks in the same transaction what it is about to use. */
        struct stat s;
        CHECK(lstat("socket", &s) == 0 && S_ISSOCK(s.st_mode) && (s.st_mode & 0777) == 0700);
        CHECK(sys_xend() == 0);
        CHECK(lstat("socket", &s) == 0 && S_ISSOCK(s.st_mode) && (s.st_mode & 0777) == 0700);
    }
    close(channel[0]);
    CHECK(end_of(process) == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
#define SCENARIO(name) {#name, name}
    SCENARIO(committed),    SCENARIO(aborted),         SCENARIO(abort_by_other), SCENARIO(begins_again),
    SCENARIO(other_killed), SCENARIO(ends_inside),     SCENARIO(beginner_killed), SCENARIO(programs),
    SCENARIO(refused),      SCENARIO(many),            SCENARIO(socket_race),
    SCENARIO(beside_threads),
    SCENARIO(numbers),
    SCENARIO(taken_number),
    SCENARIO(signals_after_abort),
    SCENARIO(thread_of_who_began),
};

RUN_ONE_OF(scenarios)
