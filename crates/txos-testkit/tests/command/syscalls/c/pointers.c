/* Calls with pointers that lead nowhere: what the kernel answers to each. A line for each call and pointer, the
 * same natively and in a transaction; a program that dies of one says no more.
 *
 * The calls of the C library's functions are made twice: what was looked at once may be answered by others than
 * the kernel. */
#define _GNU_SOURCE
#include "../../../library/runtime/c/raw.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

enum { PAGE = 4096 };

/* Where pointers lead. */
static struct pointer {
    const char *name;
    char *at;
} bad[16];
static int bads;
/* Read-only memory: bad to write to, and good to read from. */
static char *constant;
/* Three bytes, and then nothing. */
static char *edge;

static void say(const char *call, const char *pointer, long answer)
{
    char line[256];
    int n = answer < 0 ? snprintf(line, sizeof line, "%s %s: -%ld\n", call, pointer, -answer)
                       : snprintf(line, sizeof line, "%s %s: %s\n", call, pointer, answer ? "+" : "0");
    RAW(SYS_write, 1, line, n);
}

static char *pages(int protection, int and_nothing)
{
    char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        _exit(3);
    memset(at, 'a', 2 * PAGE);
    if (and_nothing)
        munmap(at + PAGE, PAGE);
    mprotect(at, PAGE, protection);
    return at;
}

static void prepare(void)
{
    char *hole = pages(PROT_READ, 1) + PAGE;
    edge = pages(PROT_READ | PROT_WRITE, 1) + PAGE - 3;
    constant = pages(PROT_READ, 0);
    struct pointer all[] = {
        {"null", NULL},
        {"one", (char *)1},
        {"low", (char *)(uintptr_t)0xfff0},
        {"nothing", hole},
        {"none", pages(PROT_NONE, 0)},
        {"edge", edge},
        {"kernel", (char *)(uintptr_t)0xffff800000000000ull},
        {"between", (char *)(uintptr_t)0x8000000000000000ull},
        {"last", (char *)(uintptr_t)-1},
    };
    bads = sizeof all / sizeof *all;
    memcpy(bad, all, sizeof all);
}

/* An answer, with the errno of one that failed. */
static void answered(const char *call, const char *pointer, long answer)
{
    say(call, pointer, answer < 0 ? -errno : answer);
}

/* A call with each pointer: P stands for it. */
#define EACH(call, ...)                                     \
    for (int i = 0; i < bads; i++) {                        \
        char *P = bad[i].at;                                \
        answered(call, bad[i].name, RAW(__VA_ARGS__));      \
    }
/* The same of the C library's function, twice. */
#define TWICE(call, ...)                                            \
    for (int i = 0; i < 2 * bads; i++) {                            \
        char *P = bad[i / 2].at;                                    \
        answered(call, bad[i / 2].name, (long)(__VA_ARGS__));       \
    }
/* And what is written to read-only memory. */
#define FILLED(call, ...)                               \
    EACH(call, __VA_ARGS__)                             \
    {                                                   \
        char *P = constant;                             \
        answered(call, "constant", RAW(__VA_ARGS__));   \
    }
#define FILLED_TWICE(call, ...)                                 \
    TWICE(call, __VA_ARGS__)                                    \
    for (int i = 0; i < 2; i++) {                               \
        char *P = constant;                                     \
        answered(call, "constant", (long)(__VA_ARGS__));        \
    }

static char room[1 << 16];
enum { HERE = AT_FDCWD };

static void paths(void)
{
    TWICE("open", open(P, O_RDONLY));
    TWICE("open-creat", open(P, O_RDWR | O_CREAT, 0600));
    TWICE("openat", openat(HERE, P, O_RDONLY));
    TWICE("access", access(P, R_OK));
    TWICE("faccessat", faccessat(HERE, P, R_OK, 0));
    TWICE("stat", stat(P, (struct stat *)room));
    TWICE("lstat", lstat(P, (struct stat *)room));
    TWICE("fstatat", fstatat(HERE, P, (struct stat *)room, 0));
    TWICE("fstatat-empty", fstatat(HERE, P, (struct stat *)room, AT_EMPTY_PATH));
    TWICE("statx", statx(HERE, P, 0, STATX_BASIC_STATS, (struct statx *)room));
    TWICE("readlink", readlink(P, room, 100));
    TWICE("readlinkat", readlinkat(HERE, P, room, 100));
    TWICE("getxattr", getxattr(P, "user.x", room, 100));
    TWICE("lgetxattr", lgetxattr(P, "user.x", room, 100));
    TWICE("getxattr-name", getxattr("f", P, room, 100));
    TWICE("listxattr", listxattr(P, room, 100));
    TWICE("llistxattr", llistxattr(P, room, 100));
    FILLED_TWICE("stat-to", stat("f", (struct stat *)P));
    FILLED_TWICE("lstat-to", lstat("f", (struct stat *)P));
    FILLED_TWICE("fstatat-to", fstatat(HERE, "f", (struct stat *)P, 0));
    FILLED_TWICE("statx-to", statx(HERE, "f", 0, STATX_BASIC_STATS, (struct statx *)P));
    FILLED_TWICE("readlink-to", readlink("l", P, 100));
    FILLED_TWICE("readlinkat-to", readlinkat(HERE, "l", P, 100));
    FILLED_TWICE("getxattr-to", getxattr("f", "user.note", P, 100));
    FILLED_TWICE("listxattr-to", listxattr("f", P, 100));
    EACH("creat", SYS_creat, P, 0600);
    EACH("openat2", SYS_openat2, HERE, P, ((uint64_t[3]){O_RDONLY}), 24);
    EACH("openat2-how", SYS_openat2, HERE, "f", P, 24);
    EACH("openat2-more", SYS_openat2, HERE, "f", P, PAGE);
    EACH("faccessat2", SYS_faccessat2, HERE, P, R_OK, AT_EACCESS);
    EACH("mkdir", SYS_mkdir, P, 0700);
    EACH("mkdirat", SYS_mkdirat, HERE, P, 0700);
    EACH("mknod", SYS_mknod, P, S_IFIFO | 0600, 0);
    EACH("mknodat", SYS_mknodat, HERE, P, S_IFIFO | 0600, 0);
    EACH("rmdir", SYS_rmdir, P);
    EACH("unlink", SYS_unlink, P);
    EACH("unlinkat", SYS_unlinkat, HERE, P, 0);
    EACH("link", SYS_link, P, "new");
    EACH("link-to", SYS_link, "f", P);
    EACH("linkat", SYS_linkat, HERE, P, HERE, "new", 0);
    EACH("linkat-to", SYS_linkat, HERE, "f", HERE, P, 0);
    EACH("symlink", SYS_symlink, P, "new");
    EACH("symlink-to", SYS_symlink, "f", P);
    EACH("symlinkat", SYS_symlinkat, P, HERE, "new");
    EACH("rename", SYS_rename, P, "new");
    EACH("rename-to", SYS_rename, "f", P);
    EACH("renameat", SYS_renameat, HERE, P, HERE, "new");
    EACH("renameat2", SYS_renameat2, HERE, P, HERE, "new", 0);
    EACH("renameat2-to", SYS_renameat2, HERE, "f", HERE, P, 0);
    EACH("truncate", SYS_truncate, P, 0);
    EACH("chmod", SYS_chmod, P, 0600);
    EACH("fchmodat", SYS_fchmodat, HERE, P, 0600);
    EACH("chown", SYS_chown, P, -1, -1);
    EACH("lchown", SYS_lchown, P, -1, -1);
    EACH("fchownat", SYS_fchownat, HERE, P, -1, -1, 0);
    EACH("utime", SYS_utime, P, NULL);
    EACH("utimes", SYS_utimes, P, NULL);
    EACH("chdir", SYS_chdir, P);
    EACH("statfs", SYS_statfs, P, room);
    EACH("setxattr", SYS_setxattr, P, "user.x", "1", 1, 0);
    EACH("setxattr-name", SYS_setxattr, "f", P, "1", 1, 0);
    EACH("removexattr", SYS_removexattr, P, "user.x");
    EACH("removexattr-name", SYS_removexattr, "f", P);
}

static void buffers(void)
{
    int f = open("f", O_RDWR), dir = open("d", O_RDONLY | O_DIRECTORY), pipes[2];
    struct pollfd one = {.fd = f, .events = POLLIN};
    FILLED("fstat", SYS_fstat, f, P);
    FILLED("statfs-to", SYS_statfs, "f", P);
    FILLED("fstatfs-to", SYS_fstatfs, f, P);
    FILLED("getcwd", SYS_getcwd, P, PAGE);
    FILLED("getdents64", SYS_getdents64, dir, P, PAGE);
    RAW(SYS_lseek, dir, 0, SEEK_SET);
    FILLED("getdents", SYS_getdents, dir, P, PAGE);
    FILLED("pread", SYS_pread64, f, P, 100, 0);
    FILLED("pread-end", SYS_pread64, f, P, 100, 1 << 20);
    FILLED("pread-none", SYS_pread64, f, P, 0, 0);
    EACH("preadv", SYS_preadv, f, P, 2, 0, 0);
    FILLED("preadv-part", SYS_preadv, f, ((struct iovec[]){{room, 4}, {P, 100}}), 2, 0, 0);
    /* Of pages that the transaction has changed. */
    answered("pwrite", "good", RAW(SYS_pwrite64, f, "xyz", 3, 1));
    FILLED("pread-changed", SYS_pread64, f, P, 100, 0);
    FILLED("pread-changed-end", SYS_pread64, f, P, 100, 1 << 20);
    FILLED("preadv-changed", SYS_preadv, f, ((struct iovec[]){{room, 4}, {P, 100}}), 2, 0, 0);
    EACH("pwrite", SYS_pwrite64, f, P, 100, 10);
    EACH("pwrite-none", SYS_pwrite64, f, P, 0, 10);
    EACH("pwritev", SYS_pwritev, f, P, 2, 0, 0);
    EACH("pwritev-part", SYS_pwritev, f, ((struct iovec[]){{"1234", 4}, {P, 100}}), 2, 20, 0);
    EACH("write-much", SYS_pwrite64, f, P, 1 << 20, 8192);
    EACH("setxattr-value", SYS_setxattr, "f", "user.y", P, 10, 0);
    EACH("utimensat-times", SYS_utimensat, HERE, "f", P, 0);
    EACH("utimes-times", SYS_utimes, "f", P);
    EACH("utime-times", SYS_utime, "f", P);
    EACH("futimesat-times", SYS_futimesat, HERE, "f", P);
    FILLED("fcntl-getlk", SYS_fcntl, f, F_GETLK, P);
    EACH("fcntl-setlk", SYS_fcntl, f, F_SETLK, P);
    FILLED("ioctl-fionread", SYS_ioctl, f, FIONREAD, P);
    EACH("ioctl-fionbio", SYS_ioctl, f, FIONBIO, P);
    FILLED("pipe2", SYS_pipe2, P, 0);
    EACH("poll", SYS_poll, P, 1, 0);
    EACH("ppoll-time", SYS_ppoll, &one, 1, P, NULL, 8);
    EACH("select", SYS_select, 8, P, NULL, NULL, (&(struct timeval){0}));
    EACH("copy_file_range", SYS_copy_file_range, f, P, f, NULL, 1, 0);
    EACH("sendfile", SYS_sendfile, f, f, P, 0);
    if (pipe(pipes) == 0) {
        answered("pipe write", "good", RAW(SYS_write, pipes[1], "abcdefgh", 8));
        EACH("pipe read", SYS_read, pipes[0], P, 0);
        FILLED("ioctl-pipe", SYS_ioctl, pipes[0], FIONREAD, P);
    }
    long got = RAW(SYS_pread64, f, room, 100, 0);
    RAW(SYS_write, 1, room, got);
    RAW(SYS_write, 1, "\n", 1);
}

static void sockets(void)
{
    int s = socket(AF_UNIX, SOCK_DGRAM, 0), pair[2] = {-1, -1};
    struct msghdr header = {.msg_iov = (struct iovec[]){{room, 1}}, .msg_iovlen = 1};
    EACH("socketpair", SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, P);
    answered("socketpair", "good", RAW(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, pair));
    EACH("bind", SYS_bind, s, P, sizeof(struct sockaddr_un));
    EACH("connect", SYS_connect, s, P, sizeof(struct sockaddr_un));
    EACH("sendto", SYS_sendto, s, "x", 1, 0, P, sizeof(struct sockaddr_un));
    EACH("sendmsg", SYS_sendmsg, pair[0], P, 0);
    EACH("recvmsg", SYS_recvmsg, pair[0], P, MSG_DONTWAIT);
    FILLED("getsockname", SYS_getsockname, s, P, (&(socklen_t){100}));
    EACH("getsockname-size", SYS_getsockname, s, room, P);
    for (int i = 0; i < bads; i++) {
        header.msg_control = bad[i].at, header.msg_controllen = 64;
        answered("sendmsg-control", bad[i].name, RAW(SYS_sendmsg, pair[0], &header, 0));
        header.msg_control = NULL, header.msg_controllen = 0;
        header.msg_name = bad[i].at, header.msg_namelen = 20;
        answered("sendmsg-name", bad[i].name, RAW(SYS_sendmsg, s, &header, 0));
        header.msg_name = NULL, header.msg_namelen = 0;
    }
}

static void signals(void)
{
    uint64_t set = 1ull << (SIGUSR1 - 1);
    FILLED("sigprocmask-old", SYS_rt_sigprocmask, SIG_BLOCK, NULL, P, 8);
    EACH("sigprocmask", SYS_rt_sigprocmask, SIG_BLOCK, P, NULL, 8);
    FILLED("sigprocmask-both", SYS_rt_sigprocmask, SIG_BLOCK, &set, P, 8);
    EACH("sigprocmask-strange", SYS_rt_sigprocmask, 17, P, NULL, 8);
    answered("sigprocmask-strange", "good", RAW(SYS_rt_sigprocmask, 17, &set, NULL, 8));
    FILLED("sigaction-old", SYS_rt_sigaction, SIGUSR1, NULL, P, 8);
    EACH("sigaction", SYS_rt_sigaction, SIGUSR1, P, NULL, 8);
    EACH("sigaction-sys", SYS_rt_sigaction, SIGSYS, P, NULL, 8);
    EACH("sigaction-number", SYS_rt_sigaction, 999, P, NULL, 8);
    FILLED("sigaltstack-old", SYS_sigaltstack, NULL, P);
    EACH("sigaltstack", SYS_sigaltstack, P, NULL);
    FILLED("sigpending", SYS_rt_sigpending, P, 8);
}

/* A path whose page goes away between two looks at it. */
static void taken_away(void)
{
    for (int how = 0; how < 2; how++) {
        char *path = pages(PROT_READ | PROT_WRITE, 0);
        strcpy(path, "f");
        for (int i = 0; i < 2; i++)
            answered("there", "page", stat(path, (struct stat *)room));
        if (how == 0)
            munmap(path, PAGE);
        else
            mprotect(path, PAGE, PROT_NONE);
        for (int i = 0; i < 2; i++)
            answered("gone", "page", stat(path, (struct stat *)room));
        answered("gone", "raw", RAW(SYS_stat, path, room));
        answered("gone", "open", RAW(SYS_open, path, O_RDONLY));
    }
    char *out = pages(PROT_READ | PROT_WRITE, 0);
    answered("there", "room", RAW(SYS_stat, "f", out));
    mprotect(out, PAGE, PROT_READ);
    answered("gone", "room", RAW(SYS_stat, "f", out));
}

int main(void)
{
    prepare();
    paths();
    buffers();
    sockets();
    signals();
    taken_away();
    say("end", "", 0);
    return 0;
}
