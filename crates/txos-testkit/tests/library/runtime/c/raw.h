/* System calls past the C library, and the library's functions where they are linked in.
 *
 * A program that is compiled without the library runs the same code natively: its functions are
 * weak references then.
 */
#ifndef RAW_H
#define RAW_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <txos.h>

#pragma weak sys_xbegin
#pragma weak sys_xend
#pragma weak sys_xabort
#pragma weak sys_xpause
#pragma weak sys_xresume
#pragma weak txos_strerror
#pragma weak txos_abort_reason
#pragma weak txos_in_transaction
#pragma weak txos_stats
#pragma weak txos_name
#pragma weak txos_prepare
#pragma weak txos_finish
#pragma weak sys_xjoin
#pragma weak txos_share

/* One system call instruction of the program's own: nothing but the kernel, or what dispatches its
 * calls, sees it. Returns as syscall(2) does. */
static inline long raw6(long number, long a, long b, long c, long d, long e, long f)
{
    long answer;
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    answer = x0;
#else
    return syscall(number, a, b, c, d, e, f);
#endif
    if (answer < 0 && answer >= -4095) {
        errno = (int)-answer;
        return -1;
    }
    return answer;
}

#define RAW_SIX(number, a, b, c, d, e, f, ...) \
    raw6(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define RAW(number, ...) RAW_SIX(number, __VA_ARGS__, 0, 0, 0, 0, 0, 0)

/* Calls that newer architectures don't have: their libc function is all there is. */
#define NO_CALL (-1L)
#ifndef SYS_open
#define SYS_open NO_CALL
#define SYS_creat NO_CALL
#define SYS_stat NO_CALL
#define SYS_lstat NO_CALL
#define SYS_access NO_CALL
#define SYS_mkdir NO_CALL
#define SYS_mknod NO_CALL
#define SYS_link NO_CALL
#define SYS_symlink NO_CALL
#define SYS_readlink NO_CALL
#define SYS_unlink NO_CALL
#define SYS_rmdir NO_CALL
#define SYS_rename NO_CALL
#define SYS_chmod NO_CALL
#define SYS_chown NO_CALL
#define SYS_lchown NO_CALL
#define SYS_dup2 NO_CALL
#define SYS_poll NO_CALL
#define SYS_utimes NO_CALL
#endif
#ifndef SYS_renameat
#define SYS_renameat NO_CALL
#endif
#if !defined(SYS_newfstatat) && defined(SYS_fstatat)
#define SYS_newfstatat SYS_fstatat
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif

#endif
