/* What the runtime costs, in a program linked with it: calls outside of a transaction against the C
 * library's own, begin and end, and calls inside by both ways. A measurement, no test:
 *
 *     cc -O2 measure.c $(txos config --cflags --libs) -ldl -lm && taskset -c 1 ./a.out
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "txos.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* The best of several rounds, in ns. */
#define BEST(rounds, times, ...)                                                                   \
    ({                                                                                             \
        double best = 1e18;                                                                        \
        for (int r = 0; r < (rounds); r++) {                                                       \
            double start = now();                                                                  \
            for (int i = 0; i < (times); i++) {                                                    \
                __VA_ARGS__;                                                                             \
            }                                                                                      \
            double took = (now() - start) / (times);                                               \
            if (took < best)                                                                       \
                best = took;                                                                       \
        }                                                                                          \
        best;                                                                                      \
    })

typedef long (*function)(long, long, long, long);
static char buffer[64];
static struct stat st;

/* On /dev/null, which will be this descriptor. */
enum { FD = 9 };

static const struct {
    const char *name;
    function linked;
    long args[4];
} calls[] = {
#define CALL(name, ...) {#name, (function)name, {__VA_ARGS__}}
    CALL(read, FD, (long)buffer, 1),
    CALL(write, FD, (long)buffer, 1),
    CALL(pread, FD, (long)buffer, 1, 0),
    CALL(lseek, FD, 0, 0),
    CALL(stat, (long)"/tmp", (long)&st),
    CALL(lstat, (long)"/tmp", (long)&st),
    CALL(fstat, FD, (long)&st),
    CALL(access, (long)"/tmp", 0),
    CALL(open, (long)"/nonexistent", O_RDONLY),
    CALL(close, -1),
    CALL(unlink, (long)"/nonexistent"),
    CALL(readlink, (long)"/proc/self", (long)buffer, 9),
    CALL(fcntl, FD, F_GETFD, 0),
};

static long call(int c, function f) {
    const long *a = calls[c].args;
    return f(a[0], a[1], a[2], a[3]);
}

int main(void) {
    void *libc = dlopen("libc.so.6", RTLD_LAZY);
    enum { N = sizeof calls / sizeof *calls };
    double logs = 0;
    dup2(open("/dev/null", O_RDWR), FD);
    for (int c = 0; c < N; c++) {
        function own = (function)dlsym(libc, calls[c].name);
        double a = 1e18, b = 1e18;
        for (int r = 0; r < 40; r++) { /* in turns: both have the same neighbours on the machine */
            double x = BEST(1, 20000, call(c, own));
            double y = BEST(1, 20000, call(c, calls[c].linked));
            a = x < a ? x : a;
            b = y < b ? y : b;
        }
        printf("%-10s C library %7.1f ns  interposed %7.1f ns  %.3f\n", calls[c].name, a, b, b / a);
        logs += log(b / a);
    }
    printf("geometric mean of %d: %.3f\n\n", N, exp(logs / N));

    printf("empty transaction        %8.1f ns\n", BEST(20, 20000, (sys_xbegin(0), sys_xend())));
    printf("native call, lingering   %8.1f ns\n", BEST(20, 20000, syscall(SYS_getppid)));
    for (int i = 0; i < 20; i++)
        access("/", F_OK);
    printf("native call, disarmed    %8.1f ns\n", BEST(20, 20000, syscall(SYS_getppid)));
    printf("two rt_sigprocmask       %8.1f ns\n",
           BEST(20, 20000, syscall(SYS_rt_sigprocmask, 0, 0, buffer, 8),
                syscall(SYS_rt_sigprocmask, 0, 0, buffer, 8)));
    char selector = 0;
    printf("arm and disarm           %8.1f ns\n",
           BEST(20, 20000, prctl(59, 1, 0, 0, &selector), prctl(59, 0, 0, 0, 0)));
    sys_xbegin(0);
    printf("trapped getppid          %8.1f ns\n", BEST(20, 20000, syscall(SYS_getppid)));
    printf("trapped umask            %8.1f ns\n", BEST(20, 20000, syscall(SYS_umask, 022)));
    printf("interposed umask         %8.1f ns\n", BEST(20, 20000, umask(022)));
    printf("interposed fstat         %8.1f ns\n", BEST(20, 20000, fstat(FD, &st)));
    sys_xend();
    return 0;
}
