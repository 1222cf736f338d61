/* What the measured programs share. Each is compiled twice: with the library, and with -DNATIVE
 * without it, where a transaction is nothing. */
#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef NATIVE
#define TX_RESTART 1
#define TX_PROCESSES 1
#define TX_DURABLE 2
static inline int sys_xbegin(int flags, ...) {
    (void)flags;
    return 0;
}
static inline int sys_xend(void) {
    return 0;
}
static inline const char *txos_strerror(void) {
    return "no transactions here";
}
#else
#include "txos.h"
#endif

/* Ends the program; what it was measuring is worth nothing. */
__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...) {
    char what[512];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    fprintf(stderr, "%s: %s (%s)\n", what, strerror(errno), txos_strerror());
    _exit(1);
}

/* Nothing that is measured may fail. */
#define MUST(call)                                                                                 \
    ({                                                                                             \
        __typeof__(call) answer_ = (call);                                                         \
        if (answer_ < 0)                                                                           \
            die("%s", #call);                                                                      \
        answer_;                                                                                   \
    })

__attribute__((unused)) static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Makes a directory whose own directories ext4 puts far from each other: where many files were
 * deleted lately, new ones are dear for some minutes, and nobody is to pay for those before. */
__attribute__((unused)) static void make_apart(const char *directory) {
    int flags;
    MUST(mkdir(directory, 0755));
    int fd = MUST(open(directory, O_RDONLY | O_DIRECTORY));
    if (!ioctl(fd, FS_IOC_GETFLAGS, &flags)) {
        flags |= FS_TOPDIR_FL;
        ioctl(fd, FS_IOC_SETFLAGS, &flags); /* not ext4: there it does not matter */
    }
    MUST(close(fd));
}

/* A transaction of more than one call, so that the library and its store have been used before. */
__attribute__((unused)) static void use_once(const char *stem, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s.before", stem);
    MUST(sys_xbegin(flags));
    MUST(mkdir(path, 0755));
    strcat(path, "/inside");
    MUST(close(MUST(open(path, O_WRONLY | O_CREAT, 0644))));
    MUST(sys_xend());
}

/* A clock that costs little and makes no system call. */
static inline uint64_t ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(t));
    return t;
#endif
}

/* Keeps the calling thread on processor number n of those it may use. */
__attribute__((unused)) static void pin(int n) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) || !CPU_COUNT(&all))
        return;
    n %= CPU_COUNT(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

#endif
