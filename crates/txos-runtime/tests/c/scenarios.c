/* What a program may do around and within a transaction, one scenario for each argument. Each runs
 * in a process of its own and exits with 0 if all is as txos.h says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static struct txos_stats stats(void) {
    struct txos_stats s = {.size = sizeof s};
    CHECK(txos_stats(&s) == 0);
    return s;
}

static struct txos_abort reason(void) {
    struct txos_abort a = {.size = sizeof a};
    CHECK(txos_abort_reason(&a) == 0);
    return a;
}

static void spin(int ms) {
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += ms * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

static void basics(void) {
    CHECK(!txos_in_transaction());
    CHECK(sys_xend() == -1 && errno == EINVAL);
    sys_xabort(1);
    CHECK(sys_xbegin(0) == 0);
    CHECK(txos_in_transaction());
    CHECK(sys_xend() == 0);
    CHECK(!txos_in_transaction());
    struct txos_stats s = stats();
    CHECK(s.version == 1 && s.begun == 1 && s.committed == 1 && s.aborted == 0);
    CHECK(reason().reason == TXOS_NOT_ABORTED);
    CHECK(sys_xbegin(0) == 0);
    sys_xabort(0);
    CHECK(!txos_in_transaction());
    CHECK(reason().reason == TXOS_ASKED && reason().error == ECANCELED);
    s = stats();
    CHECK(s.begun == 2 && s.committed == 1 && s.aborted == 1);
    CHECK(txos_version()[0] == '0');
    struct txos_stats old = {.size = 24};
    CHECK(txos_stats(&old) == 0 && old.begun == 2 && old.aborted == 0);
    struct txos_abort tiny = {.size = 4};
    CHECK(txos_abort_reason(&tiny) == -1 && errno == EINVAL);
    CHECK(txos_stats(NULL) == -1 && errno == EINVAL);
}

static void refusals(void) {
    CHECK(sys_xbegin(0x4000) == -1 && errno == EINVAL && strstr(txos_strerror(), "0x4000"));
    sigset_t mask;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &mask) == 0 && !sigismember(&mask, SIGUSR1));
    CHECK(sys_xresume(77) == -1 && errno == EINVAL);
    CHECK(sys_xpause() == -1 && errno == EINVAL);
}

static void no_dispatch(void) {
    setenv("TXOS_DEBUG_NO_DISPATCH", "1", 1);
    CHECK(sys_xbegin(0) == -1 && errno == ENOSYS);
    CHECK(strstr(txos_strerror(), "Syscall User Dispatch") && !txos_in_transaction());
    unsetenv("TXOS_DEBUG_NO_DISPATCH");
    CHECK(sys_xbegin(0) == 0 && sys_xend() == 0);
}

static void nesting(void) {
    CHECK(sys_xbegin(0) == 0);
    CHECK(sys_xbegin(TX_RESTART) == 0);
    CHECK(sys_xend() == 0);
    CHECK(txos_in_transaction());
    CHECK(sys_xend() == 0 && !txos_in_transaction());
    CHECK(stats().begun == 1);
    /* An inner abort is the outer one's, and it restarts if the outer one does. */
    volatile int inner = 0;
    int attempt = sys_xbegin(TX_RESTART);
    CHECK(attempt == inner);
    CHECK(sys_xbegin(0) == 0);
    if (inner++ < 3)
        sys_xabort(0);
    CHECK(sys_xend() == 0 && sys_xend() == 0 && attempt == 3);
    CHECK(stats().restarted == 3);
}

/* Deep below the begin; `how` chooses the way in which the transaction is lost. */
static __attribute__((noinline)) void lose(int depth, int how) {
    volatile char room[333];
    memset((void *)room, depth, sizeof room);
    if (depth > 0) {
        lose(depth - 1, how);
    } else if (how == 0) {
        sys_xabort(0);
    } else if (how == 1) {
        ioctl(-1, LOSE);
    } else {
        syscall(SYS_ioctl, -1, LOSE);
    }
    CHECK(room[5] == depth);
}

/* Values that live across the begin in registers that a call keeps. */
static void restart(void) {
    sigset_t before, after;
    sigprocmask(SIG_BLOCK, NULL, &before);
    for (int how = 0; how < 3; how++) {
        register long a = 11 + how, b = 22 + how, c = 33 + how, d = 44 + how, e = 55 + how;
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e));
        static int times;
        times = 0;
        int attempt = sys_xbegin(TX_RESTART);
        CHECK(attempt == times);
        CHECK(a == 11 + how && b == 22 + how && c == 33 + how && d == 44 + how && e == 55 + how);
        CHECK(txos_in_transaction());
        if (times++ < 5)
            lose(7, how);
        CHECK(attempt == 5);
        CHECK(sys_xend() == 0);
        sigprocmask(SIG_BLOCK, NULL, &after);
        CHECK(memcmp(&before, &after, sizeof(long)) == 0);
    }
    struct txos_stats s = stats();
    CHECK(s.begun == 3 && s.restarted == 15 && s.committed == 3 && s.aborted == 15);
    CHECK(s.trapped > 0);
}

/* Without TX_RESTART whoever loses is told by every call until the end. */
static void canceled(void) {
    for (int how = 1; how < 3; how++) {
        int before = open("/", O_RDONLY), within;
        CHECK(before >= 0 && sys_xbegin(0) == 0);
        CHECK((within = open("/", O_RDONLY)) >= 0);
        CHECK((how == 1 ? ioctl(-1, LOSE) : syscall(SYS_ioctl, -1, LOSE)) == -1);
        CHECK(errno == ECANCELED);
        CHECK(access("/", F_OK) == -1 && errno == ECANCELED);
        CHECK(syscall(SYS_access, "/", F_OK) == -1 && errno == ECANCELED);
        CHECK(txos_in_transaction());
        CHECK(sys_xbegin(0) == -1 && errno == ECANCELED);
        free(malloc(10000000)); /* memory is no part of it */
        CHECK(close(within) == 0 && syscall(SYS_close, before) == 0); /* whoever clears up goes on */
        CHECK(sys_xend() == -1 && errno == ECANCELED);
        CHECK(reason().reason == TXOS_CONFLICT && txos_strerror()[0]);
        CHECK(!txos_in_transaction() && access("/", F_OK) == 0);
        CHECK(close(before) == 0 && close(within) == -1 && errno == EBADF);
    }
}

static void interposed(void) {
    CHECK(sys_xbegin(0) == 0);
    struct txos_stats a = stats();
    struct stat st;
    CHECK(stat("/", &st) == 0 && S_ISDIR(st.st_mode));
    int fd = open("/dev/null", O_RDONLY);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK(open("/nonexistent/x", O_RDONLY) == -1 && errno == ENOENT);
    struct txos_stats b = stats();
    CHECK(b.calls == a.calls + 4 && b.trapped == a.trapped);
    CHECK(syscall(SYS_getpid) == getpid());
    CHECK(stats().trapped >= a.trapped + 1);
    CHECK(sys_xend() == 0);
    CHECK(stats().calls > 0);
}

static void registers_in_trap(void) {
    CHECK(sys_xbegin(0) == 0);
    double x = 1.0 / 3;
    long answer;
    double y = x;
    errno = 77;
    __asm__ volatile("movsd %[x], %%xmm15\n\t"
                     "mov $39, %%eax\n\t"
                     "mov $123456789, %%rbx\n\t"
                     "mov $987654321, %%r15\n\t"
                     "syscall\n\t"
                     "movsd %%xmm15, %[y]\n\t"
                     "cmp $123456789, %%rbx\n\t"
                     "jne 1f\n\t"
                     "cmp $987654321, %%r15\n\t"
                     "je 2f\n\t"
                     "1: mov $0, %%eax\n\t"
                     "2:"
                     : "=&a"(answer), [y] "=m"(y)
                     : [x] "m"(x)
                     : "rcx", "r11", "rbx", "r15", "xmm15", "memory", "cc");
    CHECK(errno == 77);
    CHECK(y == x);
    CHECK(sys_xend() == 0);
    CHECK(answer == getpid());
}

static volatile sig_atomic_t caught, caught_inside;

static void note(int signal) {
    caught = signal;
    caught_inside = txos_in_transaction();
}

static void handle(int signal, void (*handler)(int)) {
    /* All blocked, as the runtimes of languages install theirs. */
    struct sigaction action = {.sa_handler = handler};
    sigfillset(&action.sa_mask);
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void signals(void) {
    handle(SIGALRM, note);
    struct itimerval soon = {.it_value = {.tv_usec = 2000}};
    CHECK(sys_xbegin(0) == 0);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    spin(20);
    CHECK(caught == 0);
    CHECK(sys_xend() == 0);
    CHECK(caught == SIGALRM && !caught_inside);
    /* ... and between two attempts, also by a handler that has a transaction of its own. */
    caught = 0;
    volatile int times = 0;
    int attempt = sys_xbegin(TX_RESTART);
    CHECK(attempt == times);
    CHECK(attempt == 0 || caught == SIGALRM);
    if (times++ == 0) {
        CHECK(kill(getpid(), SIGALRM) == 0);
        CHECK(caught == 0);
        sys_xabort(0);
    }
    CHECK(sys_xend() == 0);
}

static void look_inside(int signal) {
    int error = errno;
    int pid = syscall(SYS_getpid); /* dispatched as well */
    int fd = open("/dev/null", O_RDONLY);
    CHECK(pid == getpid() && fd != -1 && close(fd) == 0);
    note(signal);
    errno = error;
}

static void *pester(void *thread) {
    for (int i = 0; i < 2000; i++) {
        struct timespec pause = {.tv_nsec = 20000};
        pthread_kill(*(pthread_t *)thread, SIGURG);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void signal_at_once(void) {
    CHECK(txos_signal_at_once(SIGSEGV, 1) == -1 && errno == EINVAL);
    CHECK(txos_signal_at_once(SIGKILL, 1) == -1 && txos_signal_at_once(0, 1) == -1);
    CHECK(txos_signal_at_once(65, 1) == -1);
    handle(SIGURG, look_inside);
    CHECK(txos_signal_at_once(SIGURG, 1) == 0);
    CHECK(sys_xbegin(0) == 0);
    CHECK(raise(SIGURG) == 0);
    CHECK(caught == SIGURG && caught_inside);
    /* What the program blocks itself waits for the program. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    caught = 0;
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(raise(SIGURG) == 0 && caught == 0);
    long id = sys_xpause();
    CHECK(id > 0 && caught == SIGURG && !caught_inside);
    CHECK(sys_xresume(id) == 0);
    caught = 0;
    CHECK(raise(SIGURG) == 0 && caught == 0);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
    CHECK(caught == SIGURG && caught_inside);
    CHECK(sys_xend() == 0);
    caught = 0;
    CHECK(raise(SIGURG) == 0 && caught == SIGURG && !caught_inside);
    /* At any instant, in calls of both ways, in begins, ends and restarts. */
    pthread_t self = pthread_self(), other;
    CHECK(pthread_create(&other, NULL, pester, &self) == 0);
    char path[] = "/tmp/at-once-XXXXXX";
    int kept = mkstemp(path);
    CHECK(kept != -1);
    static int times;
    for (times = 0; times < 400; times++) {
        int again = sys_xbegin(TX_RESTART);
        CHECK(again >= 0);
        CHECK(pwrite(kept, &times, sizeof times, 0) == sizeof times);
        CHECK(syscall(SYS_pwrite64, kept, &times, sizeof times, 8) == sizeof times);
        if (again == 0 && times % 4 == 0)
            lose(1, times / 4 % 3);
        if (times % 4 == 1)
            sys_xabort(1);
        else
            CHECK(sys_xend() == 0);
        CHECK(!txos_in_transaction());
    }
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(unlink(path) == 0);
    CHECK(txos_signal_at_once(SIGURG, 0) == 0);
    CHECK(sys_xbegin(0) == 0);
    caught = 0;
    CHECK(raise(SIGURG) == 0 && caught == 0);
    CHECK(sys_xend() == 0 && caught == SIGURG);
}

/* A path of this scenario's own; good for the next three. */
static const char *scratch(const char *name) {
    static int owner, next;
    static char paths[4][64];
    char *path = paths[next++ % 4];
    if (owner == 0)
        owner = getpid();
    snprintf(path, sizeof paths[0], "/tmp/txos-scenario-%d%s", owner, name);
    return path;
}

/* Waits until a signal has come that is held back. */
static void until_pending(int signal) {
    sigset_t pending;
    do {
        CHECK(sigpending(&pending) == 0);
    } while (!sigismember(&pending, signal));
}

/* A signal that came while its handler was there is the handler's, also if that is gone at the end. */
static void signal_after_its_handler(void) {
    for (int i = 0; i < 6; i++) {
        bool aborts = i % 2, removed = i < 4;
        void (*after)(int) = i < 2 ? SIG_DFL : SIG_IGN;
        caught = 0;
        CHECK(signal(SIGALRM, after) != SIG_ERR);
        CHECK(sys_xbegin(0) == 0);
        CHECK(signal(SIGALRM, note) == after);
        CHECK(kill(getpid(), SIGALRM) == 0);
        until_pending(SIGALRM);
        CHECK(caught == 0);
        if (removed)
            CHECK(signal(SIGALRM, after) == note);
        if (aborts)
            sys_xabort(1);
        else
            CHECK(sys_xend() == 0);
        CHECK(caught == SIGALRM && !caught_inside);
        CHECK(signal(SIGALRM, SIG_DFL) == (aborts || removed ? after : note));
    }
}

static void make_directory(int signal) {
    look_inside(signal);
    if (caught_inside)
        CHECK(mkdir(scratch("handler"), 0700) == 0);
}

static sigjmp_buf out_of_handler;

static void jump_out(int signal) {
    note(signal);
    siglongjmp(out_of_handler, 1);
}

static void abort_inside(int signal) {
    note(signal);
    if (caught_inside)
        sys_xabort(0);
}

/* Calls that wait for a signal take it, its handler runs in the transaction, and an abort gives it back. */
static void waits_for_signals(void) {
    sigset_t none, usr2;
    sigemptyset(&none);
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    handle(SIGUSR1, make_directory);
    for (int i = 0; i < 4; i++) {
        caught = 0;
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(raise(SIGUSR1) == 0 && caught == 0);
        errno = 0;
        if (i < 2)
            CHECK(sigsuspend(&none) == -1 && errno == EINTR);
        else
            CHECK(pause() == -1 && errno == EINTR);
        CHECK(caught == SIGUSR1 && caught_inside);
        CHECK(access(scratch("handler"), F_OK) == 0);
        CHECK(rmdir(scratch("handler")) == 0 || i % 2);
        caught = 0;
        if (i % 2) {
            sys_xabort(1);
            CHECK(caught == SIGUSR1 && !caught_inside);
        } else {
            CHECK(sys_xend() == 0 && caught == 0);
        }
        CHECK(access(scratch("handler"), F_OK) == -1);
    }
    /* What the mask of the wait blocks does not end it, nor does what is ignored. */
    CHECK(signal(SIGHUP, SIG_IGN) != SIG_ERR);
    CHECK(sys_xbegin(0) == 0);
    handle(SIGUSR1, note);
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    handle(SIGALRM, note);
    CHECK(raise(SIGUSR1) == 0 && raise(SIGHUP) == 0);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    CHECK(sigsuspend(&usr1) == -1 && caught == SIGALRM);
    CHECK(syscall(SYS_rt_sigsuspend, &none, 7) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_rt_sigsuspend, 16, 8) == -1 && errno == EFAULT);
    CHECK(sys_xend() == 0 && caught == SIGUSR1);
    /* sigwaitinfo() and its relatives. */
    CHECK(sigprocmask(SIG_BLOCK, &usr2, NULL) == 0);
    for (int aborts = 0; aborts < 2; aborts++) {
        siginfo_t info;
        struct timespec now = {0, 0};
        union sigval value = {.sival_int = 42 + aborts};
        CHECK(sigqueue(getpid(), SIGUSR2, value) == 0);
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(sigwaitinfo(&usr2, &info) == SIGUSR2 && info.si_value.sival_int == 42 + aborts);
        CHECK(sigtimedwait(&usr2, NULL, &now) == -1 && errno == EAGAIN);
        if (!aborts) {
            CHECK(sys_xend() == 0);
            CHECK(sigtimedwait(&usr2, NULL, &now) == -1 && errno == EAGAIN);
        } else {
            sys_xabort(1);
            CHECK(sigtimedwait(&usr2, &info, &now) == SIGUSR2 && info.si_value.sival_int == 43);
        }
    }
    /* A handler that jumps out, and one that aborts; on a stack of their own. */
    static char stack[65536];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack}, now;
    CHECK(sigaltstack(&own, NULL) == 0);
    struct sigaction action = {.sa_handler = jump_out, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(sys_xbegin(0) == 0);
    if (sigsetjmp(out_of_handler, 1) == 0) {
        CHECK(raise(SIGUSR1) == 0);
        sigsuspend(&none);
        CHECK(!"it did not jump");
    }
    CHECK(txos_in_transaction() && caught_inside);
    CHECK(mkdir(scratch("handler"), 0700) == 0);
    CHECK(sys_xend() == 0 && rmdir(scratch("handler")) == 0);
    CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack);
    action.sa_handler = abort_inside;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    int attempt = sys_xbegin(TX_RESTART);
    if (attempt == 0) {
        CHECK(raise(SIGUSR1) == 0);
        sigsuspend(&none);
        CHECK(!"it did not abort");
    }
    CHECK(attempt == 1 && caught == SIGUSR1 && !caught_inside);
    CHECK(sys_xend() == 0);
    CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack);
}

/* The signals that have come to a process and wait in it. */
static bool has_pending(int process, int signal) {
    char name[64], line[256];
    unsigned long long set, all = 0;
    snprintf(name, sizeof name, "/proc/%d/status", process);
    FILE *file = fopen(name, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "SigPnd: %llx", &set) == 1 || sscanf(line, "ShdPnd: %llx", &set) == 1)
            all |= set;
    fclose(file);
    return all >> (signal - 1) & 1;
}

/* A process that has all signals wait, in a group of its own. */
static int listener(void) {
    sigset_t all, before;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, &before) == 0);
    int process = fork();
    if (process == 0)
        for (;;)
            sleep(100);
    CHECK(process > 0 && setpgid(process, process) == 0);
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    return process;
}

static int send_in_one_way(int way, int process, int signal) {
    siginfo_t info = {.si_signo = signal, .si_code = SI_QUEUE};
    union sigval value = {.sival_int = 7};
    switch (way) {
    case 0: return kill(process, signal);
    case 1: return kill(-process, signal);
    case 2: return (int)syscall(SYS_tkill, process, signal);
    case 3: return (int)syscall(SYS_tgkill, process, process, signal);
    case 4: return sigqueue(process, signal, value);
    case 5: return (int)syscall(SYS_rt_tgsigqueueinfo, process, process, signal, &info);
    }
    int fd = (int)syscall(SYS_pidfd_open, process, 0);
    int answer = (int)syscall(SYS_pidfd_send_signal, fd, signal, way == 6 ? NULL : &info, 0);
    return close(fd) == 0 ? answer : -1;
}

/* A socket's path that leads to nobody is no traffic, in the versioned tree and outside of it. */
static void nobody_to_connect_to(void) {
    static const struct {
        const char *path;
        int answer;
    } paths[] = {{"/proc/no-such-socket", ENOENT}, {"/dev/null", ECONNREFUSED}, {"/dev/null/x", ENOTDIR},
                 {"no-such-socket", ENOENT}, {"a-file", ECONNREFUSED}};
    int fd = open("a-file", O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK(sys_xbegin(TX_STRICT) == 0);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        strcpy(name.sun_path, paths[i].path);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(fd >= 0 && connect(fd, (void *)&name, sizeof name) == -1 && errno == paths[i].answer);
        CHECK(close(fd) == 0);
    }
    CHECK(unlink("a-file") == 0);
    CHECK(sys_xend() == 0);
}

/* Signals to others wait for the commit; what is wrong with them is found at once. */
static void signals_to_others(void) {
    int process = listener();
    for (int way = 0; way < 8; way++) {
        int signal = SIGRTMIN + way;
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(send_in_one_way(way, process, signal) == 0);
        CHECK(!has_pending(process, signal));
        sys_xabort(1);
        CHECK(!has_pending(process, signal));
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(send_in_one_way(way, process, signal) == 0);
        CHECK(send_in_one_way(way, process, 65) == -1 && errno == EINVAL);
        CHECK(send_in_one_way(way, process, 0) == 0 || way == 7);
        CHECK(send_in_one_way(way, 0x3fffffff, signal) == -1);
        CHECK(errno == ESRCH || (way >= 6 && errno == EBADF));
        CHECK(!has_pending(process, signal));
        CHECK(sys_xend() == 0);
        CHECK(has_pending(process, signal));
    }
    /* A child that is waited for gets them at once. */
    CHECK(sys_xbegin(0) == 0);
    CHECK(kill(process, SIGKILL) == 0);
    CHECK(kill(process, 0) == 0);
    int status = 0;
    CHECK(waitpid(process, &status, 0) == process && WTERMSIG(status) == SIGKILL);
    CHECK(sys_xend() == 0);
    process = listener();
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(kill(process, SIGKILL) == 0);
    CHECK(waitpid(process, &status, 0) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ENOTSUP);
    CHECK(kill(process, 0) == 0);
    /* One that is gone by then: the commit stands, and says so. */
    int talk[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, talk) == 0);
    int helper = fork();
    if (helper == 0) {
        int target = listener();
        CHECK(write(talk[1], &target, sizeof target) == sizeof target && read(talk[1], &status, 1) == 1);
        CHECK(kill(target, SIGKILL) == 0 && waitpid(target, &status, 0) == target);
        CHECK(write(talk[1], "x", 1) == 1);
        _exit(0);
    }
    int target = 0;
    CHECK(read(talk[0], &target, sizeof target) == sizeof target);
    CHECK(sys_xbegin(0) == 0);
    CHECK(mkdir(scratch("held"), 0700) == 0 && kill(target, SIGTERM) == 0);
    long id = sys_xpause();
    char byte;
    CHECK(write(talk[0], "x", 1) == 1 && read(talk[0], &byte, 1) == 1);
    CHECK(sys_xresume(id) == 0);
    CHECK(sys_xend() == 0);
    CHECK(strstr(txos_strerror(), "SIGTERM was held until the commit, and could not be sent") != NULL);
    CHECK(rmdir(scratch("held")) == 0);
    CHECK(waitpid(helper, &status, 0) == helper && status == 0);
    /* More than can be held. */
    CHECK(sys_xbegin(0) == 0);
    int sent = 0;
    while (kill(process, SIGRTMAX) == 0)
        sent++;
    CHECK(errno == EAGAIN && sent == 4096);
    sys_xabort(1);
    CHECK(!has_pending(process, SIGRTMAX));
    CHECK(kill(process, SIGKILL) == 0 && waitpid(process, &status, 0) == process);
}

/* A child that reads until the end of a pipe; the pipe's other end. */
static int reader(int *process) {
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0);
    *process = fork();
    if (*process == 0) {
        close(ends[1]);
        while (read(ends[0], &byte, 1) == 1)
            ;
        _exit(0);
    }
    CHECK(*process > 0 && close(ends[0]) == 0);
    return ends[1];
}

/* A child that ends when a pipe does is waited for as natively: the end is closed before the wait. */
static void ends_of_pipes(void) {
    int status, process;
    FILE *out = popen("cat > /dev/null", "w");
    CHECK(out != NULL && sys_xbegin(0) == 0);
    CHECK(pclose(out) == 0);
    CHECK(sys_xend() == 0);
    for (int aborts = 0; aborts < 2; aborts++) {
        int end = reader(&process);
        CHECK(sys_xbegin(0) == 0);
        CHECK(write(end, "x", 1) == 1 && close(end) == 0);
        int found;
        while ((found = waitpid(process, &status, aborts ? WNOHANG : 0)) == 0)
            usleep(1000);
        CHECK(found == process && status == 0);
        if (aborts)
            sys_xabort(1);
        else
            CHECK(sys_xend() == 0);
        CHECK(fcntl(end, F_GETFD) == -1 && errno == EBADF);
    }
    /* Until then an abort has it open again; and with TX_STRICT the wait is an abort. */
    int end = reader(&process);
    CHECK(sys_xbegin(0) == 0);
    CHECK(close(end) == 0);
    sys_xabort(1);
    CHECK(fcntl(end, F_GETFD) != -1);
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(close(end) == 0);
    CHECK(waitpid(process, &status, 0) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ENOTSUP);
    CHECK(close(end) == 0 && waitpid(process, &status, 0) == process && status == 0);
}

enum {
    IN_READ, IN_WRITE, IN_POLL, IN_SELECT, IN_EPOLL, IN_NANOSLEEP, IN_MUTEX, IN_FLOCK, IN_RECORD_LOCK, IN_WAITPID,
    IN_ACCEPT, IN_RECV, IN_FIFO, IN_SIGSUSPEND, WAYS_TO_WAIT
};

/* Waits, in one of these ways, for what does not come. */
static void wait_for_ever(int way, int never, int full, int file, int pair, int listener, int child) {
    static char much[1 << 17];
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct pollfd one = {never, POLLIN, 0};
    struct epoll_event event = {.events = EPOLLIN};
    struct timespec hour = {3600, 0};
    struct flock whole = {.l_type = F_RDLCK};
    sigset_t none;
    char byte;
    fd_set set;
    int poller;
    switch (way) {
    case IN_READ: read(never, &byte, 1); break;
    case IN_WRITE: while (write(full, much, sizeof much) > 0); break;
    case IN_POLL: poll(&one, 1, -1); break;
    case IN_SELECT:
        FD_ZERO(&set);
        FD_SET(never, &set);
        select(never + 1, &set, NULL, NULL, NULL);
        break;
    case IN_EPOLL:
        poller = epoll_create1(0);
        CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, never, &event) == 0);
        epoll_wait(poller, &event, 1, -1);
        break;
    case IN_NANOSLEEP: nanosleep(&hour, NULL); break;
    case IN_MUTEX: pthread_mutex_lock(&mutex), pthread_mutex_lock(&mutex); break;
    case IN_FLOCK: flock(file, LOCK_EX); break;
    case IN_RECORD_LOCK: fcntl(file, F_OFD_SETLKW, &whole); break;
    case IN_WAITPID: waitpid(child, NULL, 0); break;
    case IN_ACCEPT: accept(listener, NULL, NULL); break;
    case IN_RECV: recv(pair, &byte, 1, 0); break;
    case IN_FIFO: open(scratch("fifo"), O_RDONLY); break;
    default: sigemptyset(&none), sigsuspend(&none);
    }
}

/* Whether another description of the file may be locked. */
static int is_free(const char *name) {
    int fd = open(scratch(name), O_RDWR);
    int locked = flock(fd, LOCK_EX | LOCK_NB);
    close(fd);
    return locked == 0;
}

/* A file that is locked keeps its lock after the commit, however the commit publishes what was written. */
static void locked_and_written(void) {
    static char much[100000];
    for (int way = 0; way < 4; way++) {
        int fd = open(scratch("locked"), O_CREAT | O_TRUNC | O_RDWR, 0600);
        CHECK(write(fd, much, sizeof much) == sizeof much && close(fd) == 0);
        CHECK(sys_xbegin(0) == 0);
        fd = open(scratch("locked"), way & 1 ? O_RDWR | O_TRUNC : O_RDWR);
        CHECK(flock(fd, LOCK_EX) == 0 && !is_free("locked"));
        CHECK(write(fd, much, way & 2 ? sizeof much : 1) > 0 && !is_free("locked"));
        CHECK(sys_xend() == 0 && !is_free("locked"));
        CHECK(write(fd, "x", 1) == 1 && flock(fd, LOCK_UN) == 0 && is_free("locked") && close(fd) == 0);
        CHECK(sys_xbegin(0) == 0);
        fd = open(scratch("locked"), O_RDWR);
        CHECK(flock(fd, LOCK_EX) == 0 && write(fd, "x", 1) == 1 && flock(fd, LOCK_UN) == 0);
        CHECK(sys_xend() == 0 && is_free("locked") && close(fd) == 0);
    }
    CHECK(unlink(scratch("locked")) == 0);
}

/* A log that was opened before the program gave up the right to open it. Abort and commit hold for it as for others. */
static void log_of_another_user(void) {
    static char lines[10000];
    memset(lines, 'x', sizeof lines);
    for (int reachable = 0; reachable < 2; reachable++) {
        CHECK(mkdir(scratch("logs"), 0700) == 0 && chmod(scratch("logs"), reachable ? 0711 : 0700) == 0);
        int status, log = open(scratch("logs/log"), O_CREAT | O_WRONLY | O_APPEND, 0600);
        CHECK(log >= 0 && write(log, "before\n", 7) == 7);
        int process = fork();
        if (process == 0) {
            CHECK(setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
            CHECK(sys_xbegin(0) == 0 && write(log, "aborted\n", 8) == 8);
            sys_xabort(0);
            CHECK(lseek(log, 0, SEEK_END) == 7);
            CHECK(sys_xbegin(0) == 0 && write(log, "in", 2) == 2 && write(log, "side\n", 5) == 5);
            CHECK(lseek(log, 0, SEEK_END) == 14 && write(log, lines, sizeof lines) == sizeof lines);
            struct stat now;
            CHECK(fstat(log, &now) == 0 && now.st_size == 14 + sizeof lines);
            CHECK(sys_xend() == 0 && write(log, "after\n", 6) == 6);
            _exit(0);
        }
        CHECK(waitpid(process, &status, 0) == process && status == 0);
        static char found[sizeof lines + 100];
        int fd = open(scratch("logs/log"), O_RDONLY);
        CHECK(read(fd, found, sizeof found) == 20 + sizeof lines && close(fd) == 0 && close(log) == 0);
        CHECK(memcmp(found, "before\ninside\nx", 15) == 0 && memcmp(found + 14 + sizeof lines, "after\n", 6) == 0);
        CHECK(unlink(scratch("logs/log")) == 0 && rmdir(scratch("logs")) == 0);
    }
}

/* A transaction that waits is ended by what ends the program natively: Ctrl-C. It leaves nothing. */
static void interrupted(void) {
    /* What is written is to be seen, and to wait. */
    CHECK(setenv("TXOS_HOLD_OUTPUT", "0", 1) == 0);
    CHECK(mkfifo(scratch("fifo"), 0600) == 0);
    int file = open(scratch("locked"), O_CREAT | O_RDWR, 0600);
    struct flock whole = {.l_type = F_WRLCK};
    CHECK(flock(file, LOCK_EX) == 0 && fcntl(file, F_OFD_SETLK, &whole) == 0);
    for (int way = 0; way < WAYS_TO_WAIT; way++) {
        int begun[2], never[2], pair[2], status;
        char byte;
        CHECK(pipe(begun) == 0 && pipe(never) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        int process = fork();
        if (process == 0) {
            struct sockaddr_un at = {.sun_family = AF_UNIX};
            int listener = socket(AF_UNIX, SOCK_STREAM, 0), own = open(scratch("locked"), O_RDWR);
            CHECK(bind(listener, (void *)&at, sizeof(sa_family_t)) == 0 && listen(listener, 1) == 0);
            int parent = getpid(), child = fork();
            if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                while (getppid() == parent)
                    pause();
                _exit(0);
            }
            CHECK(sys_xbegin(0) == 0 && mkdir(scratch("interrupted"), 0700) == 0);
            CHECK(write(begun[1], "x", 1) == 1);
            wait_for_ever(way, never[0], never[1], own, pair[0], listener, child);
            _exit(3);
        }
        CHECK(process > 0 && read(begun[0], &byte, 1) == 1);
        CHECK(kill(process, way % 2 ? SIGINT : SIGTERM) == 0);
        CHECK(waitpid(process, &status, 0) == process);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != (way % 2 ? SIGINT : SIGTERM))
            fprintf(stderr, "way %d: status %x\n", way, status), _exit(1);
        CHECK(access(scratch("interrupted"), F_OK) == -1 && errno == ENOENT);
        for (int i = 0; i < 2; i++)
            close(begun[i]), close(never[i]), close(pair[i]);
    }
    CHECK(close(file) == 0 && unlink(scratch("locked")) == 0 && unlink(scratch("fifo")) == 0);
}

/* What the program handles, or has blocked, waits for the end as ever. */
static void interrupted_otherwise(void) {
    const char *made = scratch("interrupted");
    for (int blocks = 0; blocks < 2; blocks++) {
        int begun[2], later[2], status;
        char byte;
        CHECK(pipe(begun) == 0 && pipe(later) == 0);
        int process = fork();
        if (process == 0) {
            sigset_t interrupt;
            sigemptyset(&interrupt);
            sigaddset(&interrupt, SIGINT);
            caught = 0;
            if (!blocks)
                handle(SIGINT, note);
            CHECK(sys_xbegin(0) == 0 && mkdir(made, 0700) == 0);
            if (blocks)
                CHECK(sigprocmask(SIG_BLOCK, &interrupt, NULL) == 0);
            CHECK(write(begun[1], "x", 1) == 1 && read(later[0], &byte, 1) == 1 && caught == 0);
            CHECK(sys_xend() == 0 && caught == (blocks ? 0 : SIGINT));
            _exit(0);
        }
        CHECK(process > 0 && read(begun[0], &byte, 1) == 1);
        CHECK(kill(process, SIGINT) == 0 && write(later[1], "x", 1) == 1);
        CHECK(waitpid(process, &status, 0) == process && status == 0);
        CHECK(rmdir(made) == 0);
    }
}

/* A child that begins without handlers has none, and what was ignored still is. */
static void a_child_without_handlers(void) {
    uint64_t how[11] = {1ULL << 32 /* CLONE_CLEAR_SIGHAND */, 0, 0, 0, SIGCHLD};
    CHECK(signal(SIGUSR1, exit) != SIG_ERR && signal(SIGUSR2, SIG_IGN) != SIG_ERR);
    CHECK(sys_xbegin(0) == 0);
    pid_t child = syscall(SYS_clone3, how, sizeof how);
    CHECK(child != -1);
    if (child == 0) {
        struct sigaction handled, ignored;
        sigaction(SIGUSR1, NULL, &handled);
        sigaction(SIGUSR2, NULL, &ignored);
        _exit(handled.sa_handler == SIG_DFL && ignored.sa_handler == SIG_IGN ? 7 : 8);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    struct sigaction own;
    CHECK(sigaction(SIGUSR1, NULL, &own) == 0 && own.sa_handler == exit);
    CHECK(sys_xend() == 0);
    /* Shared, they can't be taken away. */
    how[0] |= CLONE_SIGHAND | CLONE_VM;
    CHECK(syscall(SYS_clone3, how, sizeof how) == -1 && errno == EINVAL);
    CHECK(signal(SIGUSR1, SIG_DFL) == exit && signal(SIGUSR2, SIG_DFL) == SIG_IGN);
}

/* Others change a directory's extended attributes, or only what is in it. */
static void attributes_of_a_directory(void) {
    char value[8], file[96];
    const char *dir = scratch("attributes");
    CHECK(mkdir(dir, 0700) == 0);
    snprintf(file, sizeof file, "%s/file", dir);
    for (int way = 0; way < 12; way++) {
        if (setxattr(dir, "user.read", "1", 1, 0) == -1 && errno == ENOTSUP)
            break;
        int changes = way % 4, lists = way / 4 == 1, fd = way / 4 == 2 ? open(dir, O_RDONLY) : -1;
        CHECK(sys_xbegin(0) == 0);
        CHECK(lists       ? listxattr(dir, value, 0) > 0
              : fd != -1  ? fgetxattr(fd, "user.read", value, sizeof value) == 1
                          : getxattr(dir, "user.read", value, sizeof value) == 1);
        long id = sys_xpause();
        if (changes == 1)
            CHECK(mknod(file, S_IFREG | 0600, 0) == 0 && unlink(file) == 0);
        if (changes == 2)
            CHECK(setxattr(dir, "user.read", "2", 1, 0) == 0);
        if (changes == 3)
            CHECK(setxattr(dir, "user.other", "1", 1, 0) == 0);
        CHECK(sys_xresume(id) == 0 && close(open(file, O_CREAT | O_WRONLY, 0600)) == 0);
        int ended = sys_xend(), error = errno;
        CHECK(changes < 2 ? ended == 0 : ended == -1 && error == ECANCELED && reason().reason == TXOS_CONFLICT);
        CHECK(access(file, F_OK) == (changes < 2 ? 0 : -1));
        if (changes < 2)
            CHECK(unlink(file) == 0);
        removexattr(dir, "user.other");
        close(fd);
    }
    /* Its own changes are none of others. */
    CHECK(sys_xbegin(0) == 0 && listxattr(dir, value, 0) >= 0);
    if (setxattr(dir, "user.own", "1", 1, 0) == 0)
        CHECK(getxattr(dir, "user.own", value, sizeof value) == 1);
    CHECK(sys_xend() == 0 && rmdir(dir) == 0);
}

/* A wait for another transaction is ended, too. */
static void interrupted_in_a_conflict(void) {
    int go[2], begun[2], status;
    char byte;
    const char *wanted = scratch("wanted");
    CHECK(setenv("TXOS_HOLD_OUTPUT", "0", 1) == 0);
    CHECK(pipe(go) == 0 && pipe(begun) == 0);
    int process = fork();
    if (process == 0) {
        CHECK(read(go[0], &byte, 1) == 1);
        CHECK(sys_xbegin(0) == 0 && write(begun[1], "x", 1) == 1);
        mkdir(wanted, 0700);
        sys_xend();
        _exit(3);
    }
    CHECK(process > 0 && sys_xbegin(0) == 0 && mkdir(wanted, 0700) == 0);
    long id = sys_xpause();
    CHECK(write(go[1], "x", 1) == 1 && read(begun[0], &byte, 1) == 1 && kill(process, SIGINT) == 0);
    CHECK(waitpid(process, &status, 0) == process);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    CHECK(sys_xresume(id) == 0 && sys_xend() == 0 && rmdir(wanted) == 0);
}

/* Runs a part in a process of its own: what it gives up is its own. */
static void apart(void (*part)(void)) {
    int status, process = fork();
    if (process == 0) {
        part();
        _exit(0);
    }
    CHECK(process > 0 && waitpid(process, &status, 0) == process && status == 0);
}

/* What was given up for good stays so, and the transaction does not begin again. */
static void gives_up(void) {
    CHECK(sys_xbegin(TX_RESTART) == 0);
    CHECK(setresuid(1000, 1000, 1000) == 0 && getuid() == 1000);
    sys_xabort(0);
    CHECK(!txos_in_transaction() && getuid() == 1000);
    CHECK(strstr(txos_strerror(), "could not put back: the credentials") != NULL);
}

/* What is made as another user has the modes that the file mode mask leaves it. */
static void makes_as_another(void) {
    struct stat of;
    umask(027);
    CHECK(mkdir(scratch("made"), 0777) == 0 && chmod(scratch("made"), 0777) == 0);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(0) == 0 && setgroups(1, (gid_t[]){7}) == 0 && seteuid(1000) == 0);
        int file = open(scratch("made/f"), O_CREAT | O_WRONLY, 04666), unnamed = open(scratch("made"), O_TMPFILE | O_WRONLY, 0666);
        CHECK(mkdir(scratch("made/d"), 0777) == 0 && fstat(file, &of) == 0 && (of.st_mode & 07777) == 04640);
        CHECK(fstat(unnamed, &of) == 0 && (of.st_mode & 07777) == 0640);
        CHECK(stat(scratch("made/d"), &of) == 0 && (of.st_mode & 07777) == 0750 && of.st_uid == 1000);
        if (!commits) {
            sys_xabort(1);
            continue;
        }
        CHECK(sys_xend() == 0 && seteuid(0) == 0);
        CHECK(stat(scratch("made/f"), &of) == 0 && (of.st_mode & 07777) == 04640 && of.st_uid == 1000);
        CHECK(unlink(scratch("made/f")) == 0 && rmdir(scratch("made/d")) == 0 && rmdir(scratch("made")) == 0);
    }
}

/* Who has got a directory in the transaction uses it, though it is another's for the kernel; and who has lost it does not. */
static void uses_what_it_was_given(void) {
    struct stat of;
    CHECK(mkdir(scratch("given"), 0700) == 0 && mkdir(scratch("given/in"), 0700) == 0);
    CHECK(close(open(scratch("given/f"), O_CREAT | O_WRONLY, 0600)) == 0 && mkdir(scratch("taken"), 0755) == 0);
    CHECK(close(open(scratch("given/g"), O_CREAT | O_WRONLY, 0600)) == 0);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(0) == 0 && chown(scratch("given"), 1000, 1000) == 0 && chown(scratch("given/f"), 1000, 1000) == 0);
        CHECK(chmod(scratch("taken"), 0700) == 0 && setegid(1000) == 0 && seteuid(1000) == 0);
        CHECK(stat(scratch("given/f"), &of) == 0 && of.st_uid == 1000 && stat(scratch("given/none"), &of) == -1 && errno == ENOENT);
        int next = dup(0), dir = -1, file = open(scratch("given/f"), O_RDWR);
        CHECK(close(next) == 0 && file >= 0 && write(file, "x", 1) == 1);
        CHECK((dir = open(scratch("given"), O_RDONLY | O_DIRECTORY)) == next && faccessat(dir, "in", F_OK, AT_EACCESS) == 0);
        CHECK(open(scratch("given/g"), O_RDONLY) == -1 && errno == EACCES && open(scratch("given/in"), O_RDONLY) == -1 && errno == EACCES);
        CHECK(stat(scratch("given/in/x"), &of) == -1 && errno == EACCES);
        CHECK(stat(scratch("taken/x"), &of) == -1 && errno == EACCES && open(scratch("taken"), O_RDONLY) == -1 && errno == EACCES);
        CHECK(close(openat(dir, "new", O_CREAT | O_EXCL | O_WRONLY, 0600)) == 0 && renameat(dir, "new", dir, "newer") == 0);
        CHECK(unlinkat(dir, "g", 0) == 0 && close(dir) == 0 && close(file) == 0);
        if (commits)
            CHECK(sys_xend() == 0 && seteuid(0) == 0 && setegid(0) == 0);
        else
            sys_xabort(1);
    }
    CHECK(stat(scratch("given/newer"), &of) == 0 && of.st_uid == 1000 && stat(scratch("given/f"), &of) == 0 && of.st_size == 1);
    CHECK(stat(scratch("given/g"), &of) == -1 && unlink(scratch("given/newer")) == 0 && unlink(scratch("given/f")) == 0);
    CHECK(rmdir(scratch("given/in")) == 0 && rmdir(scratch("given")) == 0 && rmdir(scratch("taken")) == 0);
}

static void gives_up_and_loses(void) {
    CHECK(sys_xbegin(TX_RESTART) == 0);
    CHECK(setresuid(1000, 1000, 1000) == 0);
    syscall(SYS_ioctl, -1, 0x7458054c, 0); /* loses a conflict */
    CHECK(sys_xend() == -1 && errno == ECANCELED && getuid() == 1000);
}

/* The next program gets what the process has become, and not what an abort would put back. */
static void runs_as_it_is(void) {
    CHECK(sys_xbegin(0) == 0);
    CHECK(setresuid(1000, 1000, 0) == 0);
    execl("/bin/sh", "sh", "-c", "test $(id -u):$(id -ru) = 1000:1000", (char *)NULL);
    CHECK(!"it did not run");
}

static void *user_of_a_thread(void *pipes) {
    char byte;
    CHECK(write(((int *)pipes)[3], "x", 1) == 1 && read(((int *)pipes)[0], &byte, 1) == 1);
    return (void *)(long)syscall(SYS_geteuid);
}

/* The C library has all threads take what one takes. */
static void with_threads(void) {
    int pipes[4];
    for (int aborts = 0; aborts < 2; aborts++) {
        pthread_t thread;
        void *user;
        char byte;
        CHECK(pipe(pipes) == 0 && pipe(pipes + 2) == 0);
        CHECK(pthread_create(&thread, NULL, user_of_a_thread, pipes) == 0);
        CHECK(read(pipes[2], &byte, 1) == 1);
        CHECK(sys_xbegin(0) == 0);
        CHECK(seteuid(1000) == 0);
        if (aborts)
            sys_xabort(1);
        else
            CHECK(sys_xend() == 0);
        CHECK(geteuid() == (aborts ? 0 : 1000));
        CHECK(write(pipes[1], "x", 1) == 1 && pthread_join(thread, &user) == 0);
        CHECK((long)user == (aborts ? 0 : 1000));
        CHECK(seteuid(0) == 0);
    }
}

/* Credentials hold for what the transaction does; an abort puts them back. */
static void credentials(void) {
    umask(022);
    CHECK(mkdir(scratch(""), 0755) == 0 && mkdir(scratch("/u"), 0755) == 0);
    CHECK(chown(scratch("/u"), 1000, 1000) == 0);
    int fd = open(scratch("/secret"), O_CREAT | O_WRONLY, 0600);
    CHECK(fd != -1 && close(fd) == 0);
    for (int aborts = 0; aborts < 2; aborts++) {
        struct stat stat_of;
        gid_t none[1] = {4};
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(setgroups(1, none) == 0);
        CHECK(setegid(1000) == 0 && seteuid(1000) == 0 && geteuid() == 1000 && getuid() == 0);
        CHECK(open(scratch("/secret"), O_RDONLY) == -1 && errno == EACCES);
        CHECK(mkdir(scratch("/d"), 0700) == -1 && errno == EACCES);
        fd = open(scratch("/u/f"), O_CREAT | O_WRONLY | O_EXCL, 0644);
        CHECK(fd != -1 && write(fd, "by a user\n", 10) == 10 && close(fd) == 0);
        CHECK(stat(scratch("/u/f"), &stat_of) == 0 && stat_of.st_uid == 1000 && stat_of.st_gid == 1000);
        CHECK(seteuid(0) == 0);
        fd = open(scratch("/secret"), O_RDONLY);
        CHECK(fd != -1 && close(fd) == 0);
        CHECK(mkdir(scratch("/d"), 0700) == 0);
        CHECK(seteuid(1000) == 0);
        if (aborts)
            sys_xabort(1);
        else
            CHECK(sys_xend() == 0);
        CHECK(geteuid() == (aborts ? 0 : 1000) && getegid() == (aborts ? 0 : 1000));
        CHECK(seteuid(0) == 0 && setegid(0) == 0);
        CHECK((stat(scratch("/u/f"), &stat_of) == 0 && stat_of.st_uid == 1000) || aborts);
        CHECK((stat(scratch("/d"), &stat_of) == 0 && stat_of.st_uid == 0) || aborts);
        CHECK((unlink(scratch("/u/f")) == 0 && rmdir(scratch("/d")) == 0) != aborts);
        CHECK(getgroups(1, none) == (aborts ? getgroups(0, NULL) : 1));
        CHECK(prctl(PR_GET_DUMPABLE) == 1 || !aborts);
        CHECK(prctl(PR_SET_DUMPABLE, 1) == 0 && setgroups(0, NULL) == 0);
    }
    /* What failed has changed nothing, and it can be paused. */
    CHECK(sys_xbegin(0) == 0);
    CHECK(setgroups(1 << 20, NULL) == -1);
    long id = sys_xpause();
    CHECK(id > 0 && sys_xresume(id) == 0 && seteuid(1000) == 0);
    CHECK(sys_xpause() == -1 && errno == EPERM);
    CHECK(sys_xend() == 0 && seteuid(0) == 0);
    CHECK(unlink(scratch("/secret")) == 0 && rmdir(scratch("/u")) == 0);
    CHECK(rmdir(scratch("")) == 0);
    apart(gives_up);
    apart(makes_as_another);
    apart(uses_what_it_was_given);
    apart(gives_up_and_loses);
    apart(runs_as_it_is);
    apart(with_threads);
}

/* A process of a user's that has all signals wait, in this group, or in one of its own. */
static int listener_of(uid_t user, int group) {
    int ready[2];
    char byte;
    sigset_t all, before;
    sigfillset(&all);
    CHECK(pipe(ready) == 0 && sigprocmask(SIG_SETMASK, &all, &before) == 0);
    int process = fork();
    if (process == 0) {
        CHECK(setresuid(user, user, user) == 0 && write(ready[1], "x", 1) == 1);
        for (;;)
            sleep(100);
    }
    CHECK(process > 0 && setpgid(process, group ? group : process) == 0);
    CHECK(read(ready[0], &byte, 1) == 1 && close(ready[0]) == 0 && close(ready[1]) == 0);
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    return process;
}

/* What the kernel has permitted to this process, or to another program that it runs. */
static unsigned long long kernels_permitted(void) {
    static char text[4096];
    int fd = open("/proc/thread-self/status", O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    CHECK(n > 0 && close(fd) == 0);
    text[n] = 0;
    const char *at = strstr(text, "\nCapPrm:");
    CHECK(at != NULL);
    return strtoull(at + 8, NULL, 16);
}

/* The halves of the capability sets, as capget(2) tells them. */
struct sets {
    uint32_t effective, permitted, inheritable;
};
static uint32_t version_3[2] = {0x20080522, 0};

static int is_permitted_nothing(void) {
    struct sets sets[2];
    CHECK(syscall(SYS_capget, version_3, sets) == 0);
    return (sets[0].permitted | sets[1].permitted | sets[0].effective | sets[1].effective) == 0;
}

/* Becomes a user for good, as far as it can see. */
static void becomes_user(void) {
    struct sets all[2];
    uid_t real, effective, saved;
    CHECK(setgroups(0, NULL) == 0 && setresgid(1000, 1000, 1000) == 0 && setuid(1000) == 0);
    CHECK(getresuid(&real, &effective, &saved) == 0);
    CHECK(real == 1000 && effective == 1000 && saved == 1000 && getgroups(0, NULL) == 0);
    CHECK(is_permitted_nothing());
    CHECK(setuid(0) == -1 && errno == EPERM);
    CHECK(setresuid(-1, -1, 0) == -1 && errno == EPERM);
    CHECK(setresgid(0, 0, 0) == -1 && errno == EPERM);
    CHECK(setgroups(0, NULL) == -1 && errno == EPERM);
    memset(all, 0xff, sizeof all);
    CHECK(syscall(SYS_capset, version_3, all) == -1 && errno == EPERM);
    CHECK(open("/etc/shadow", O_RDONLY) == -1 && errno == EACCES);
    CHECK(kill(getppid(), 0) == -1 && errno == EPERM);
}

static void keeps_for_an_abort(void) {
    unsigned long long before = kernels_permitted();
    int attempt = sys_xbegin(TX_KEEP_CREDENTIALS | TX_RESTART);
    CHECK(attempt >= 0 && getuid() == 0 && geteuid() == 0 && kernels_permitted() == before);
    if (attempt < 2) {
        becomes_user();
        CHECK(sys_xpause() == -1 && errno == EPERM && kernels_permitted() != 0);
        if (attempt == 0)
            sys_xabort(0);
        syscall(SYS_ioctl, -1, 0x7458054c, 0); /* loses a conflict */
        sys_xend();
        CHECK(0);
    }
    CHECK(attempt == 2 && sys_xend() == 0 && getuid() == 0 && kernels_permitted() == before);
}

static void keeps_with_memory(void) {
    unsigned long long before = kernels_permitted();
    int began = sys_xbegin(TX_KEEP_CREDENTIALS | TX_CHECKPOINT);
    if (began == -1 && errno == ENOTSUP)
        return; /* linked with the archive */
    if (began == 0) {
        becomes_user();
        sys_xabort(1);
        CHECK(0);
    }
    CHECK(began == -1 && errno == ECANCELED && getuid() == 0 && kernels_permitted() == before);
}

static void gives_up_by_the_commit(void) {
    CHECK(mkdir(scratch("users"), 0777) == 0 && chmod(scratch("users"), 0777) == 0);
    CHECK(sys_xbegin(TX_KEEP_CREDENTIALS) == 0);
    becomes_user();
    int fd = open(scratch("users/f"), O_CREAT | O_EXCL | O_WRONLY, 0600);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
    CHECK(sys_xend() == 0);
    struct stat of;
    CHECK(stat(scratch("users/f"), &of) == 0 && of.st_uid == 1000 && of.st_gid == 1000);
    CHECK(kernels_permitted() == 0 && is_permitted_nothing());
    CHECK(setresuid(-1, 0, -1) == -1 && getuid() == 1000 && open("/etc/shadow", O_RDONLY) == -1);
}

/* A privilege that is kept reaches neither a child nor another program. */
static void keeps_nothing_over_fork(void) {
    int status;
    CHECK(sys_xbegin(TX_KEEP_CREDENTIALS) == 0);
    becomes_user();
    CHECK(kernels_permitted() != 0);
    int child = fork();
    if (child == 0)
        _exit(kernels_permitted() != 0 || getuid() != 1000);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(kernels_permitted() == 0);
    sys_xabort(1);
    CHECK(getuid() == 1000 && strstr(txos_strerror(), "could not put back: the credentials") != NULL);
}

static void keeps_nothing_over_exec(void) {
    CHECK(sys_xbegin(TX_KEEP_CREDENTIALS) == 0);
    becomes_user();
    execl("/bin/sh", "sh", "-c", "grep -q '^CapPrm:.0*$' /proc/self/status && test $(id -u) = 1000", (char *)NULL);
    CHECK(0);
}

static void keeps_nothing_over_vfork(void) {
    CHECK(sys_xbegin(TX_KEEP_CREDENTIALS) == 0);
    becomes_user();
    CHECK(system("grep -q '^CapPrm:.0*$' /proc/self/status") == 0);
    CHECK(sys_xend() == 0 && kernels_permitted() == 0);
}

static void *does_nothing(void *nothing) {
    return nothing;
}

static void keeps_nothing_with_a_thread(void) {
    pthread_t thread;
    CHECK(sys_xbegin(TX_KEEP_CREDENTIALS) == 0);
    becomes_user();
    CHECK(pthread_create(&thread, NULL, does_nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(kernels_permitted() == 0);
    CHECK(sys_xend() == 0 && getuid() == 1000);
}

/* Capabilities that are given up without another user. */
static void keeps_capabilities(void) {
    struct sets sets[2];
    unsigned long long all = kernels_permitted();
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(TX_KEEP_CREDENTIALS) == 0);
        CHECK(syscall(SYS_capget, version_3, sets) == 0 && (sets[0].permitted & 1) == 1);
        sets[0].effective &= ~1u;
        sets[0].permitted &= ~1u; /* CAP_CHOWN */
        CHECK(syscall(SYS_capset, version_3, sets) == 0);
        CHECK(syscall(SYS_capget, version_3, sets) == 0 && (sets[0].permitted & 1) == 0);
        int fd = open(scratch("chowned"), O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0 && fchown(fd, 1000, 1000) == -1 && errno == EPERM && close(fd) == 0);
        sets[0].effective |= 1;
        sets[0].permitted |= 1;
        CHECK(syscall(SYS_capset, version_3, sets) == -1 && errno == EPERM);
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        CHECK(kernels_permitted() == (commits ? all & ~1ull : all));
    }
}

/* What was held before is sent as root, though the process has given that up. */
static void keeps_for_what_is_held(void) {
    int roots = listener_of(0, 0), users = listener_of(1000, 0), status, ends[2];
    /* Who may end the first when this process may not any more. */
    CHECK(pipe(ends) == 0);
    int warden = fork();
    if (warden == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0 || kill(roots, SIGKILL) != 0);
    }
    CHECK(warden > 0 && sys_xbegin(TX_KEEP_CREDENTIALS | TX_STRICT) == 0);
    CHECK(kill(roots, SIGRTMIN) == 0);
    becomes_user();
    CHECK(kill(roots, SIGRTMIN + 1) == -1 && errno == EPERM && kill(users, SIGRTMIN + 1) == 0);
    CHECK(!has_pending(roots, SIGRTMIN) && !has_pending(users, SIGRTMIN + 1));
    CHECK(sys_xend() == 0 && kernels_permitted() == 0);
    CHECK(has_pending(roots, SIGRTMIN) && !has_pending(roots, SIGRTMIN + 1) && has_pending(users, SIGRTMIN + 1));
    CHECK(kill(users, SIGKILL) == 0 && waitpid(users, &status, 0) == users);
    CHECK(close(ends[1]) == 0 && waitpid(warden, &status, 0) == warden && status == 0);
    CHECK(waitpid(roots, &status, 0) == roots);
}

/* A user without privilege has nothing to keep; what it may do it may do as ever. */
static void keeps_a_users(void) {
    CHECK(setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
    CHECK(sys_xbegin(TX_KEEP_CREDENTIALS) == 0);
    CHECK(setuid(1000) == 0 && setuid(0) == -1 && errno == EPERM && kernels_permitted() == 0);
    CHECK(sys_xend() == 0);
}

static void *begins(void *nothing) {
    CHECK(sys_xbegin(TX_KEEP_CREDENTIALS) == -1 && errno == EBUSY);
    CHECK(strstr(txos_strerror(), "other threads") != NULL);
    return nothing;
}

/* TX_KEEP_CREDENTIALS. */
static void kept_credentials(void) {
    pthread_t thread;
    CHECK(sys_xbegin(TX_KEEP_CREDENTIALS | TX_PROCESSES) == -1 && errno == EINVAL);
    CHECK(sys_xbegin(TX_KEEP_CREDENTIALS | TX_THREADS) == -1 && errno == EINVAL);
    CHECK(sys_xbegin(0) == 0 && sys_xbegin(TX_KEEP_CREDENTIALS) == -1 && errno == EINVAL && sys_xend() == 0);
    struct txos_participant other = {.size = sizeof other};
    CHECK(sys_xbegin(TX_KEEP_CREDENTIALS) == 0 && txos_enlist(&other) == -1 && errno == ENOTSUP && sys_xend() == 0);
    /* From here on the process may have two threads for a moment, so the parts run in others. */
    CHECK(pthread_create(&thread, NULL, begins, NULL) == 0 && pthread_join(thread, NULL) == 0);
    void (*parts[])(void) = {
        keeps_for_an_abort, keeps_with_memory, gives_up_by_the_commit, keeps_nothing_over_fork,
        keeps_nothing_over_exec, keeps_nothing_over_vfork, keeps_nothing_with_a_thread, keeps_capabilities,
        keeps_for_what_is_held, keeps_a_users,
    };
    /* One place for all parts, which this process clears up: they may not any more. */
    scratch("");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        apart(parts[i]);
    CHECK(unlink(scratch("users/f")) == 0 && rmdir(scratch("users")) == 0 && unlink(scratch("chowned")) == 0);
}

/* What is held is sent as who the thread was in the call: no more, and no less, than it was allowed then. */
static void senders(void) {
    int status, roots = listener_of(0, 0), users = listener_of(1000, roots);
    int first = SIGRTMIN, second = first + 1, third = first + 2;
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(kill(roots, first) == 0);
    CHECK(setresuid(1000, 1000, 0) == 0);
    CHECK(kill(roots, second) == -1 && errno == EPERM);
    CHECK(kill(-roots, second) == 0);
    CHECK(setresuid(0, 0, 0) == 0);
    CHECK(sys_xend() == 0);
    CHECK(has_pending(roots, first) && !has_pending(users, first));
    CHECK(!has_pending(roots, second) && has_pending(users, second));
    int process = fork();
    if (process == 0) {
        CHECK(sys_xbegin(0) == 0);
        CHECK(kill(roots, third) == 0);
        CHECK(setresuid(1000, 1000, 1000) == 0);
        CHECK(sys_xend() == 0);
        CHECK(strstr(txos_strerror(), "can't have the credentials again") != NULL);
        _exit(0);
    }
    CHECK(waitpid(process, &status, 0) == process && status == 0);
    CHECK(!has_pending(roots, third));
    CHECK(kill(roots, SIGKILL) == 0 && kill(users, SIGKILL) == 0);
    CHECK(waitpid(roots, &status, 0) == roots && waitpid(users, &status, 0) == users);
}

/* Without the privilege to raise a hard limit. */
static void hard_limits(void) {
    uint32_t header[2] = {0x20080522, 0}, sets[6];
    CHECK(syscall(SYS_capget, header, sets) == 0);
    for (int i = 0; i < 3; i++)
        sets[i] &= ~(1u << 24);
    CHECK(syscall(SYS_capset, header, sets) == 0);
    struct rlimit before, lower, now;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    lower = (struct rlimit){1 << 20, 1 << 21};
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(setrlimit(RLIMIT_FSIZE, &lower) == 0);
        CHECK(getrlimit(RLIMIT_FSIZE, &now) == 0 && now.rlim_cur == 1 << 20 && now.rlim_max == 1 << 21);
        CHECK(syscall(SYS_getrlimit, RLIMIT_FSIZE, &now) == 0 && now.rlim_max == 1 << 21);
        CHECK(setrlimit(RLIMIT_FSIZE, &before) == -1 && errno == EPERM);
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        CHECK(getrlimit(RLIMIT_FSIZE, &now) == 0);
        CHECK(now.rlim_cur == (commits ? 1 << 20 : before.rlim_cur));
        CHECK(now.rlim_max == (commits ? 1 << 21 : before.rlim_max));
    }
}

/* Answers what the kernel says of groups, and does what it is told: a process outside, by shared memory, which nothing that is held goes by. */
static volatile int *board;

static void watch(void) {
    board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    int process = fork();
    if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;; sched_yield())
            if (board[0] > 0) {
                board[1] = getpgid(board[0]);
                board[0] = 0;
            }
    }
    CHECK(process > 0);
}

static int kernels_group(int process) {
    board[0] = process;
    while (board[0])
        sched_yield();
    return board[1];
}

/* A child that was there before: it waits until it is told what to do, and ends when it is told 1. */
enum { ENDS = 1, RUNS = 2, IN_OWN_GROUP = 3, STAYS_IN_SESSION = 4 };

static int waiting_child(int at) {
    board[at] = 0;
    int process = fork();
    if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(40);
        while (board[at] == 0)
            sched_yield();
        if (board[at] == RUNS)
            execlp("sleep", "sleep", "100", NULL);
        if (board[at] == IN_OWN_GROUP)
            while (getpgrp() != getpid())
                sched_yield();
        if (board[at] == STAYS_IN_SESSION && setsid() == getpid()) {
            board[at] = 0;
            pause();
        }
        _exit(board[at]);
    }
    CHECK(process > 0);
    return process;
}

static void ends(int process) {
    CHECK(kill(process, SIGKILL) == 0 && waitpid(process, NULL, 0) == process);
}

/* The group, and a session, come with the commit. */
static void groups_and_sessions(void) {
    int own = getpid(), before = getpgrp(), session = getsid(0);
    watch();
    CHECK(before != own);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(setpgid(0, 0) == 0 && getpgrp() == own && getpgid(0) == own && getpgid(own) == own);
        CHECK(kernels_group(own) == before);
        CHECK(setsid() == -1 && errno == EPERM);
        CHECK(sys_xpause() == -1 && errno == EPERM);
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        CHECK(getpgrp() == (commits ? own : before) && kernels_group(own) == getpgrp());
    }
    CHECK(setpgid(0, before) == 0);
    /* Begun again it is asked for again. */
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_RESTART) >= 0 && getpgrp() == before);
    CHECK(setpgid(own, own) == 0 && getpgrp() == own);
    if (attempts++ < 2)
        ioctl(-1, LOSE);
    CHECK(sys_xend() == 0 && attempts == 3 && kernels_group(own) == own);
    CHECK(setpgid(0, before) == 0);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(setsid() == own && getsid(0) == own && getpgrp() == own && getpgid(own) == own);
        CHECK(setsid() == -1 && errno == EPERM);
        CHECK(setpgid(0, before) == -1 && errno == EPERM);
        CHECK(kill(0, 0) == 0 && sys_xpause() == -1 && errno == EPERM);
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        CHECK(getsid(0) == (commits ? own : session) && getpgrp() == (commits ? own : before));
    }
}

/* Checked as the kernel does it, at once. */
static void groups_are_checked(void) {
    int own = getpid(), before = getpgrp(), child = fork();
    watch();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("sleep", "sleep", "100", NULL);
        _exit(1);
    }
    int other = waiting_child(2), plain = waiting_child(3);
    board[2] = STAYS_IN_SESSION;
    while (board[2])
        sched_yield();
    while (setpgid(child, child) == 0)
        sched_yield(); /* until it has run its program */
    int wrong[9];
    for (int inside = 0; inside < 2; inside++) {
        CHECK(!inside || sys_xbegin(TX_STRICT) == 0);
        const int asked[9][2] = {{0, 0x3fffffff}, {-1, 0}, {0, -1}, {1, 0}, {child, child}, {other, other},
                                 {plain, other}, {0x3fffffff, 0}, {plain, 0x3fffffff}};
        for (int i = 0; i < 9; i++) {
            int errno_ = setpgid(asked[i][0], asked[i][1]) == -1 ? errno : 0;
            CHECK(errno_ != 0 && (!inside || errno_ == wrong[i]));
            wrong[i] = errno_;
        }
        CHECK(wrong[4] == EACCES && wrong[0] == EPERM && wrong[6] == EPERM);
        CHECK(!inside || sys_xend() == 0);
    }
    CHECK(getpgrp() == before && kernels_group(own) == before && kernels_group(plain) == before);
    ends(child);
    ends(other);
    ends(plain);
    /* The leader of a session stays in its group. */
    CHECK(setsid() == own && sys_xbegin(TX_STRICT) == 0);
    CHECK(setpgid(0, 0) == -1 && errno == EPERM && sys_xend() == 0);
}

/* Of children that were there before, the commit changes the group; one joins another's. */
static void groups_of_children(void) {
    int before = getpgrp(), status;
    watch();
    for (int commits = 0; commits < 2; commits++) {
        int one = waiting_child(2), two = waiting_child(3);
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(setpgid(one, 0) == 0 && setpgid(two, one) == 0 && setpgid(0, one) == 0);
        CHECK(getpgid(one) == one && getpgid(two) == one && getpgrp() == one);
        CHECK(kernels_group(one) == before && kernels_group(two) == before && kernels_group(getpid()) == before);
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        CHECK(getpgid(one) == (commits ? one : before) && getpgid(two) == (commits ? one : before));
        CHECK(getpgrp() == (commits ? one : before) && setpgid(0, before) == 0);
        ends(one);
        ends(two);
    }
    /* Who is waited for may wait for its group. It is made then, and an abort puts back what can be. */
    for (int commits = 0; commits < 2; commits++) {
        int one = waiting_child(2), two = waiting_child(3);
        board[2] = IN_OWN_GROUP;
        CHECK(sys_xbegin(0) == 0 && setpgid(two, two) == 0 && setpgid(one, one) == 0);
        CHECK(waitpid(one, &status, 0) == one && WEXITSTATUS(status) == IN_OWN_GROUP);
        CHECK(kernels_group(two) == two);
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        CHECK(getpgid(two) == (commits ? two : before));
        ends(two);
    }
    /* A sleep is a wait. */
    int sleeps = waiting_child(2);
    CHECK(sys_xbegin(TX_STRICT) == 0 && setpgid(sleeps, sleeps) == 0 && usleep(1000) == 0);
    CHECK(kernels_group(sleeps) == sleeps);
    sys_xabort(1);
    CHECK(getpgid(sleeps) == before);
    ends(sleeps);
    /* A signal to the group that waits. */
    int hit = waiting_child(2), spared = waiting_child(3);
    CHECK(sys_xbegin(0) == 0 && setpgid(hit, hit) == 0 && kill(-hit, SIGKILL) == 0);
    sys_xabort(1);
    CHECK(kill(hit, 0) == 0 && waitpid(hit, NULL, WNOHANG) == 0 && getpgid(hit) == before);
    CHECK(sys_xbegin(0) == 0 && setpgid(hit, hit) == 0 && kill(-hit, SIGKILL) == 0 && sys_xend() == 0);
    CHECK(waitpid(hit, &status, 0) == hit && WTERMSIG(status) == SIGKILL);
    CHECK(waitpid(spared, NULL, WNOHANG) == 0);
    ends(spared);
    /* What fails after the commit is reported, and the rest stays. */
    int runs = waiting_child(2);
    CHECK(sys_xbegin(0) == 0 && setpgid(runs, runs) == 0 && close(creat(scratch("made"), 0600)) == 0);
    board[2] = RUNS;
    char name[64], program[64];
    snprintf(name, sizeof name, "/proc/%d/comm", runs);
    do {
        int fd = open(name, O_RDONLY);
        ssize_t n = read(fd, program, sizeof program);
        CHECK(n > 0 && close(fd) == 0);
    } while (memcmp(program, "sleep", 5) != 0);
    CHECK(sys_xend() == 0);
    CHECK(strstr(txos_strerror(), "it runs another program by now") != NULL);
    CHECK(access(scratch("made"), F_OK) == 0 && unlink(scratch("made")) == 0 && getpgid(runs) == before);
    ends(runs);
}

/* As a shell does it: each job has a group of its own, which has the terminal. By the commit it runs its program, and nobody could change
 * its group any more. So that is not held. */
static void groups_of_jobs(void) {
    int own = getpid(), before = getpgrp(), gate[2], status;
    char byte;
    watch();
    signal(SIGTTOU, SIG_IGN);
    for (int round = 0; round < 20; round++) {
        CHECK(sys_xbegin(0) == 0 && pipe(gate) == 0);
        int job = fork();
        if (job == 0) {
            CHECK(close(gate[1]) == 0 && read(gate[0], &byte, 1) == 0);
            execlp("sleep", "sleep", "100", NULL);
            _exit(1);
        }
        CHECK(job > 0 && setpgid(job, job) == 0 && kernels_group(job) == job);
        CHECK(close(gate[0]) == 0 && close(gate[1]) == 0);
        while (setpgid(job, job) == 0)
            sched_yield();
        CHECK(errno == EACCES && sys_xend() == 0 && getpgid(job) == job);
        CHECK(strstr(txos_strerror(), "could not put") == NULL);
        ends(job);
    }
    /* A child is in the group that its parent seems to have, and an abort leaves it there. */
    CHECK(sys_xbegin(0) == 0 && setpgid(0, 0) == 0);
    int child = fork();
    if (child == 0)
        _exit(getpgrp() == own ? 7 : 1);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    sys_xabort(1);
    CHECK(getpgrp() == before);
}

/* A terminal gets no group that is not there: it is made before. */
static void groups_of_terminals(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY), status;
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 && setsid() == getpid());
    int terminal = open(ptsname(master), O_RDWR);
    CHECK(terminal >= 0 && tcgetpgrp(terminal) == getpid());
    int child = fork();
    if (child == 0) {
        int own = getpid(), before = getpgrp();
        signal(SIGTTOU, SIG_IGN);
        for (int commits = 0; commits < 2; commits++) {
            CHECK(sys_xbegin(0) == 0 && setpgid(0, 0) == 0 && tcsetpgrp(terminal, own) == 0);
            CHECK(tcgetpgrp(terminal) == own);
            if (commits)
                CHECK(sys_xend() == 0);
            else
                sys_xabort(1);
            CHECK(getpgrp() == (commits ? own : before));
        }
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void groups(void) {
    apart(groups_and_sessions);
    apart(groups_are_checked);
    apart(groups_of_children);
    apart(groups_of_jobs);
    apart(groups_of_terminals);
}

/* Limits, priorities and the like. */
static void limits(void) {
    struct rlimit before, now, lower = {4096, 8192};
    CHECK(getrlimit(RLIMIT_CORE, &before) == 0);
    cpu_set_t cpus, one, seen;
    CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &cpus))
            CPU_SET(cpu, &one);
    int nice_before = getpriority(PRIO_PROCESS, 0), nicer = nice_before < 15 ? nice_before + 3 : nice_before - 3;
    for (int aborts = 1; aborts >= 0; aborts--) {
        CHECK(sys_xbegin(TX_STRICT) == 0);
        CHECK(setrlimit(RLIMIT_CORE, &lower) == 0);
        CHECK(syscall(SYS_prlimit64, getpid(), RLIMIT_CORE, NULL, &now) == 0 && now.rlim_max == 8192);
        CHECK(setpriority(PRIO_PROCESS, 0, nicer) == 0 && getpriority(PRIO_PROCESS, 0) == nicer);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
        CHECK(syscall(SYS_ioprio_set, 1, 0, 3 << 13) == 0);
        CHECK(syscall(SYS_personality, 0x0040000) != -1);
        if (aborts)
            sys_xabort(1);
        else
            CHECK(sys_xend() == 0);
        CHECK(getrlimit(RLIMIT_CORE, &now) == 0);
        CHECK(now.rlim_max == (aborts ? before.rlim_max : 8192));
        CHECK(getpriority(PRIO_PROCESS, 0) == (aborts ? nice_before : nicer));
        CHECK(sched_getaffinity(0, sizeof seen, &seen) == 0);
        CHECK(CPU_EQUAL(&seen, aborts ? &cpus : &one));
        CHECK((syscall(SYS_ioprio_get, 1, 0) == 3 << 13) != aborts);
        CHECK((syscall(SYS_personality, 0xffffffff) == 0x0040000) != aborts);
    }
    apart(hard_limits);
}

/* The same for the call that finds it lost, as what it looked at first is gone. */
static void wakes_when_it_is_lost(int event, int poll) {
    for (int which = 0, tries = 0; which < 4; tries++) {
        uint64_t number = 1;
        CHECK(tries < 1000);
        (void)read(event, &number, sizeof number);
        number = 1;
        CHECK(which < 3 || write(event, &number, sizeof number) == sizeof number);
        int file = creat(scratch("first"), 0600);
        CHECK(file >= 0 && close(file) == 0);
        atomic_int *looked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(looked != MAP_FAILED);
        int child = fork();
        if (child == 0) {
            while (*looked == 0)
                sched_yield();
            *looked = unlink(scratch("first")) == 0 ? 2 : 3;
            _exit(0);
        }
        struct epoll_event what = {.events = EPOLLIN};
        CHECK(child > 0 && sys_xbegin(0) == 0);
        CHECK(access(scratch("first"), F_OK) == 0);
        *looked = 1;
        while (*looked == 1) {
        }
        switch (which) {
        case 0: CHECK(epoll_wait(poll, &what, 1, 0) == 0); break;
        case 1: CHECK(epoll_ctl(poll, EPOLL_CTL_MOD, event, &what) == 0); break;
        case 2: CHECK(write(event, &number, sizeof number) == sizeof number); break;
        default: CHECK(read(event, &number, sizeof number) == sizeof number && number == 1);
        }
        CHECK(*looked == 2);
        /* If another process commits in the moment of the first look, that is found at the end only. */
        bool lost = access("/", F_OK) == -1;
        CHECK(!lost || errno == ECANCELED);
        sys_xabort(1);
        CHECK(waitpid(child, NULL, 0) == child && munmap(looked, 4096) == 0);
        which += lost;
    }
}

/* What a lost transaction does not keep from the rest of the process. */
static void wakes_in_a_lost_one(void) {
    int event = eventfd(0, EFD_NONBLOCK), poll = epoll_create1(0), ends[2];
    struct epoll_event what = {.events = EPOLLIN};
    CHECK(event != -1 && poll != -1 && pipe(ends) == 0);
    int before = dup(2);
    for (int how = 0; how < 2; how++) {
        uint64_t number = 1;
        CHECK(sys_xbegin(0) == 0);
        ioctl(-1, LOSE);
        CHECK(access("/", F_OK) == -1 && errno == ECANCELED);
        if (how == 0) {
            CHECK(write(event, &number, sizeof number) == sizeof number);
            CHECK(epoll_ctl(poll, EPOLL_CTL_ADD, event, &what) == 0);
            CHECK(epoll_wait(poll, &what, 1, 0) == 1);
            CHECK(read(event, &number, sizeof number) == sizeof number && number == 1);
        } else {
            CHECK(syscall(SYS_write, event, &number, sizeof number) == sizeof number);
            CHECK(syscall(SYS_read, event, &number, sizeof number) == sizeof number);
        }
        /* Other pipes are not. */
        CHECK(write(ends[1], "x", 1) == -1 && errno == ECANCELED);
        sys_xabort(1);
        CHECK(dup2(ends[1], 2) == 2);
        CHECK(sys_xbegin(0) == 0);
        ioctl(-1, LOSE);
        ssize_t told = write(2, "why", 3);
        sys_xabort(1);
        CHECK(dup2(before, 2) == 2);
        char text[4];
        CHECK(told == 3 && read(ends[0], text, 4) == 3 && memcmp(text, "why", 3) == 0);
    }
    wakes_when_it_is_lost(event, poll);
    /* They are no output, also under TX_STRICT. */
    uint64_t one = 1;
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(write(event, &one, sizeof one) == sizeof one && sys_xend() == 0);
    CHECK(read(event, &one, sizeof one) == sizeof one);
    /* One that loses by this very call has made it. */
    static int flag = 1;
    uint64_t number = 1;
    CHECK(sys_xbegin(0) == 0 && txos_abort_if(&flag) == 0);
    CHECK(write(event, &number, sizeof number) == sizeof number);
    CHECK(access("/", F_OK) == -1 && errno == ECANCELED);
    sys_xabort(1);
    CHECK(read(event, &number, sizeof number) == sizeof number && number == 1);
}

static sem_t turn, turned;

static void *replace(void *path) {
    CHECK(sem_wait(&turn) == 0);
    char other[64];
    snprintf(other, sizeof other, "%s-new", (char *)path);
    int fd = open(other, O_CREAT | O_WRONLY, 0600);
    CHECK(fd != -1 && write(fd, "other", 5) == 5 && close(fd) == 0);
    CHECK(rename(other, path) == 0);
    CHECK(sem_post(&turned) == 0);
    return NULL;
}

/* The number of a file stays its object's, also if the next call finds that the transaction is lost. */
static void managed_open_that_loses(void) {
    char path[] = "/var/tmp/managed-XXXXXX", byte;
    int fd = mkstemp(path);
    CHECK(fd != -1 && write(fd, "text", 4) == 4 && close(fd) == 0);
    pthread_t other;
    CHECK(sem_init(&turn, 0, 0) == 0 && sem_init(&turned, 0, 0) == 0);
    CHECK(pthread_create(&other, NULL, replace, path) == 0);
    CHECK(sys_xbegin(TX_MANAGED) == 0);
    fd = open(path, O_RDONLY);
    CHECK(fd != -1 && sem_post(&turn) == 0 && sem_wait(&turned) == 0);
    CHECK(read(fd, &byte, 1) == -1 && errno == ECANCELED);
    int next = dup(0); /* it is not free */
    CHECK(next == -1 && errno == ECANCELED);
    sys_xabort(1);
    CHECK(read(fd, &byte, 1) == -1 && errno == EBADF);
    next = dup(0);
    CHECK(next == fd + 1); /* Nothing else was left open. */
    CHECK(close(fd) == 0 && close(next) == 0);
    CHECK(pthread_join(other, NULL) == 0 && unlink(path) == 0);
}

/* Another thread, outside, as a language's collector: it closes a number, and may open a file. */
static struct {
    int close;
    const char *open;
    int opened;
} collected;

static void *collect(void *unused) {
    (void)unused;
    for (;;) {
        CHECK(sem_wait(&turn) == 0);
        if (collected.close < 0)
            return NULL;
        CHECK(close(collected.close) == 0);
        if (collected.open)
            collected.opened = open(collected.open, O_RDONLY);
        CHECK(sem_post(&turned) == 0);
    }
}

static void collector_closes(int fd, const char *and_opens) {
    collected.close = fd;
    collected.open = and_opens;
    collected.opened = -1;
    CHECK(sem_post(&turn) == 0);
    if (fd >= 0)
        CHECK(sem_wait(&turned) == 0);
    if (and_opens)
        CHECK(collected.opened == fd);
}

static void end_by(int how) {
    if (how == 0)
        CHECK(sys_xend() == 0);
    else
        sys_xabort(1);
}

/* A collector on another thread closes a file that the transaction has opened and lost: its number is free, or a
 * file's that has nothing to do with it. */
static void managed_and_collected(void) {
    char first[] = "/var/tmp/managed-XXXXXX", second[] = "/var/tmp/managed-XXXXXX", text[16];
    pthread_t collector;
    struct stat info;
    int fd = mkstemp(first), other = mkstemp(second), lost, next;
    CHECK(write(fd, "first", 5) == 5 && write(other, "second", 6) == 6 && close(fd) == 0 && close(other) == 0);
    CHECK(sem_init(&turn, 0, 0) == 0 && sem_init(&turned, 0, 0) == 0);
    CHECK(pthread_create(&collector, NULL, collect, NULL) == 0);
    for (int how = 0; how <= 1; how++) {
        /* The number is free: by the only call, and by one of several. */
        for (int calls = 1; calls <= 2; calls++) {
            CHECK(sys_xbegin(TX_MANAGED) == 0);
            lost = open(first, O_RDONLY);
            CHECK(lost >= 0 && (calls == 1 || read(lost, text, 5) == 5));
            collector_closes(lost, NULL);
            end_by(how);
            CHECK(fcntl(lost, F_GETFD) == -1 && errno == EBADF);
        }
        /* It is another's of the same file. */
        for (int calls = 1; calls <= 4; calls++) {
            CHECK(sys_xbegin(TX_MANAGED) == 0);
            lost = open(first, calls == 4 ? O_RDWR : O_RDONLY);
            CHECK(lost >= 0 && (calls == 1 || read(lost, text, 5) == 5));
            collector_closes(lost, first);
            if (calls >= 3) /* Its content becomes another file's in the transaction. */
                CHECK(truncate(first, 0) == 0 && (fd = open(first, O_WRONLY)) >= 0 && write(fd, "first", 5) == 5
                      && close(fd) == 0);
            end_by(how);
            CHECK(read(lost, text, 5) == 5 && memcmp(text, "first", 5) == 0 && close(lost) == 0);
        }
        /* One of the transaction's own gets it. */
        CHECK(sys_xbegin(TX_MANAGED) == 0);
        CHECK(stat(second, &info) == 0 && (lost = open(first, O_RDONLY)) >= 0);
        collector_closes(lost, NULL);
        next = open(second, O_RDONLY);
        CHECK(next == lost && truncate(first, 0) == 0);
        CHECK((fd = open(first, O_WRONLY)) >= 0 && write(fd, "first", 5) == 5 && close(fd) == 0);
        CHECK(read(next, text, 6) == 6 && memcmp(text, "second", 6) == 0);
        end_by(how);
        CHECK(how == 1 || (pread(next, text, 6, 0) == 6 && memcmp(text, "second", 6) == 0));
        CHECK(close(next) == 0);
        /* One from before, and one that shares its place. */
        for (int reads = 0; reads <= 1; reads++) {
            CHECK((lost = open(first, O_RDONLY)) >= 0 && (next = dup(lost)) >= 0);
            CHECK(sys_xbegin(TX_MANAGED) == 0 && stat(second, &info) == 0);
            CHECK(reads ? read(lost, text, 3) == 3 : fstat(lost, &info) == 0);
            collector_closes(lost, second);
            end_by(how);
            CHECK(read(lost, text, 6) == 6 && memcmp(text, "second", 6) == 0 && close(lost) == 0);
            CHECK(lseek(next, 0, SEEK_CUR) == (how == 0 && reads ? 3 : 0) && close(next) == 0);
        }
        /* The number of one from before that the transaction has closed. */
        CHECK((lost = open(second, O_RDONLY)) >= 0);
        CHECK(sys_xbegin(TX_MANAGED) == 0 && close(lost) == 0 && open(first, O_RDONLY) == lost);
        CHECK(read(lost, text, 5) == 5);
        collector_closes(lost, second);
        end_by(how);
        CHECK(read(lost, text, 6) == 6 && memcmp(text, "second", 6) == 0 && close(lost) == 0);
        /* Nothing else was left open. */
        next = dup(0);
        CHECK(next == lost && close(next) == 0);
    }
    collector_closes(-1, NULL);
    CHECK(pthread_join(collector, NULL) == 0 && unlink(first) == 0 && unlink(second) == 0);
}

static void *set_flag(void *flag) {
    __atomic_store_n((int *)flag, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void abort_if(void) {
    static int flag;
    struct stat info;
    CHECK(txos_abort_if(&flag) == -1 && errno == EINVAL);
    CHECK(sys_xbegin(0) == 0);
    CHECK(txos_abort_if(&flag) == 0);
    CHECK(stat("/", &info) == 0);
    pthread_t other;
    long id = sys_xpause();
    CHECK(pthread_create(&other, NULL, set_flag, &flag) == 0 && pthread_join(other, NULL) == 0);
    CHECK(stat("/", &info) == 0);
    CHECK(sys_xresume(id) == 0);
    CHECK(getpid() > 0);
    CHECK(stat("/", &info) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ECANCELED);
    CHECK(reason().reason == TXOS_ASKED);
    /* The flag was that transaction's. */
    CHECK(sys_xbegin(0) == 0);
    CHECK(stat("/", &info) == 0 && sys_xend() == 0);
    /* Its end is a call, too. */
    CHECK(sys_xbegin(0) == 0);
    CHECK(stat("/", &info) == 0);
    CHECK(txos_abort_if(&flag) == 0);
    CHECK(sys_xend() == -1 && errno == ECANCELED && reason().reason == TXOS_ASKED);
    CHECK(sys_xbegin(0) == 0);
    CHECK(txos_abort_if(&flag) == 0 && txos_abort_if(NULL) == 0);
    CHECK(stat("/", &info) == 0 && sys_xend() == 0);
}

static void own_transaction(int signal) {
    CHECK(sys_xbegin(TX_RESTART) == 0);
    CHECK(sys_xend() == 0);
    caught = signal;
}

static void signal_between_attempts(void) {
    handle(SIGALRM, own_transaction);
    for (int how = 0; how < 3; how++) {
        static int times;
        caught = times = 0;
        int attempt = sys_xbegin(TX_RESTART);
        CHECK(attempt == times);
        if (times++ == 0) {
            CHECK(kill(getpid(), SIGALRM) == 0);
            lose(3, how);
        }
        CHECK(caught == SIGALRM && attempt == 1);
        CHECK(sys_xend() == 0);
    }
}

static int blocked(int signal) {
    sigset_t mask;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &mask) == 0);
    return sigismember(&mask, signal);
}

static void masks(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGSYS); /* must not keep the calls from being dispatched */
    CHECK(sys_xbegin(0) == 0);
    CHECK(!blocked(SIGUSR1) && !blocked(SIGALRM));
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(blocked(SIGUSR1) && blocked(SIGSYS));
    sys_xabort(1);
    CHECK(!blocked(SIGUSR1) && !blocked(SIGSYS));
    CHECK(sys_xbegin(0) == 0);
    CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0);
    CHECK(syscall(SYS_rt_sigprocmask, 99, &set, NULL, 8) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, 4) == -1 && errno == EINVAL);
    CHECK(sys_xend() == 0);
    CHECK(blocked(SIGUSR1) && blocked(SIGSYS) && !blocked(SIGALRM));
    CHECK(sys_xbegin(0) == 0); /* begins although SIGSYS is blocked */
    CHECK(blocked(SIGUSR1) && syscall(SYS_getpid) > 0);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
    CHECK(sys_xend() == 0);
    CHECK(!blocked(SIGUSR1) && !blocked(SIGSYS));
}

static void dispositions(void) {
    struct sigaction now;
    handle(SIGUSR2, note);
    CHECK(sys_xbegin(0) == 0);
    handle(SIGUSR2, own_transaction);
    handle(SIGUSR2, SIG_IGN);
    CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == SIG_IGN);
    sys_xabort(1);
    CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == note);
    CHECK(sys_xbegin(0) == 0);
    handle(SIGUSR2, SIG_IGN);
    CHECK(sys_xend() == 0);
    CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == SIG_IGN);
}

static char *page;

static void mend(int signal) {
    caught = signal;
    caught_inside = txos_in_transaction();
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void fault(void) {
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    handle(SIGSEGV, mend);
    CHECK(sys_xbegin(0) == 0);
    page[0] = 1; /* the handler returns by a trapped call */
    CHECK(caught == SIGSEGV && caught_inside && page[0] == 1);
    CHECK(syscall(SYS_getpid) > 0);
    CHECK(sys_xend() == 0);
}

/* As a virtual machine sets it. */
static void fault_with_all_blocked(void) {
    struct sigaction all = {.sa_handler = mend};
    sigfillset(&all.sa_mask);
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(sigaction(SIGSEGV, &all, NULL) == 0);
    CHECK(sys_xbegin(0) == 0);
    *(volatile char *)page = 1;
    CHECK(caught == SIGSEGV && caught_inside && *(volatile char *)page == 1);
    /* Set in the transaction. */
    CHECK(sigaction(SIGSEGV, &all, NULL) == 0);
    CHECK(mprotect(page, 4096, PROT_NONE) == 0);
    *(volatile char *)page = 2;
    CHECK(*(volatile char *)page == 2);
    CHECK(sys_xend() == 0);
}

static void made(char *path) {
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "data", 4) == 4 && close(fd) == 0);
}

static void excluded(void) {
    char path[] = "/var/tmp/txos-scenario-XXXXXX", other[] = "/var/tmp/txos-scenario-XXXXXX", two[2];
    made(path);
    made(other);
    CHECK(txos_exclude("/nonexistent", NULL) == -1 && errno == ENOENT);
    CHECK(txos_exclude(NULL, NULL) == -1 && errno == EFAULT);
    CHECK(txos_exclude(path, NULL) == 1);
    int before = open(path, O_RDONLY), fd;
    CHECK(before >= 0);
    CHECK(sys_xbegin(0) == 0);
    CHECK(txos_exclude(path, NULL) == -1 && errno == EBUSY);
    fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, two, 2) == 2 && memcmp(two, "da", 2) == 0);
    /* Libraries ask for more than they read. */
    struct winsize window;
    struct epoll_event event = {.events = EPOLLIN};
    int poller = epoll_create1(0);
    CHECK(ioctl(fd, TIOCGWINSZ, &window) == -1 && errno == ENOTTY && !isatty(fd));
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
    CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == -1 && errno == EPERM && close(poller) == 0);
    CHECK(read(before, two, 2) == 2 && close(before) == 0);
    /* A transaction that has failed loads as well. */
    CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
    CHECK(open(other, O_RDONLY) == -1 && errno == ECANCELED);
    CHECK(access(path, R_OK) == 0 && (before = open(path, O_RDONLY)) >= 0);
    CHECK(read(before, two, 2) == 2 && memcmp(two, "da", 2) == 0 && close(before) == 0);
    /* On the way there it looks at directories. */
    CHECK(access("/var", F_OK) == 0 && readlink("/", two, 2) == -1 && errno == EINVAL);
    CHECK(access(other, F_OK) == -1 && errno == ECANCELED);
    CHECK(access("tmp", F_OK) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ECANCELED);
    CHECK(read(fd, two, 2) == 2 && memcmp(two, "ta", 2) == 0);
    /* Writing to it is part of a transaction. */
    CHECK(sys_xbegin(0) == 0);
    int out = open(path, O_RDWR);
    CHECK(out >= 0 && write(out, "DATA", 4) == 4);
    sys_xabort(1);
    CHECK(pread(fd, two, 2, 0) == 2 && memcmp(two, "da", 2) == 0 && close(fd) == 0);
    unlink(path);
    unlink(other);
}

static void managed(void) {
    char path[] = "/var/tmp/txos-scenario-XXXXXX", byte;
    made(path);
    int before = open(path, O_RDONLY);
    /* A first call, and more than that. */
    for (int calls = 1; calls <= 2; calls++) {
        CHECK(sys_xbegin(TX_MANAGED) == 0);
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0 && (calls == 1 || read(fd, &byte, 1) == 1));
        sys_xabort(1);
        CHECK(read(fd, &byte, 1) == -1 && errno == EBADF);
        int other = open(path, O_RDONLY);
        CHECK(other >= 0 && other != fd);
        CHECK(close(fd) == 0 && read(other, &byte, 1) == 1 && close(other) == 0);
        CHECK(fcntl(fd, F_GETFD) == -1);
    }
    CHECK(sys_xbegin(TX_MANAGED) == 0);
    CHECK(read(before, &byte, 1) == 1 && byte == 'd' && close(before) == 0);
    sys_xabort(1);
    CHECK(fcntl(before, F_GETFD) == -1);
    /* What is closed after the transaction has lost is closed; what was there before is there still. */
    before = open(path, O_RDONLY);
    CHECK(sys_xbegin(TX_MANAGED) == 0);
    int fd = open(path, O_RDONLY), left = open(path, O_RDONLY);
    CHECK(fd >= 0 && left >= 0 && read(before, &byte, 1) == 1 && write(2, "", 0) == 0);
    CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
    CHECK(close(fd) == 0 && fcntl(1, F_GETFD) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1);
    CHECK(fcntl(fd, F_GETFD) == -1 && fcntl(left, F_GETFD) >= 0 && fcntl(2, F_GETFD) >= 0);
    CHECK(read(before, &byte, 1) == 1 && byte == 'd' && write(2, "", 0) == 0);
    unlink(path);
}

/* A new file in a new directory with a second name outside, and what may become of both. */
static void links_out_of_a_new_directory(void) {
    for (int how = 0; how < 32; how++) {
        char top[] = "/var/tmp/txos-scenario-XXXXXX", text[3];
        struct stat first, second;
        const char *name = how & 1 ? "a/d" : "a/c", *dir = how & 8 ? "b" : "a";
        CHECK(mkdtemp(top) && chdir(top) == 0);
        CHECK(sys_xbegin(how & 16 ? TX_DURABLE : 0) == 0);
        CHECK(mkdir("a", 0700) == 0);
        int fd = open("a/c", O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0 && write(fd, "x", 1) == 1 && link("a/c", "l") == 0);
        if (how & 1)
            CHECK(rename("a/c", "a/d") == 0);
        if (how & 2)
            CHECK(link("l", "a/e") == 0 && link("a/e", "m") == 0);
        if (how & 4)
            CHECK(unlink(name) == 0);
        if (how & 8)
            CHECK(rename("a", "b") == 0);
        CHECK(write(fd, "y", 1) == 1);
        CHECK(sys_xend() == 0);
        CHECK(write(fd, "z", 1) == 1 && close(fd) == 0);
        unsigned names = 1 + (how & 2 ? 2 : 0) + (how & 4 ? 0 : 1);
        CHECK(stat("l", &first) == 0 && first.st_nlink == names && first.st_size == 3);
        fd = open("l", O_RDONLY);
        CHECK(fd >= 0 && read(fd, text, 3) == 3 && memcmp(text, "xyz", 3) == 0 && close(fd) == 0);
        char path[32];
        snprintf(path, sizeof path, "%s%s", dir, name + 1);
        CHECK(how & 4 ? access(path, F_OK) == -1 : stat(path, &second) == 0 && second.st_ino == first.st_ino);
        unlink(path);
        snprintf(path, sizeof path, "%s/e", dir);
        if (how & 2)
            CHECK(stat(path, &second) == 0 && second.st_ino == first.st_ino && unlink(path) == 0 && unlink("m") == 0);
        CHECK(unlink("l") == 0 && rmdir(dir) == 0 && chdir("/") == 0 && rmdir(top) == 0);
    }
}

/* What a language's runtime makes once and for all can be made in a lost transaction as well. */
static void managed_and_lost(void) {
    static int flag = 1;
    struct epoll_event event = {.events = EPOLLIN};
    struct rlimit limit;
    pthread_t thread;
    char *arguments[] = {"true", NULL};
    int ends[2], pair[2], out;
    char byte;
    /* One whose other end another process has. */
    CHECK(pipe(ends) == 0);
    out = ends[1];
    pid_t first = fork(), child;
    CHECK(first != -1);
    if (first == 0) {
        close(out);
        _exit(read(ends[0], &byte, 1) != 0);
    }
    close(ends[0]);
    for (int at_once = 0; at_once <= 1; at_once++) {
        int next = dup(0);
        CHECK(close(next) == 0 && sys_xbegin(TX_MANAGED) == 0);
        if (at_once)
            CHECK(txos_abort_if(&flag) == 0); /* It loses by the first of these calls. */
        else
            CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
        CHECK(pipe(ends) == 0 && ends[0] == next);
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > 0);
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == -1 && errno == ECANCELED);
        int poll = epoll_create1(0), other = eventfd(0, 0);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        CHECK(socket(AF_UNIX, SOCK_STREAM, 0) == -1 && errno == ECANCELED);
        CHECK(close(other) == 0);
        /* A pipe to itself, but no other one. */
        CHECK(write(ends[1], "p", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'p');
        CHECK(write(pair[0], "s", 1) == -1 && errno == ECANCELED);
        CHECK(write(out, "s", 1) == -1 && errno == ECANCELED);
        /* A thread, but no process. */
        CHECK(pthread_create(&thread, NULL, set_flag, &flag) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(fork() == -1 && errno == ECANCELED);
        CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, arguments + 1) == ECANCELED);
        CHECK(sys_xend() == -1 && errno == ECANCELED);
        CHECK(epoll_ctl(poll, EPOLL_CTL_ADD, ends[0], &event) == 0);
        CHECK(write(ends[1], "p", 1) == 1 && epoll_wait(poll, &event, 1, 0) == 1);
        CHECK(write(pair[0], "s", 1) == 1 && read(pair[1], &byte, 1) == 1 && byte == 's');
        int numbers[] = {poll, ends[0], ends[1], pair[0], pair[1]};
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            CHECK(close(numbers[i]) == 0 && fcntl(numbers[i], F_GETFD) == -1);
    }
    int status;
    CHECK(close(out) == 0 && waitpid(first, &status, 0) == first && status == 0);
    /* Without TX_MANAGED nothing would close them. */
    CHECK(sys_xbegin(0) == 0 && ioctl(-1, LOSE) == -1);
    CHECK(pipe(ends) == -1 && errno == ECANCELED && sys_xend() == -1);
}

/* What has no part in a transaction outlives it: a language's runtime may have made it for good. */
static void managed_and_live(void) {
    char byte, path[] = "/var/tmp/txos-scenario-XXXXXX";
    int low, ends[2], pair[2];
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct epoll_event event = {.events = EPOLLIN};
    struct sigaction action;
    made(path);
    snprintf(name.sun_path, sizeof name.sun_path, "%s-socket", path);
    for (int lost = 0; lost <= 1; lost++) {
        low = open(path, O_RDONLY);
        handle(SIGUSR2, SIG_DFL);
        CHECK(sys_xbegin(TX_MANAGED) == 0);
        /* The pipe gets the number of what was closed. */
        CHECK(close(low) == 0 && pipe(ends) == 0 && ends[0] == low);
        int poll = epoll_create1(EPOLL_CLOEXEC), device = open("/dev/zero", O_RDONLY);
        int file = open(path, O_RDWR), bound = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && file >= 0 && bound >= 0);
        CHECK(bind(bound, (struct sockaddr *)&name, sizeof name) == 0);
        handle(SIGUSR2, SIG_IGN);
        if (lost)
            CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
        sys_xabort(1);
        CHECK(epoll_ctl(poll, EPOLL_CTL_ADD, ends[0], &event) == 0);
        CHECK(write(ends[1], "p", 1) == 1 && epoll_wait(poll, &event, 1, 0) == 1);
        CHECK(read(ends[0], &byte, 1) == 1 && byte == 'p' && read(device, &byte, 1) == 1);
        CHECK(write(pair[0], "s", 1) == 1 && read(pair[1], &byte, 1) == 1 && byte == 's');
        CHECK(fcntl(poll, F_GETFD) == FD_CLOEXEC && fcntl(ends[0], F_GETFD) == 0);
        CHECK(read(file, &byte, 1) == -1 && errno == EBADF);
        CHECK(listen(bound, 1) == -1 && errno == EBADF && access(name.sun_path, F_OK) == -1);
        CHECK(sigaction(SIGUSR2, NULL, &action) == 0 && action.sa_handler == SIG_IGN);
        int numbers[] = {poll, device, file, bound, ends[0], ends[1], pair[0], pair[1]};
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            CHECK(close(numbers[i]) == 0 && fcntl(numbers[i], F_GETFD) == -1);
    }
    handle(SIGUSR2, SIG_DFL);
    unlink(path);
}

static sigjmp_buf away;

static void jump(int signal) {
    (void)signal;
    siglongjmp(away, 1);
}

static void fault_and_restart(int signal) {
    caught = signal;
    sys_xabort(0);
}

static void leaving_a_handler(void) {
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    handle(SIGSEGV, jump);
    CHECK(sys_xbegin(0) == 0);
    if (sigsetjmp(away, 1) == 0)
        page[0] = 1;
    CHECK(txos_in_transaction() && !blocked(SIGSEGV));
    CHECK(sys_xend() == 0);
    handle(SIGSEGV, fault_and_restart);
    caught = 0;
    if (sys_xbegin(TX_RESTART) == 0)
        page[0] = 1;
    CHECK(caught == SIGSEGV && !blocked(SIGSEGV));
    CHECK(sys_xend() == 0);
}

static void sigsys(int signal, siginfo_t *info, void *context) {
    (void)context;
    caught = signal;
    caught_inside = info->si_value.sival_int;
}

static void foreign(void) {
    struct sigaction action = {.sa_sigaction = sigsys, .sa_flags = SA_SIGINFO}, now;
    union sigval value = {.sival_int = 42};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    CHECK(sys_xbegin(0) == 0 && sys_xend() == 0);
    CHECK(sigqueue(getpid(), SIGSYS, value) == 0);
    CHECK(caught == SIGSYS && caught_inside == 42);
    CHECK(sigaction(SIGSYS, NULL, &now) == 0 && now.sa_sigaction == sigsys);
    /* One that is set later does not take the dispatch away. */
    CHECK((void *)signal(SIGSYS, note) == (void *)sigsys);
    CHECK(sys_xbegin(0) == 0);
    CHECK(syscall(SYS_getpid) > 0);
    CHECK(sigaction(SIGSYS, NULL, &now) == 0 && now.sa_handler == note);
    CHECK(sys_xend() == 0);
    caught = 0;
    raise(SIGSYS);
    CHECK(caught == SIGSYS);
    handle(SIGSYS, SIG_IGN);
    raise(SIGSYS);
    handle(SIGSYS, SIG_DFL);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSYS);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

static void alternate_stack(void) {
    static char room[65536];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room}, old;
    CHECK(sys_xbegin(0) == 0);
    CHECK(sigaltstack(&stack, NULL) == 0);
    CHECK(sigaltstack(NULL, &old) == 0 && old.ss_sp == room && old.ss_flags == 0);
    CHECK(syscall(SYS_getpid) > 0);
    CHECK(sigaltstack(NULL, &old) == 0 && old.ss_size == sizeof room);
    stack.ss_size = 100;
    CHECK(sigaltstack(&stack, NULL) == -1 && errno == ENOMEM);
    CHECK(sys_xend() == 0);
    CHECK(sigaltstack(NULL, &old) == 0 && old.ss_sp == room && old.ss_size == sizeof room);
    struct sigaction action = {.sa_handler = mend, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(sys_xbegin(0) == 0);
    page[0] = 1;
    CHECK(caught == SIGSEGV && caught_inside);
    CHECK(sys_xend() == 0);
    /* One that goes within the transaction, as at the end of a thread. */
    char *own = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack = (stack_t){.ss_sp = own, .ss_size = 65536};
    CHECK(sigaltstack(&stack, NULL) == 0);
    CHECK(sys_xbegin(0) == 0);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
    CHECK(sigaltstack(NULL, &old) == 0 && old.ss_flags == SS_DISABLE);
    CHECK(syscall(SYS_munmap, own, 65536) == 0);
    CHECK(sys_xend() == 0);
    CHECK(sigaltstack(NULL, &old) == 0 && old.ss_flags == SS_DISABLE);
}

static int one_of_many(int i) {
    volatile int times = 0;
    int attempt = sys_xbegin(TX_RESTART);
    if (attempt != times)
        return 0;
    free(malloc(1 + i * 700));
    if (times++ < i % 3)
        lose(i % 5, i % 3);
    return sys_xend() == 0;
}

static void *many(void *argument) {
    for (int i = 0; i < 300; i++)
        *(long *)argument += one_of_many(i);
    return argument;
}

static void threads(void) {
    enum { N = 8 };
    pthread_t thread[N];
    long done[N] = {0};
    for (int round = 0; round < 3; round++) {
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 32768);
        for (int i = 0; i < N; i++)
            CHECK(pthread_create(&thread[i], i % 2 ? &small : NULL, many, &done[i]) == 0);
        for (int i = 0; i < N; i++) {
            void *answer;
            CHECK(pthread_join(thread[i], &answer) == 0 && answer == &done[i]);
        }
    }
    for (int i = 0; i < N; i++)
        CHECK(done[i] == 900);
}

static void *look_around(void *argument) {
    int *inside = argument;
    *inside = txos_in_transaction();
    CHECK(!blocked(SIGUSR1));
    CHECK(sys_xbegin(0) == 0 && sys_xend() == 0);
    return NULL;
}

static void thread_in_transaction(void) {
    int inside = 7;
    pthread_t thread;
    CHECK(sys_xbegin(0) == 0);
    CHECK(pthread_create(&thread, NULL, look_around, &inside) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(inside == 0 && txos_in_transaction());
    CHECK(sys_xend() == 0);
    CHECK(stats().unsupported == 1);
}

/* Links among what is not versioned are made at once, as sem_open(3) makes its semaphores. */
static void live_links(void) {
    char name[64], path[80], other[80];
    snprintf(name, sizeof name, "/txos-test-links-%d", getpid());
    snprintf(path, sizeof path, "/dev/shm%s", name);
    snprintf(other, sizeof other, "%s-other", path);
    CHECK(sys_xbegin(0) == 0);
    sem_t *sem = sem_open(name, O_CREAT | O_EXCL, 0600, 1);
    CHECK(sem != SEM_FAILED && sem_wait(sem) == 0);
    CHECK(sem_open(name, O_CREAT | O_EXCL, 0600, 1) == SEM_FAILED && errno == EEXIST);
    CHECK(sem_close(sem) == 0 && sem_unlink(name) == 0);
    /* A path, and a file without one. */
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    CHECK(fd >= 0 && link(path, other) == 0);
    CHECK(link(path, other) == -1 && errno == EEXIST);
    CHECK(unlink(other) == 0 && unlink(path) == 0 && close(fd) == 0);
    char own[64];
    fd = open("/dev/shm", O_TMPFILE | O_WRONLY, 0600);
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    CHECK(fd >= 0 && linkat(AT_FDCWD, own, AT_FDCWD, other, AT_SYMLINK_FOLLOW) == 0);
    CHECK(linkat(fd, "", AT_FDCWD, path, AT_EMPTY_PATH) == 0 || geteuid() != 0);
    CHECK(link(other, "/proc/txos") == -1);
    sys_xabort(1);
    /* They stay. */
    CHECK(unlink(other) == 0);
    unlink(path);
    close(fd);
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(link("/proc/version", path) == -1);
    CHECK(sys_xend() == -1 && reason().reason == TXOS_UNSUPPORTED);
}

static int raw_thread(void *argument) {
    *(volatile int *)argument = 1 + txos_in_transaction();
    return 0;
}

static void raw_clone(void) {
    static char stack[65536] __attribute__((aligned(16)));
    volatile int ran = 0;
    int status;
    CHECK(sys_xbegin(0) == 0);
    pid_t child = clone(raw_thread, stack + sizeof stack, CLONE_VFORK | SIGCHLD, (void *)&ran);
    CHECK(child > 0 && ran == 0); /* in a copy */
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(sys_xend() == 0);
}

static void *ends_inside(void *argument) {
    if (sys_xbegin(TX_RESTART) != 0)
        return NULL;
    access("/", F_OK);
    if (argument)
        pthread_exit(argument);
    syscall(SYS_exit, 0);
    return NULL;
}

static void exit_of_a_thread(void) {
    pthread_t thread;
    void *answer = NULL;
    CHECK(pthread_create(&thread, NULL, ends_inside, &answer) == 0);
    CHECK(pthread_join(thread, &answer) == 0 && answer == &answer);
    CHECK(pthread_create(&thread, NULL, ends_inside, NULL) == 0);
    CHECK(pthread_join(thread, &answer) == 0);
    CHECK(sys_xbegin(0) == 0 && sys_xend() == 0);
}

static int status_of(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void end_inside(int how) {
    CHECK(sys_xbegin(0) == 0);
    access("/", F_OK);
    if (how == 0)
        exit(5);
    if (how == 1)
        _exit(5);
    syscall(SYS_exit, 5);
}

static void exit_of_the_process(void) {
    for (int how = 0; how < 3; how++) {
        pid_t child = fork();
        if (child == 0)
            end_inside(how);
        CHECK(status_of(child) == 5);
    }
}

static void fork_in_transaction(void) {
    CHECK(sys_xbegin(TX_RESTART) == 0);
    for (int how = 0; how < 2; how++) {
        pid_t child = how ? (pid_t)syscall(SYS_fork) : fork();
        if (child == 0) {
            if (txos_in_transaction() || blocked(SIGUSR1) || access("/", F_OK) != 0)
                _exit(1);
            if (sys_xbegin(0) != 0 || access("/", F_OK) != 0 || sys_xend() != 0)
                _exit(2);
            _exit(9);
        }
        CHECK(status_of(child) == 9);
        CHECK(txos_in_transaction());
    }
    CHECK(sys_xend() == 0);
    CHECK(stats().unsupported == 2);
    /* A child of a thread that only had one: dispatch is not inherited, and begins anew. */
    pid_t child = fork();
    if (child == 0) {
        CHECK(sys_xbegin(0) == 0);
        CHECK(syscall(SYS_getpid) == getpid() && stats().trapped > 0);
        CHECK(sys_xend() == 0);
        _exit(9);
    }
    CHECK(status_of(child) == 9);
}

static void spawn_in_transaction(void) {
    char *const echo[] = {"sh", "-c", "exit 6", NULL};
    CHECK(sys_xbegin(0) == 0);
    pid_t child = vfork();
    if (child == 0)
        _exit(8);
    CHECK(status_of(child) == 8 && txos_in_transaction());
    CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, echo, environ) == 0);
    CHECK(status_of(child) == 6 && txos_in_transaction());
    child = vfork();
    if (child == 0) {
        execve("/bin/sh", echo, environ);
        _exit(1);
    }
    CHECK(status_of(child) == 6);
    int status = system("exit 4");
    CHECK(WEXITSTATUS(status) == 4 && txos_in_transaction());
    CHECK(posix_spawn(&child, "/nonexistent", NULL, NULL, echo, environ) == ENOENT);
    CHECK(sys_xend() == 0);
}

static void strict(void) {
    CHECK(sys_xbegin(TX_STRICT | TX_RESTART) == 0);
    CHECK(fork() == -1 && errno == ECANCELED);
    CHECK(access("/", F_OK) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ECANCELED);
    CHECK(reason().reason == TXOS_UNSUPPORTED && strstr(reason().what, "process"));
    CHECK(access("/", F_OK) == 0);
}

static void exec_in_transaction(void) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(sys_xbegin(0) == 0);
        execl("/nonexistent", "x", NULL);
        if (errno != ENOENT || access("/", F_OK) != 0 || !txos_in_transaction())
            _exit(1);
        execl("/", "x", NULL);
        if (errno != EACCES || access("/", F_OK) != -1 || errno != ECANCELED)
            _exit(1);
        execl("/bin/sh", "sh", "-c", "exit 3", NULL);
        _exit(2);
    }
    CHECK(status_of(child) == 3);
}

static void *resumes(void *argument) {
    long id = *(long *)argument;
    if (sys_xresume(id) != 0 || !txos_in_transaction())
        return NULL;
    /* It began on another stack: it can't begin again. */
    if (ioctl(-1, LOSE) != -1 || errno != ECANCELED || sys_xend() != -1 || errno != ECANCELED)
        return NULL;
    return argument;
}

static void pause_and_resume(void) {
    CHECK(sys_xbegin(0) == 0);
    long id = sys_xpause();
    CHECK(id > 0 && !txos_in_transaction() && !blocked(SIGUSR1));
    struct txos_stats a = stats();
    CHECK(access("/", F_OK) == 0 && syscall(SYS_getpid) > 0);
    CHECK(stats().calls == a.calls);
    CHECK(sys_xbegin(0) == 0 && sys_xend() == 0); /* another one meanwhile */
    pid_t child = fork();
    if (child == 0)
        _exit(sys_xresume(id) == -1 && errno == EINVAL ? 9 : 1);
    CHECK(status_of(child) == 9);
    CHECK(sys_xresume(id) == 0 && txos_in_transaction());
    CHECK(sys_xresume(id) == -1 && errno == EBUSY);
    CHECK(sys_xend() == 0);
    CHECK(sys_xresume(id) == -1 && errno == EINVAL);
    /* Restart after a pause. */
    volatile int times = 0;
    int attempt = sys_xbegin(TX_RESTART);
    CHECK(attempt == times);
    id = sys_xpause();
    CHECK(id > 0 && sys_xresume(id) == 0);
    if (times++ == 0)
        lose(3, 1);
    CHECK(attempt == 1 && sys_xend() == 0);
    /* In another thread. */
    CHECK(sys_xbegin(TX_RESTART) == 0);
    id = sys_xpause();
    pthread_t thread;
    void *answer;
    CHECK(pthread_create(&thread, NULL, resumes, &id) == 0);
    CHECK(pthread_join(thread, &answer) == 0 && answer == &id);
}

static void dispatch_is_ours(void) {
    char selector = 0;
    CHECK(sys_xbegin(0) == 0);
    CHECK(prctl(59, 1, 0, 0, &selector) == -1 && errno == EBUSY);
    CHECK(prctl(PR_SET_NAME, "scenario") == 0);
    CHECK(sys_xend() == 0);
}

/* The command of an in-process transaction. */
static void command(void) {
    CHECK(txos_in_transaction());
    CHECK(!getenv("TXOS_IN_PROCESS") && !getenv("LD_PRELOAD"));
    CHECK(sys_xpause() == -1 && errno == EPERM);
    CHECK(sys_xbegin(0) == 0 && sys_xend() == 0);
    CHECK(sys_xend() == -1 && errno == EPERM);
    puts("done");
}

static void command_that_fails(void) {
    exit(6);
}

static void command_that_loses(void) {
    ioctl(-1, LOSE);
    puts("never");
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
#define SCENARIO(name) {#name, name}
    SCENARIO(basics),
    SCENARIO(refusals),
    SCENARIO(no_dispatch),
    SCENARIO(nesting),
    SCENARIO(restart),
    SCENARIO(canceled),
    SCENARIO(interposed),
    SCENARIO(registers_in_trap),
    SCENARIO(signals),
    SCENARIO(signal_after_its_handler),
    SCENARIO(waits_for_signals),
    SCENARIO(nobody_to_connect_to),
    SCENARIO(signals_to_others),
    SCENARIO(credentials),
    SCENARIO(kept_credentials),
    SCENARIO(senders),
    SCENARIO(ends_of_pipes),
    SCENARIO(locked_and_written),
    SCENARIO(log_of_another_user),
    SCENARIO(interrupted),
    SCENARIO(interrupted_otherwise),
    SCENARIO(interrupted_in_a_conflict),
    SCENARIO(a_child_without_handlers),
    SCENARIO(attributes_of_a_directory),
    SCENARIO(limits),
    SCENARIO(groups),
    SCENARIO(signal_between_attempts),
    SCENARIO(signal_at_once),
    SCENARIO(abort_if),
    SCENARIO(managed_open_that_loses),
    SCENARIO(managed_and_collected),
    SCENARIO(wakes_in_a_lost_one),
    SCENARIO(masks),
    SCENARIO(dispositions),
    SCENARIO(fault),
    SCENARIO(fault_with_all_blocked),
    SCENARIO(excluded),
    SCENARIO(managed),
    SCENARIO(links_out_of_a_new_directory),
    SCENARIO(managed_and_live),
    SCENARIO(managed_and_lost),
    SCENARIO(leaving_a_handler),
    SCENARIO(foreign),
    SCENARIO(alternate_stack),
    SCENARIO(threads),
    SCENARIO(thread_in_transaction),
    SCENARIO(live_links),
    SCENARIO(raw_clone),
    SCENARIO(exit_of_a_thread),
    SCENARIO(exit_of_the_process),
    SCENARIO(fork_in_transaction),
    SCENARIO(spawn_in_transaction),
    SCENARIO(strict),
    SCENARIO(exec_in_transaction),
    SCENARIO(pause_and_resume),
    SCENARIO(dispatch_is_ours),
    SCENARIO(command),
    SCENARIO(command_that_fails),
    SCENARIO(command_that_loses),
};

RUN_ONE_OF(scenarios)
