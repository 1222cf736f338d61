/* Processes in a program's own transaction, one scenario for each argument. Each runs in a process and a directory of
 * its own, and exits with 0 if all is as txos.h says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"

extern char **environ;

static struct txos_abort reason(void) {
    struct txos_abort a = {.size = sizeof a};
    CHECK(txos_abort_reason(&a) == 0);
    return a;
}

static void said(int to) {
    CHECK(write(to, "x", 1) == 1);
}

/* Whether the other side said so; 0: all who could have are gone. */
static int heard(int from) {
    char byte;
    ssize_t n = read(from, &byte, 1);
    CHECK(n >= 0);
    return n == 1;
}

/* Is the process, which need not be a child, gone? */
static int is_gone(pid_t process) {
    char path[64], line[256] = {0};
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return 1;
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    return n <= 0 || strstr(line, ") Z") != NULL;
}

/* --- They see and make the same changes --- */

static void together(int commits) {
    put("old", "x", O_CREAT);
    CHECK(sys_xbegin(TX_STRICT | TX_PROCESSES) == 0);
    put("made", "one ", O_CREAT | O_EXCL);
    int shared = open("shared", O_RDWR | O_CREAT, 0600);
    CHECK(shared >= 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(txos_in_transaction() && holds("made", "one "));
        put("made", "two ", O_APPEND);
        CHECK(unlink("old") == 0 && mkdir("dir", 0755) == 0 && chdir("dir") == 0);
        put("in", "three", O_CREAT | O_EXCL);
        CHECK(write(shared, "child ", 6) == 6);
        _exit(7);
    }
    CHECK(end_of(child) == 7);
    CHECK(holds("made", "one two ") && !is_there("old") && holds("dir/in", "three"));
    CHECK(write(shared, "parent", 6) == 6 && lseek(shared, 0, SEEK_CUR) == 12);
    if (commits)
        CHECK(sys_xend() == 0);
    else
        sys_xabort(1);
    CHECK(!txos_in_transaction());
    if (commits) {
        CHECK(holds("made", "one two ") && !is_there("old") && holds("dir/in", "three"));
        CHECK(lseek(shared, 0, SEEK_CUR) == 12 && holds("shared", "child parent"));
        CHECK(write(shared, "!", 1) == 1 && holds("shared", "child parent!"));
    } else {
        CHECK(!is_there("made") && holds("old", "x") && !is_there("dir") && !is_there("shared"));
        CHECK(fcntl(shared, F_GETFD) == -1);
    }
    CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
}

static void committed(void) {
    together(1);
    /* There is another one after it. */
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    pid_t child = fork();
    if (child == 0) {
        put("second", "", O_CREAT);
        _exit(0);
    }
    CHECK(end_of(child) == 0 && sys_xend() == 0 && is_there("second"));
}

static void aborted(void) {
    together(0);
}

static int by_clone(void *argument) {
    put(argument, "clone", O_CREAT | O_EXCL);
    return 3;
}

/* However a process is made. */
static void kinds(void) {
    static char stack[256 << 10];
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    pid_t child = syscall(SYS_fork);
    if (child == 0) {
        put("by-fork", "", O_CREAT);
        syscall(SYS_exit_group, 1);
    }
    CHECK(end_of(child) == 1 && is_there("by-fork"));
    child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        put("by-raw-clone", "", O_CREAT);
        syscall(SYS_exit_group, 2);
    }
    CHECK(end_of(child) == 2 && is_there("by-raw-clone"));
    child = clone(by_clone, stack + sizeof stack, SIGCHLD, "by-clone");
    CHECK(end_of(child) == 3 && holds("by-clone", "clone"));
    child = clone(by_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, "by-vm");
    CHECK(end_of(child) == 3 && holds("by-vm", "clone"));
    child = vfork();
    if (child == 0) {
        put("by-vfork", "", O_CREAT);
        _exit(4);
    }
    CHECK(end_of(child) == 4 && is_there("by-vfork"));
    CHECK(sys_xend() == 0);
    CHECK(is_there("by-fork") && is_there("by-raw-clone") && is_there("by-clone") && is_there("by-vfork"));
}

/* --- Programs --- */

static void programs(void) {
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    put("a", "made before\n", O_CREAT);
    CHECK(system("cat a > b; echo more >> b; mkdir c; (sh -c 'echo deep > c/d')") == 0);
    CHECK(holds("b", "made before\nmore\n") && holds("c/d", "deep\n"));
    FILE *out = popen("sort -r b", "r");
    char line[64];
    CHECK(out && fgets(line, sizeof line, out) && strcmp(line, "more\n") == 0);
    CHECK(fgets(line, sizeof line, out) && !fgets(line, sizeof line, out) && pclose(out) == 0);
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_WRONLY | O_CREAT, 0644) == 0);
    char *const arguments[] = {"echo", "by spawn", NULL};
    pid_t child;
    CHECK(posix_spawnp(&child, "echo", &actions, NULL, arguments, environ) == 0);
    CHECK(end_of(child) == 0 && holds("spawned", "by spawn\n"));
    /* One that was made in the transaction. */
    put("script", "#!/bin/sh\necho $1 > by-script; exit 5\n", O_CREAT);
    CHECK(chmod("script", 0755) == 0);
    child = vfork();
    if (child == 0) {
        execl("./script", "script", "said", NULL);
        _exit(99);
    }
    CHECK(end_of(child) == 5 && holds("by-script", "said\n"));
    /* What isn't there fails as ever. */
    child = fork();
    if (child == 0) {
        execl("./nothing", "nothing", NULL);
        _exit(errno == ENOENT ? 6 : 98);
    }
    CHECK(end_of(child) == 6);
    CHECK(sys_xend() == 0);
    CHECK(holds("b", "made before\nmore\n") && holds("spawned", "by spawn\n") && holds("by-script", "said\n"));
}

/* Which numbers a child and the program that it runs have. */
static void descriptors(void) {
    put("before", "0123456789", O_CREAT);
    int before = open("before", O_RDONLY), closed = open("before", O_RDONLY);
    int pipes[2];
    char byte;
    CHECK(before >= 0 && closed >= 0 && pipe(pipes) == 0 && lseek(before, 2, SEEK_SET) == 2);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    CHECK(close(closed) == 0);
    int kept = open("made", O_RDWR | O_CREAT, 0644);
    CHECK(kept == closed);
    int gone = open("made", O_RDONLY | O_CLOEXEC);
    int copy = dup2(kept, 9);
    CHECK(gone >= 0 && copy == 9 && read(before, &byte, 1) == 1 && byte == '2');
    char script[256];
    snprintf(script, sizeof script,
             "head -c 1 <&%d > read; echo by number >&%d; echo more >&9; "
             "test ! -e /proc/self/fd/%d && echo x >&%d",
             before, kept, gone, pipes[1]);
    CHECK(system(script) == 0 && heard(pipes[0]));
    CHECK(holds("read", "3") && lseek(copy, 0, SEEK_CUR) == 15);
    CHECK(read(before, &byte, 1) == 1 && byte == '4');
    pid_t child = fork();
    if (child == 0) {
        CHECK(close(kept) == 0 && close(9) == 0 && open("other", O_CREAT | O_WRONLY, 0644) == kept);
        CHECK(lseek(before, 9, SEEK_SET) == 9);
        _exit(0);
    }
    CHECK(end_of(child) == 0 && write(kept, "!", 1) == 1);
    CHECK(read(before, &byte, 1) == 1 && byte == '9');
    CHECK(sys_xend() == 0);
    CHECK(holds("made", "by number\nmore\n!") && is_there("other"));
    CHECK(lseek(before, 0, SEEK_CUR) == 10 && lseek(9, 0, SEEK_CUR) == 16);
    CHECK((fcntl(gone, F_GETFD) & FD_CLOEXEC) && fcntl(kept, F_GETFD) == 0);
    int next = open("made", O_RDONLY);
    CHECK(next == gone + 1);
}

static void own_directory_and_mask(void) {
    char outside[64];
    struct stat s;
    snprintf(outside, sizeof outside, "/dev/shm/txos-processes-%d", getpid());
    umask(022);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    CHECK(mkdir("dir", 0755) == 0);
    pid_t child = fork();
    if (child == 0) {
        umask(0);
        CHECK(chdir("dir") == 0);
        CHECK(open("wide", O_CREAT | O_WRONLY, 0666) >= 0);
        CHECK(open(outside, O_CREAT | O_WRONLY, 0666) >= 0);
        _exit(0);
    }
    CHECK(end_of(child) == 0);
    CHECK(stat(outside, &s) == 0 && (s.st_mode & 0777) == 0666 && unlink(outside) == 0);
    CHECK(stat("dir/wide", &s) == 0 && (s.st_mode & 0777) == 0666);
    CHECK(open("narrow", O_CREAT | O_WRONLY, 0666) >= 0);
    CHECK(stat("narrow", &s) == 0 && (s.st_mode & 0777) == 0644);
    CHECK(sys_xend() == 0 && umask(0) == 022 && is_there("dir/wide"));
}

/* --- The end --- */

static void leaves(void) {
    int pipes[2];
    char byte;
    put("before", "0123456789", O_CREAT);
    int before = open("before", O_RDONLY);
    CHECK(pipe(pipes) == 0 && lseek(before, 2, SEEK_SET) == 2);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    put("first", "1", O_CREAT);
    CHECK(read(before, &byte, 1) == 1 && byte == '2');
    pid_t child = fork();
    if (child == 0) {
        put("second", "2", O_CREAT);
        int made = open("second", O_RDONLY);
        CHECK(made >= 0 && read(before, &byte, 1) == 1 && byte == '3');
        CHECK(sys_xbegin(0) == 0 && sys_xend() == 0 && txos_in_transaction());
        CHECK(txos_share() == -1 && errno == EPERM && sys_xpause() == -1 && errno == EPERM);
        CHECK(sys_xend() == 0 && !txos_in_transaction());
        /* It is outside now, with what it had before. */
        CHECK(!is_there("first") && !is_there("second"));
        CHECK(read(before, &byte, 1) == 1 && byte == '2');
        CHECK(fcntl(made, F_GETFD) == -1 && errno == EBADF);
        put("outside", "3", O_CREAT);
        CHECK(sys_xbegin(0) == 0);
        put("own", "4", O_CREAT);
        CHECK(sys_xend() == 0);
        said(pipes[1]);
        _exit(8);
    }
    CHECK(heard(pipes[0]) && holds("second", "2"));
    sys_xabort(1);
    CHECK(!is_there("first") && !is_there("second") && is_there("outside") && is_there("own"));
    /* It was not killed: it had left. */
    CHECK(end_of(child) == 8);
}

static void abort_by_child(void) {
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    put("first", "1", O_CREAT);
    pid_t child = fork();
    if (child == 0) {
        put("second", "2", O_CREAT);
        sys_xabort(0);
        _exit(0);
    }
    CHECK(end_of(child) == 256 + SIGKILL);
    CHECK(open("first", O_RDONLY) == -1 && errno == ECANCELED);
    CHECK(fork() == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ECANCELED && reason().reason == TXOS_ASKED);
    CHECK(!is_there("first") && !is_there("second"));
}

static void abort_kills(void) {
    int pipes[2];
    CHECK(pipe(pipes) == 0 && sys_xbegin(TX_PROCESSES) == 0);
    put("first", "1", O_CREAT);
    pid_t child = fork();
    if (child == 0) {
        pid_t own = fork();
        if (own == 0) {
            pid_t number = getpid();
            CHECK(write(pipes[1], &number, sizeof number) == sizeof number);
        }
        for (;;)
            pause();
    }
    pid_t grandchild;
    CHECK(read(pipes[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    sys_xabort(1);
    CHECK(is_gone(grandchild));
    CHECK(end_of(child) == 256 + SIGKILL && !is_there("first"));
}

/* Of each attempt that was lost nothing is left, processes included. */
static void begins_again(void) {
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    int attempt = sys_xbegin(TX_PROCESSES | TX_RESTART);
    CHECK(attempt >= 0 && attempt <= 2);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    put("first", "1", O_CREAT | O_EXCL);
    pid_t child = fork();
    if (child == 0) {
        put("second", "2", O_CREAT | O_EXCL);
        if (fork() == 0)
            _exit(0);
        if (attempt < 2)
            sys_xabort(0);
        _exit(9);
    }
    if (attempt == 2)
        CHECK(end_of(child) == 9);
    CHECK(sys_xend() == 0 && attempt == 2);
    CHECK(is_there("first") && is_there("second"));
}

static void conflict_of_child(void) {
    int asks[2], answers[2];
    put("file", "old", O_CREAT);
    CHECK(pipe(asks) == 0 && pipe(answers) == 0);
    pid_t outsider = fork();
    if (outsider == 0) {
        CHECK(heard(asks[0]));
        put("other", "new", O_CREAT);
        CHECK(rename("other", "file") == 0);
        said(answers[1]);
        _exit(0);
    }
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_PROCESSES | TX_RESTART) >= 0);
    attempts++;
    pid_t child = fork();
    if (child == 0) {
        CHECK(holds("file", attempts == 1 ? "old" : "new"));
        if (attempts == 1) {
            said(asks[1]);
            heard(answers[0]);
        }
        put("seen", "by child", O_CREAT);
        _exit(0);
    }
    CHECK(sys_xend() == 0 && attempts == 2);
    CHECK(end_of(child) == 0 && end_of(outsider) == 0 && holds("seen", "by child") && holds("file", "new"));
}

/* What a killed child has done stays part of the transaction, as what one that crashes has done natively. */
static void child_killed(void) {
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    pid_t child = fork();
    if (child == 0) {
        put("first", "1", O_CREAT);
        raise(SIGKILL);
    }
    CHECK(end_of(child) == 256 + SIGKILL && holds("first", "1"));
    CHECK(sys_xend() == 0 && is_there("first"));
}

/* Says what becomes of the children of a process in a transaction, and of what they did. */
static void without_beginner(void (*ends)(void)) {
    int pipes[2], alive[2];
    pid_t numbers[2];
    CHECK(pipe(pipes) == 0 && pipe(alive) == 0);
    pid_t beginner = fork();
    if (beginner == 0) {
        CHECK(close(alive[0]) == 0 && sys_xbegin(TX_PROCESSES) == 0);
        put("first", "1", O_CREAT);
        if (fork() == 0) {
            pid_t numbers[2] = {getpid(), fork()};
            if (numbers[1] == 0)
                for (;;)
                    is_there("first");
            CHECK(write(pipes[1], numbers, sizeof numbers) == sizeof numbers);
            for (;;)
                pause();
        }
        /* Until then they are not all there. */
        pid_t copy[2];
        CHECK(read(pipes[0], copy, sizeof copy) == sizeof copy);
        CHECK(write(pipes[1], copy, sizeof copy) == sizeof copy);
        ends();
        _exit(98);
    }
    CHECK(close(alive[1]) == 0);
    int end = end_of(beginner);
    CHECK(end == 0 || end == 256 + SIGKILL);
    CHECK(read(pipes[0], numbers, sizeof numbers) == sizeof numbers);
    /* Nobody else has the other end: it closes with the last of them, which has ended a little later. */
    CHECK(!heard(alive[0]));
    while (!is_gone(numbers[0]) || !is_gone(numbers[1]))
        sched_yield();
    CHECK(!is_there("first"));
}

static void dies(void) {
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;)
        pause();
}

static void beginner_killed(void) {
    without_beginner(dies);
}

static void exits(void) {
    exit(0);
}

static void beginner_exits(void) {
    without_beginner(exits);
}

static void runs(void) {
    execlp("true", "true", NULL);
}

static void beginner_runs_a_program(void) {
    without_beginner(runs);
}

static void end_waits(void) {
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    pid_t child = fork();
    if (child == 0) {
        usleep(2500000);
        put("late", "1", O_CREAT);
        _exit(0);
    }
    CHECK(sys_xend() == 0 && is_there("late") && end_of(child) == 0);
}

/* --- Beside threads --- */

static void *forks(void *argument) {
    for (int turn = 0; turn < 20; turn++) {
        char name[32];
        snprintf(name, sizeof name, "%s%d", (char *)argument, turn);
        pid_t child = fork();
        if (child == 0) {
            put(name, "", O_CREAT);
            free(malloc(100));
            _exit(0);
        }
        CHECK(end_of(child) == 0 && is_there(name));
    }
    return NULL;
}

static void *busy(void *argument) {
    for (int turn = 0; !__atomic_load_n((int *)argument, __ATOMIC_RELAXED); turn++) {
        char *volatile memory = malloc(turn % 5000);
        free(memory);
    }
    return NULL;
}

static void beside_threads(void) {
    int stop = 0;
    pthread_t thread, outside, member;
    CHECK(pthread_create(&thread, NULL, busy, &stop) == 0);
    CHECK(sys_xbegin(TX_PROCESSES | TX_THREADS) == 0);
    CHECK(pthread_create(&member, NULL, forks, "by-member") == 0);
    forks("by-beginner");
    CHECK(pthread_join(member, NULL) == 0);
    sys_xabort(1);
    CHECK(!is_there("by-beginner3") && !is_there("by-member3"));
    /* One that is no member makes processes as ever. */
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    CHECK(pthread_create(&outside, NULL, forks, "outside") == 0);
    forks("inside");
    CHECK(pthread_join(outside, NULL) == 0);
    sys_xabort(1);
    CHECK(!is_there("inside0") && is_there("outside0") && is_there("outside19"));
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void many(void) {
    enum { CHILDREN = 12, LINES = 20 };
    put("log", "", O_CREAT);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    for (int child = 0; child < CHILDREN; child++)
        if (fork() == 0) {
            int log = open("log", O_WRONLY | O_APPEND);
            for (int line = 0; line < LINES; line++)
                CHECK(write(log, "0123456789\n", 11) == 11);
            _exit(0);
        }
    for (int child = 0; child < CHILDREN; child++) {
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    }
    struct stat s;
    CHECK(stat("log", &s) == 0 && s.st_size == CHILDREN * LINES * 11);
    CHECK(sys_xend() == 0 && stat("log", &s) == 0 && s.st_size == CHILDREN * LINES * 11);
}

static void signals(void) {
    sigset_t mask;
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGTERM));
        put("waits", "", O_CREAT);
        for (;;)
            pause();
    }
    while (!is_there("waits"))
        sched_yield();
    /* It arrives at the child, and not after the end. */
    CHECK(kill(child, SIGTERM) == 0 && end_of(child) == 256 + SIGTERM);
    CHECK(sys_xend() == 0 && is_there("waits"));
}

static void refused(void) {
    CHECK(sys_xbegin(TX_PROCESSES | TX_CHECKPOINT) == -1 && errno == EINVAL);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK(end_of(child) == 0 && sys_xend() == 0);
    /* The thread that served it is not in the way. */
    int answer = sys_xbegin(TX_CHECKPOINT);
    CHECK(answer == 0 || errno == ENOTSUP);
    if (answer == 0)
        CHECK(sys_xend() == 0);
    /* Without the flag a child is outside. */
    CHECK(sys_xbegin(0) == 0);
    put("inside", "", O_CREAT);
    child = fork();
    if (child == 0)
        _exit(is_there("inside") || txos_in_transaction());
    CHECK(end_of(child) == 0 && sys_xend() == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
#define SCENARIO(name) {#name, name}
    SCENARIO(committed),
    SCENARIO(aborted),
    SCENARIO(kinds),
    SCENARIO(programs),
    SCENARIO(descriptors),
    SCENARIO(own_directory_and_mask),
    SCENARIO(leaves),
    SCENARIO(abort_by_child),
    SCENARIO(abort_kills),
    SCENARIO(begins_again),
    SCENARIO(conflict_of_child),
    SCENARIO(child_killed),
    SCENARIO(beginner_killed),
    SCENARIO(beginner_exits),
    SCENARIO(beginner_runs_a_program),
    SCENARIO(end_waits),
    SCENARIO(beside_threads),
    SCENARIO(many),
    SCENARIO(signals),
    SCENARIO(refused),
};

RUN_ONE_OF(scenarios)
