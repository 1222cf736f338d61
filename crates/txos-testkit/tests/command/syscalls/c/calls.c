/* calls list|prepare|plain|all|commit|abort
 *
 * Makes every system call that a transaction takes part in, or that touches nothing of others, with
 * arguments that are good, and says what each answered. "prepare" makes the files that they work on, below
 * the working directory; "list" names the cases and where they can be made. "plain" makes those that a command takes
 * part in, "all" every one. "commit" and "abort" make
 * those of them in one transaction of the thread which such a transaction carries out; the first of the
 * descriptors from before are closed in it, so that what is opened gets numbers that are not the kernel's.
 */
#include "cases.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <utime.h>

#define HERE AT_FDCWD
static char buffer[8192];
static int top; /* the working directory at the start */

static int file(int flags)
{
    return (int)RAW(SYS_open, at("f"), flags, 0644);
}

static int dir(void)
{
    return (int)RAW(SYS_open, current, O_RDONLY | O_DIRECTORY);
}

static void shut(int fd)
{
    if (RAW(SYS_close, fd) != 0)
        say(" not closed: E%d", errno);
}

static void text(long n)
{
    is(n);
    if (n > 0)
        say(" %.*s", (int)(n < 12 ? n : 12), buffer);
}

static void about(const struct stat *st)
{
    say(" %o %ld %ld %d", st->st_mode, (long)st->st_size, (long)st->st_nlink, (int)st->st_uid);
}

static struct iovec *pieces(void)
{
    static char one[3], two[40];
    static struct iovec v[2];
    memset(one, '1', sizeof one);
    memset(two, '2', sizeof two);
    v[0] = (struct iovec){one, sizeof one};
    v[1] = (struct iovec){two, 4};
    return v;
}

/* Files: opening, reading, writing. */
CASE(open, BOTH) { int fd = (int)is(file(O_WRONLY | O_APPEND)); is(RAW(SYS_write, fd, "more\n", 5)); shut(fd); }
CASE(openat, BOTH) { int d = dir(), fd = (int)is(RAW(SYS_openat, d, "new", O_CREAT | O_EXCL | O_RDWR, 0640)); shut(fd); shut(d); }
CASE(openat2, BOTH)
{
    struct open_how how = {.flags = O_CREAT | O_WRONLY, .mode = 0600, .resolve = RESOLVE_BENEATH};
    int d = dir();
    int fd = (int)is(RAW(SYS_openat2, d, "new", &how, sizeof how));
    is(RAW(SYS_openat2, d, "../open/f", &how, sizeof how));
    shut(fd);
    shut(d);
}
CASE(creat, BOTH) { int fd = (int)is(RAW(SYS_creat, at("f"), 0600)); shut(fd); is(RAW(SYS_creat, at("new"), 0600)); shut(fd); }
CASE(close, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_close, fd)); is(RAW(SYS_close, fd)); }
CASE(close_range, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_close_range, fd, fd, 0)); is(RAW(SYS_fstat, fd, buffer)); }
CASE(read, BOTH) { int fd = file(O_RDONLY); text(RAW(SYS_read, fd, buffer, 100)); is(RAW(SYS_read, fd, buffer, 100)); shut(fd); }
CASE(pread64, BOTH) { int fd = file(O_RDONLY); text(RAW(SYS_pread64, fd, buffer, 5, 3)); shut(fd); }
CASE(readv, BOTH) { int fd = file(O_RDONLY); struct iovec *v = pieces(); is(RAW(SYS_readv, fd, v, 2)); say(" %.3s", (char *)v->iov_base); shut(fd); }
CASE(preadv, BOTH) { int fd = file(O_RDONLY); struct iovec *v = pieces(); is(RAW(SYS_preadv, fd, v, 2, 2, 0)); say(" %.3s", (char *)v->iov_base); shut(fd); }
CASE(preadv2, BOTH) { int fd = file(O_RDONLY); struct iovec *v = pieces(); is(RAW(SYS_preadv2, fd, v, 2, -1, -1, 0)); say(" %.3s", (char *)v->iov_base); shut(fd); }
CASE(write, BOTH) { int fd = file(O_RDWR); is(RAW(SYS_write, fd, "written", 7)); text(RAW(SYS_pread64, fd, buffer, 12, 0)); shut(fd); }
CASE(pwrite64, BOTH) { int fd = file(O_RDWR); is(RAW(SYS_pwrite64, fd, "written", 7, 9000)); shut(fd); }
CASE(writev, BOTH) { int fd = file(O_RDWR); is(RAW(SYS_writev, fd, pieces(), 2)); shut(fd); }
CASE(pwritev, BOTH) { int fd = file(O_RDWR); is(RAW(SYS_pwritev, fd, pieces(), 2, 4, 0)); shut(fd); }
CASE(pwritev2, BOTH) { int fd = file(O_RDWR); is(RAW(SYS_pwritev2, fd, pieces(), 2, 4, 0, 0x10)); shut(fd); }
CASE(lseek, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_lseek, fd, -2, SEEK_END)); text(RAW(SYS_read, fd, buffer, 100)); shut(fd); }
CASE(truncate, BOTH) { is(RAW(SYS_truncate, at("f"), 5)); is(RAW(SYS_truncate, at("none"), 5)); }
CASE(ftruncate, BOTH) { int fd = file(O_RDWR); is(RAW(SYS_ftruncate, fd, 5000)); shut(fd); }
CASE(fallocate, BOTH) { int fd = file(O_RDWR); is(RAW(SYS_fallocate, fd, 0, 0, 9000)); is(RAW(SYS_fallocate, fd, 3, 0, 4)); shut(fd); }
CASE(copy_file_range, BOTH)
{
    int from = file(O_RDONLY), to = (int)RAW(SYS_open, at("new"), O_CREAT | O_WRONLY, 0644);
    is(RAW(SYS_copy_file_range, from, 0, to, 0, 100, 0));
    shut(from);
    shut(to);
}
CASE(sendfile, BOTH)
{
    int from = file(O_RDONLY), to = (int)RAW(SYS_open, at("new"), O_CREAT | O_WRONLY, 0644);
    is(RAW(SYS_sendfile, to, from, 0, 7));
    shut(from);
    shut(to);
}
CASE(splice, BOTH)
{
    int p[2], from = file(O_RDONLY), to = (int)RAW(SYS_open, at("new"), O_CREAT | O_WRONLY, 0644);
    RAW(SYS_pipe2, p, 0);
    is(RAW(SYS_splice, from, 0, p[1], 0, 7, 0));
    is(RAW(SYS_splice, p[0], 0, to, 0, 7, 0));
    is(RAW(SYS_splice, from, 0, to, 0, 7, 0));
    shut(p[0]), shut(p[1]), shut(from), shut(to);
}
CASE(tee, BOTH)
{
    int p[2], q[2];
    RAW(SYS_pipe2, p, 0);
    RAW(SYS_pipe2, q, 0);
    is(RAW(SYS_write, p[1], "through", 7));
    is(RAW(SYS_tee, p[0], q[1], 4, 0));
    text(RAW(SYS_read, q[0], buffer, 100));
    shut(p[0]), shut(p[1]), shut(q[0]), shut(q[1]);
}
CASE(vmsplice, BOTH)
{
    int p[2];
    RAW(SYS_pipe2, p, 0);
    is(RAW(SYS_vmsplice, p[1], pieces(), 2, 0));
    text(RAW(SYS_read, p[0], buffer, 100));
    shut(p[0]), shut(p[1]);
}

/* Looking. */
CASE(stat, BOTH) { struct stat st; is(RAW(SYS_stat, at("l"), &st)); about(&st); is(RAW(SYS_stat, at("none"), &st)); }
CASE(lstat, BOTH) { struct stat st; is(RAW(SYS_lstat, at("l"), &st)); about(&st); }
CASE(fstat, BOTH) { struct stat st; int fd = file(O_RDONLY); is(RAW(SYS_fstat, fd, &st)); about(&st); shut(fd); }
CASE(newfstatat, BOTH) { struct stat st; int d = dir(); is(RAW(SYS_newfstatat, d, "l", &st, AT_SYMLINK_NOFOLLOW)); about(&st); shut(d); }
CASE(statx, BOTH) { struct statx st; is(RAW(SYS_statx, HERE, at("f"), 0, STATX_BASIC_STATS, &st)); say(" %o %ld", st.stx_mode, (long)st.stx_size); }
CASE(access, BOTH) { is(RAW(SYS_access, at("f"), R_OK)); is(RAW(SYS_access, at("none"), R_OK)); }
CASE(faccessat, BOTH) { int d = dir(); is(RAW(SYS_faccessat, d, "d", X_OK)); shut(d); }
CASE(faccessat2, BOTH) { is(RAW(SYS_faccessat2, HERE, at("l"), R_OK, AT_SYMLINK_NOFOLLOW)); }
static void names(long number)
{
    int d = dir();
    unsigned sum = 0, seen = 0;
    for (long n; (n = RAW(number, d, buffer, sizeof buffer)) > 0;)
        for (long i = 0; i < n; i += *(unsigned short *)(buffer + i + 16), seen++)
            for (const char *c = buffer + i + (number == SYS_getdents ? 18 : 19); *c; c++)
                sum += (unsigned char)*c;
    say(" %u %u", seen, sum);
    shut(d);
}
CASE(getdents, BOTH) { names(SYS_getdents); }
CASE(getdents64, BOTH) { names(SYS_getdents64); }
CASE(readlink, BOTH) { text(RAW(SYS_readlink, at("l"), buffer, 100)); is(RAW(SYS_readlink, at("f"), buffer, 100)); }
CASE(readlinkat, BOTH) { text(RAW(SYS_readlinkat, HERE, at("l"), buffer, 100)); }
CASE(statfs, BOTH) { struct statfs sfs; is(RAW(SYS_statfs, at("f"), &sfs)); say(" %d", sfs.f_bsize > 0); }
CASE(fstatfs, BOTH) { struct statfs sfs; int fd = file(O_RDONLY); is(RAW(SYS_fstatfs, fd, &sfs)); shut(fd); }
CASE(ustat, BOTH) { struct stat st; RAW(SYS_stat, "/proc", &st); is(RAW(SYS_ustat, st.st_dev, buffer)); }
CASE(readahead, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_readahead, fd, 0, 100)); shut(fd); }
CASE(fadvise64, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_fadvise64, fd, 0, 100, POSIX_FADV_WILLNEED)); shut(fd); }
CASE(cachestat, BOTH)
{
    uint64_t range[2] = {0, 0}, out[5];
    int fd = file(O_RDONLY);
    is(RAW(NR_cachestat, fd, range, out, 0));
    shut(fd);
}
CASE(file_getattr, BOTH) { is(RAW(NR_file_getattr, HERE, at("f"), buffer, 24, 0)); is(RAW(NR_file_getattr, HERE, at("none"), buffer, 24, 0)); }

/* Names. */
CASE(mkdir, BOTH) { is(RAW(SYS_mkdir, at("new"), 0750)); is(RAW(SYS_mkdir, at("new"), 0750)); }
CASE(mkdirat, BOTH) { int d = dir(); is(RAW(SYS_mkdirat, d, "new", 0711)); shut(d); }
CASE(mknod, BOTH) { is(RAW(SYS_mknod, at("new"), S_IFIFO | 0600, 0)); }
CASE(mknodat, BOTH) { is(RAW(SYS_mknodat, HERE, at("new"), S_IFREG | 0640, 0)); }
CASE(rmdir, BOTH) { is(RAW(SYS_rmdir, at("e"))); is(RAW(SYS_rmdir, at("d"))); }
CASE(unlink, BOTH) { is(RAW(SYS_unlink, at("f"))); is(RAW(SYS_unlink, at("f"))); }
CASE(unlinkat, BOTH) { is(RAW(SYS_unlinkat, HERE, at("e"), AT_REMOVEDIR)); is(RAW(SYS_unlinkat, HERE, at("l"), 0)); }
CASE(link, BOTH) { is(RAW(SYS_link, at("f"), at("new"))); }
CASE(linkat, BOTH) { is(RAW(SYS_linkat, HERE, at("l"), HERE, at("new"), AT_SYMLINK_FOLLOW)); }
CASE(symlink, BOTH) { is(RAW(SYS_symlink, "d/x", at("new"))); is(RAW(SYS_symlink, "d/x", at("f"))); }
CASE(symlinkat, BOTH) { int d = dir(); is(RAW(SYS_symlinkat, "d/x", d, "new")); shut(d); }
CASE(rename, BOTH) { is(RAW(SYS_rename, at("f"), at("d/x"))); }
CASE(renameat, BOTH) { is(RAW(SYS_renameat, HERE, at("f"), HERE, at("new"))); }
CASE(renameat2, BOTH) { is(RAW(SYS_renameat2, HERE, at("f"), HERE, at("d/x"), 1)); is(RAW(SYS_renameat2, HERE, at("f"), HERE, at("d/x"), 2)); }

/* Attributes. */
CASE(chmod, BOTH) { is(RAW(SYS_chmod, at("f"), 0421)); }
CASE(fchmod, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_fchmod, fd, 0421)); shut(fd); }
CASE(fchmodat, BOTH) { is(RAW(SYS_fchmodat, HERE, at("l"), 0421)); }
CASE(fchmodat2, BOTH) { is(RAW(NR_fchmodat2, HERE, at("f"), 0421, AT_SYMLINK_NOFOLLOW)); }
CASE(chown, BOTH) { is(RAW(SYS_chown, at("l"), 12, 34)); }
CASE(fchown, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_fchown, fd, 12, 34)); shut(fd); }
CASE(lchown, BOTH) { is(RAW(SYS_lchown, at("l"), 12, 34)); }
CASE(fchownat, BOTH) { is(RAW(SYS_fchownat, HERE, at("d"), 12, -1, 0)); }
CASE(utime, BOTH) { struct utimbuf t = {100, 200}; is(RAW(SYS_utime, at("f"), &t)); }
CASE(utimes, BOTH) { struct timeval t[2] = {{100, 1}, {200, 2}}; is(RAW(SYS_utimes, at("f"), t)); }
CASE(futimesat, BOTH) { struct timeval t[2] = {{100, 1}, {200, 2}}; is(RAW(SYS_futimesat, HERE, at("d"), t)); }
CASE(utimensat, BOTH) { struct timespec t[2] = {{100, 1}, {200, 2}}; is(RAW(SYS_utimensat, HERE, at("l"), t, AT_SYMLINK_NOFOLLOW)); }
CASE(setxattr, BOTH) { is(RAW(SYS_setxattr, at("f"), "user.a", "value", 5, 0)); }
CASE(lsetxattr, BOTH) { is(RAW(SYS_lsetxattr, at("f"), "user.a", "value", 5, XATTR_CREATE)); }
CASE(fsetxattr, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_fsetxattr, fd, "user.note", "value", 5, XATTR_REPLACE)); shut(fd); }
CASE(setxattrat, BOTH)
{
    struct { uint64_t value; uint32_t size, flags; } args = {(uint64_t)"value", 5, XATTR_CREATE};
    int d = dir();
    is(RAW(NR_setxattrat, d, "f", 0, "user.a", &args, sizeof args));
    is(RAW(NR_setxattrat, d, "f", 0, "user.a", &args, sizeof args));
    is(RAW(NR_setxattrat, d, "f", 0, "user.a", &args, 8));
    args.flags = 0;
    is(RAW(NR_setxattrat, d, "", AT_EMPTY_PATH, "user.a", &args, sizeof args));
    shut(d);
}
CASE(getxattr, BOTH) { text(RAW(SYS_getxattr, at("l"), "user.note", buffer, 100)); }
CASE(lgetxattr, BOTH) { text(RAW(SYS_lgetxattr, at("f"), "user.none", buffer, 100)); }
CASE(fgetxattr, BOTH) { int fd = file(O_RDONLY); text(RAW(SYS_fgetxattr, fd, "user.note", buffer, 100)); shut(fd); }
CASE(getxattrat, BOTH)
{
    struct { uint64_t value; uint32_t size, flags; } args = {(uint64_t)buffer, 100, 0};
    text(RAW(NR_getxattrat, HERE, at("f"), 0, "user.note", &args, sizeof args));
    args.flags = 1;
    is(RAW(NR_getxattrat, HERE, at("f"), 0, "user.note", &args, sizeof args));
}
CASE(listxattr, BOTH) { text(RAW(SYS_listxattr, at("f"), buffer, 100)); }
CASE(llistxattr, BOTH) { is(RAW(SYS_llistxattr, at("f"), 0, 0)); }
CASE(flistxattr, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_flistxattr, fd, buffer, 3)); shut(fd); }
CASE(listxattrat, BOTH) { text(RAW(NR_listxattrat, HERE, at("f"), 0, buffer, 100)); }
CASE(removexattr, BOTH) { is(RAW(SYS_removexattr, at("f"), "user.note")); }
CASE(lremovexattr, BOTH) { is(RAW(SYS_lremovexattr, at("f"), "user.none")); }
CASE(fremovexattr, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_fremovexattr, fd, "user.note")); shut(fd); }
CASE(removexattrat, BOTH) { is(RAW(NR_removexattrat, HERE, at("f"), 0, "user.note")); }

/* Where the thread is, and its descriptors. */
CASE(chdir, BOTH) { is(RAW(SYS_chdir, at("d"))); is(RAW(SYS_access, "x", F_OK)); RAW(SYS_fchdir, top); }
CASE(fchdir, BOTH) { int d = dir(); is(RAW(SYS_fchdir, d)); is(RAW(SYS_access, "f", F_OK)); is(RAW(SYS_fchdir, top)); shut(d); }
CASE(getcwd, BOTH) { done(RAW(SYS_getcwd, buffer, sizeof buffer)); say(" %d", strstr(buffer, "tree") != NULL); }
CASE(chroot, BOTH) { is(RAW(SYS_chroot, "/")); is(RAW(SYS_chroot, at("f"))); }
CASE(umask, BOTH) { is(RAW(SYS_umask, 077)); is(RAW(SYS_umask, 022)); }
CASE(dup, BOTH) { int fd = file(O_RDONLY), copy = (int)is(RAW(SYS_dup, fd)); RAW(SYS_read, fd, buffer, 3); is(RAW(SYS_lseek, copy, 0, SEEK_CUR)); shut(fd); shut(copy); }
CASE(dup2, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_dup2, fd, 77)); shut(fd); shut(77); }
CASE(dup3, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_dup3, fd, 77, O_CLOEXEC)); is(RAW(SYS_dup3, fd, fd, 0)); shut(fd); shut(77); }
CASE(fcntl, BOTH)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int fd = file(O_RDWR), other = file(O_RDONLY);
    is(RAW(SYS_fcntl, fd, F_GETFL));
    is(RAW(SYS_fcntl, fd, F_SETLK, &lock));
    is(RAW(SYS_fcntl, fd, 1027, fd));    /* F_DUPFD_QUERY */
    is(RAW(SYS_fcntl, fd, 1027, other));
    is(RAW(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC));
    is(RAW(SYS_fcntl, fd, F_GETFD));
    shut(fd), shut(other);
}
CASE(flock, BOTH) { int fd = file(O_RDONLY); is(RAW(SYS_flock, fd, 2 | 4)); is(RAW(SYS_flock, fd, 8)); shut(fd); }
CASE(ioctl, BOTH)
{
    int fd = file(O_RDONLY), n = 0;
    is(RAW(SYS_ioctl, fd, FIONREAD, &n));
    say(" %d", n);
    is(RAW(SYS_ioctl, fd, TCGETS, buffer));
    any(RAW(SYS_ioctl, fd, 2, &n)); /* FIGETBSZ, which an overlay does not know */
    shut(fd);
}
/* All of the machine's file systems are not this program's to flush: it asks the library only. */
CASE(sync, BOTH) { is(sys_xbegin && txos_in_transaction() ? RAW(SYS_sync, 0) : 0); }
CASE(fsync, BOTH) { int fd = file(O_RDWR); is(RAW(SYS_fsync, fd)); shut(fd); }
CASE(fdatasync, BOTH) { int fd = file(O_RDWR); is(RAW(SYS_fdatasync, fd)); shut(fd); }
CASE(syncfs, BOTH) { int fd = file(O_RDWR); is(RAW(SYS_syncfs, fd)); shut(fd); }
CASE(sync_file_range, BOTH) { int fd = file(O_RDWR); is(RAW(SYS_sync_file_range, fd, 0, 10, 2)); is(RAW(SYS_sync_file_range, fd, 0, 10, 99)); shut(fd); }
CASE(inotify_init, BOTH) { shut((int)is(RAW(SYS_inotify_init, 0))); }
CASE(inotify_init1, BOTH) { shut((int)is(RAW(SYS_inotify_init1, IN_NONBLOCK))); }
CASE(inotify_add_watch, BOTH) { int i = (int)RAW(SYS_inotify_init1, 0); is(RAW(SYS_inotify_add_watch, i, at("d"), IN_CREATE)); shut(i); }
CASE(inotify_rm_watch, BOTH) { int i = (int)RAW(SYS_inotify_init1, 0); int w = (int)RAW(SYS_inotify_add_watch, i, at("d"), IN_CREATE); is(RAW(SYS_inotify_rm_watch, i, w)); shut(i); }

/* Descriptors that are no files. */
static void pair(int p[2])
{
    RAW(SYS_pipe2, p, 0);
    RAW(SYS_write, p[1], "x", 1);
}
CASE(poll, BOTH)
{
    int p[2];
    pair(p);
    struct pollfd list[3] = {{p[0], POLLIN, 0}, {p[1], POLLIN, 0}, {900, POLLIN, 0}};
    is(RAW(SYS_poll, list, 3, 0));
    say(" %d %d %d", list[0].revents, list[1].revents, list[2].revents);
    shut(p[0]), shut(p[1]);
}
CASE(ppoll, BOTH)
{
    int p[2];
    pair(p);
    struct pollfd list[2] = {{p[0], POLLIN, 0}, {p[1], POLLOUT, 0}};
    struct timespec none = {0, 0};
    is(RAW(SYS_ppoll, list, 2, &none, 0, 8));
    shut(p[0]), shut(p[1]);
}
static void selecting(bool pselect)
{
    int p[2], f = file(O_RDONLY);
    pair(p);
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(p[0], &in);
    FD_SET(f, &in);
    FD_SET(p[0], &out);
    FD_SET(p[1], &out);
    struct timespec none = {0, 0};
    struct timeval no = {0, 0};
    int n = 1 + (p[1] > f ? p[1] : f);
    n = n > p[0] ? n : p[0] + 1;
    is(pselect ? RAW(SYS_pselect6, n, &in, &out, 0, &none, 0) : RAW(SYS_select, n, &in, &out, 0, &no));
    say(" %d%d%d%d", !!FD_ISSET(p[0], &in), !!FD_ISSET(f, &in), !!FD_ISSET(p[0], &out), !!FD_ISSET(p[1], &out));
    FD_SET(99, &in);
    is(pselect ? RAW(SYS_pselect6, 100, &in, 0, 0, &none, 0) : RAW(SYS_select, 100, &in, 0, 0, &no));
    is(pselect ? RAW(SYS_pselect6, 0, 0, 0, 0, &none, 0) : RAW(SYS_select, 0, 0, 0, 0, &no));
    shut(p[0]), shut(p[1]), shut(f);
}
CASE(select, BOTH) { selecting(false); }
CASE(pselect6, BOTH) { selecting(true); }
static void waiting(int kind)
{
    int p[2], e = (int)RAW(SYS_epoll_create1, 0);
    pair(p);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
    struct timespec none = {0, 0};
    is(RAW(SYS_epoll_ctl, e, EPOLL_CTL_ADD, p[0], &event));
    event.data.u32 = 0;
    is(kind == 0 ? RAW(SYS_epoll_wait, e, &event, 1, 0)
       : kind == 1 ? RAW(SYS_epoll_pwait, e, &event, 1, 0, 0, 8)
                   : RAW(SYS_epoll_pwait2, e, &event, 1, &none, 0, 8));
    say(" %u", event.data.u32);
    shut(p[0]), shut(p[1]), shut(e);
}
CASE(epoll_create, BOTH) { shut((int)is(RAW(SYS_epoll_create, 1))); }
CASE(epoll_create1, BOTH) { shut((int)is(RAW(SYS_epoll_create1, EPOLL_CLOEXEC))); }
CASE(epoll_ctl, BOTH) { int e = (int)RAW(SYS_epoll_create1, 0); is(RAW(SYS_epoll_ctl, e, EPOLL_CTL_DEL, e, 0)); shut(e); }
CASE(epoll_wait, BOTH) { waiting(0); }
CASE(epoll_pwait, BOTH) { waiting(1); }
CASE(epoll_pwait2, BOTH) { waiting(2); }
CASE(eventfd, BOTH) { int fd = (int)is(RAW(SYS_eventfd, 3)); is(RAW(SYS_read, fd, buffer, 8)); shut(fd); }
CASE(eventfd2, BOTH) { shut((int)is(RAW(SYS_eventfd2, 0, 0))); }
static void signals(long number)
{
    uint64_t usr1 = 1 << (SIGUSR1 - 1), usr2 = 1 << (SIGUSR2 - 1);
    int fd = (int)is(RAW(number, -1, &usr1, 8, 0));
    is(RAW(number, fd, &usr2, 8, 0)); /* the same descriptor */
    shut(fd);
}
CASE(signalfd, BOTH) { signals(SYS_signalfd); }
CASE(signalfd4, BOTH) { signals(SYS_signalfd4); }
CASE(timerfd_create, BOTH) { shut((int)is(RAW(SYS_timerfd_create, CLOCK_MONOTONIC, 0))); }
CASE(timerfd_settime, BOTH) { struct itimerspec t = {.it_value = {1000, 0}}; int fd = (int)RAW(SYS_timerfd_create, 1, 0); is(RAW(SYS_timerfd_settime, fd, 0, &t, 0)); shut(fd); }
CASE(timerfd_gettime, BOTH) { int fd = (int)RAW(SYS_timerfd_create, 1, 0); is(RAW(SYS_timerfd_gettime, fd, buffer)); shut(fd); }
CASE(memfd_create, BOTH) { shut((int)is(RAW(SYS_memfd_create, "name", 0))); }
CASE(memfd_secret, BOTH) { int fd = (int)is(RAW(SYS_memfd_secret, 0)); if (fd >= 0) shut(fd); }
CASE(userfaultfd, BOTH) { int fd = (int)is(RAW(SYS_userfaultfd, 0)); if (fd >= 0) shut(fd); }
CASE(pipe, BOTH) { int p[2]; is(RAW(SYS_pipe, p)); say(" %d %d", p[0], p[1]); shut(p[0]), shut(p[1]); }
CASE(pipe2, BOTH) { int p[2]; is(RAW(SYS_pipe2, p, O_CLOEXEC)); say(" %d %d", p[0], p[1]); shut(p[0]), shut(p[1]); }
CASE(socketpair, BOTH) { int p[2]; is(RAW(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, p)); say(" %d %d", p[0], p[1]); shut(p[0]), shut(p[1]); }
CASE(socket, BOTH) { shut((int)is(RAW(SYS_socket, AF_UNIX, SOCK_STREAM, 0))); }
static void on_pair(long number)
{
    int p[2], type = 0;
    unsigned size = 100, four = 4;
    RAW(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, p);
    is(number == SYS_getsockopt   ? RAW(number, p[0], SOL_SOCKET, SO_TYPE, &type, &four)
       : number == SYS_setsockopt ? RAW(number, p[0], SOL_SOCKET, SO_KEEPALIVE, &type, 4)
                                  : RAW(number, p[0], buffer, &size));
    say(" %d", type);
    shut(p[0]), shut(p[1]);
}
CASE(getsockname, BOTH) { on_pair(SYS_getsockname); }
CASE(getpeername, BOTH) { on_pair(SYS_getpeername); }
CASE(getsockopt, BOTH) { on_pair(SYS_getsockopt); }
CASE(setsockopt, BOTH) { on_pair(SYS_setsockopt); }

/* Memory. */
static char *page(int protection)
{
    return (char *)RAW(SYS_mmap, 0, 8192, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
CASE(mmap, BOTH)
{
    int fd = file(O_RDWR);
    char *shared = (char *)RAW(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    say(" %.7s", shared);
    memcpy(shared, "mapped ", 7);
    text(RAW(SYS_pread64, fd, buffer, 12, 0));
    is(RAW(SYS_munmap, shared, 4096));
    shut(fd);
}
CASE(munmap, BOTH) { char *p = page(3); is(RAW(SYS_munmap, p, 8192)); }
CASE(mprotect, BOTH) { char *p = page(0); is(RAW(SYS_mprotect, p, 8192, 3)); p[0] = 1; RAW(SYS_munmap, p, 8192); }
CASE(brk, BOTH) { done(RAW(SYS_brk, 0)); }
CASE(mremap, BOTH) { char *p = page(3); p = (char *)done(RAW(SYS_mremap, p, 8192, 4096, 0)); RAW(SYS_munmap, p, 4096); }
#define ON_PAGE(name, ...) \
    CASE(name, BOTH) { char *p = page(3); p[0] = 1; is(RAW(SYS_##name, p, 4096, __VA_ARGS__)); RAW(SYS_munmap, p, 8192); }
ON_PAGE(madvise, MADV_DONTNEED)
ON_PAGE(msync, MS_SYNC)
ON_PAGE(mincore, buffer)
ON_PAGE(mlock, 0)
ON_PAGE(mlock2, 0)
ON_PAGE(munlock, 0)
ON_PAGE(mbind, 0, 0, 0, 0)
ON_PAGE(set_mempolicy_home_node, 0, 0)
ON_PAGE(pkey_mprotect, 1, -1)
CASE(mlockall, BOTH) { is(RAW(SYS_mlockall, 99)); }
CASE(munlockall, BOTH) { is(RAW(SYS_munlockall, 0)); }
CASE(get_mempolicy, BOTH) { int mode; is(RAW(SYS_get_mempolicy, &mode, 0, 0, 0, 0)); }
CASE(set_mempolicy, BOTH) { is(RAW(SYS_set_mempolicy, 0, 0, 0)); }
CASE(pkey_alloc, BOTH) { any(RAW(SYS_pkey_alloc, 0, 0)); }
CASE(pkey_free, BOTH) { is(RAW(SYS_pkey_free, 99)); }
CASE(remap_file_pages, BOTH)
{
    char *p = (char *)RAW(SYS_mmap, 0, 8192, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    is(RAW(SYS_remap_file_pages, p, 4096, 0, 1, 0));
    RAW(SYS_munmap, p, 8192);
}
CASE(membarrier, BOTH) { done(RAW(SYS_membarrier, 0, 0)); }
CASE(map_shadow_stack, BOTH) { is(RAW(NR_map_shadow_stack, 1, 4096, 0)); }
CASE(mseal, BOTH) { char *p = page(3); is(RAW(NR_mseal, p, 4096, 0)); is(RAW(SYS_mprotect, p, 4096, 1)); }

/* What a process is told about itself, and its own settings. */
#define TOLD(name) CASE(name, BOTH) { done(RAW(SYS_##name, 0)); }
TOLD(getpid) TOLD(gettid) TOLD(getppid) TOLD(getpgrp) TOLD(sched_yield)
CASE(getuid, BOTH) { is(RAW(SYS_getuid, 0)); }
CASE(getgid, BOTH) { is(RAW(SYS_getgid, 0)); }
CASE(geteuid, BOTH) { is(RAW(SYS_geteuid, 0)); }
CASE(getegid, BOTH) { is(RAW(SYS_getegid, 0)); }
CASE(getresuid, BOTH) { unsigned u[3]; is(RAW(SYS_getresuid, u, u + 1, u + 2)); say(" %u", u[2]); }
CASE(getresgid, BOTH) { unsigned u[3]; is(RAW(SYS_getresgid, u, u + 1, u + 2)); say(" %u", u[2]); }
CASE(getgroups, BOTH) { is(RAW(SYS_getgroups, 0, 0)); }
CASE(capget, BOTH) { struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0}; is(RAW(SYS_capget, &h, buffer)); }
CASE(getpgid, BOTH) { done(RAW(SYS_getpgid, 0)); }
CASE(getsid, BOTH) { done(RAW(SYS_getsid, 0)); }
CASE(set_tid_address, BOTH) { static int word; done(RAW(SYS_set_tid_address, &word)); }
CASE(get_robust_list, BOTH) { void *head; size_t size; is(RAW(SYS_get_robust_list, 0, &head, &size)); say(" %zu", size); }
CASE(set_robust_list, BOTH) { void *head; size_t size; RAW(SYS_get_robust_list, 0, &head, &size); is(RAW(SYS_set_robust_list, head, size)); is(RAW(SYS_set_robust_list, head, 1)); }
CASE(rseq, BOTH) { is(RAW(SYS_rseq, 1, 2, 3, 4)); }
CASE(arch_prctl, BOTH) { unsigned long base; is(RAW(SYS_arch_prctl, 0x1003, &base)); }
CASE(prctl, BOTH) { is(RAW(SYS_prctl, PR_SET_NAME, "another")); is(RAW(SYS_prctl, PR_GET_NAME, buffer)); say(" %s", buffer); }
CASE(sched_getaffinity, BOTH) { done(RAW(SYS_sched_getaffinity, 0, 128, buffer)); }
CASE(sched_setaffinity, BOTH) { long n = RAW(SYS_sched_getaffinity, 0, 128, buffer); is(RAW(SYS_sched_setaffinity, 0, n, buffer)); }
CASE(sched_getparam, BOTH) { is(RAW(SYS_sched_getparam, 0, buffer)); }
CASE(sched_getscheduler, BOTH) { is(RAW(SYS_sched_getscheduler, 0)); }
CASE(sched_getattr, BOTH) { is(RAW(SYS_sched_getattr, 0, buffer, 100, 0)); }
CASE(sched_get_priority_max, BOTH) { is(RAW(SYS_sched_get_priority_max, 1)); }
CASE(sched_get_priority_min, BOTH) { is(RAW(SYS_sched_get_priority_min, 1)); }
CASE(sched_rr_get_interval, BOTH) { is(RAW(SYS_sched_rr_get_interval, 0, buffer)); }
CASE(getpriority, BOTH) { is(RAW(SYS_getpriority, 0, 0)); }
CASE(ioprio_get, BOTH) { done(RAW(SYS_ioprio_get, 1, 0)); }
CASE(getrlimit, BOTH) { is(RAW(SYS_getrlimit, RLIMIT_NOFILE, buffer)); }
CASE(getrusage, BOTH) { is(RAW(SYS_getrusage, 0, buffer)); }
CASE(getcpu, BOTH) { unsigned cpu; is(RAW(SYS_getcpu, &cpu, 0, 0)); }
CASE(modify_ldt, BOTH) { is(RAW(SYS_modify_ldt, 0, buffer, 16)); }
CASE(wait4, BOTH) { is(RAW(SYS_wait4, -1, 0, WNOHANG, 0)); }
CASE(waitid, BOTH)
{
    int fd = (int)RAW(SYS_pidfd_open, RAW(SYS_getpid, 0), 0);
    is(RAW(SYS_waitid, 3, fd, buffer, WEXITED | WNOHANG, 0)); /* P_PIDFD */
    is(RAW(SYS_waitid, 3, 900, buffer, WEXITED | WNOHANG, 0));
    is(RAW(SYS_waitid, 0, 0, buffer, WEXITED | WNOHANG, 0));
    shut(fd);
}
CASE(pidfd_open, BOTH) { shut((int)is(RAW(SYS_pidfd_open, RAW(SYS_getpid, 0), 0))); }
CASE(kcmp, BOTH)
{
    long own = RAW(SYS_getpid, 0);
    int fd = file(O_RDONLY), copy = (int)RAW(SYS_dup, fd), p[2];
    RAW(SYS_pipe2, p, 0);
    is(RAW(SYS_kcmp, own, own, 0, fd, copy));
    say(" %d", RAW(SYS_kcmp, own, own, 0, fd, p[0]) > 0);
    is(RAW(SYS_kcmp, own, own, 0, fd, 900));
    shut(fd), shut(copy), shut(p[0]), shut(p[1]);
}
CASE(process_madvise, BOTH)
{
    int fd = (int)RAW(SYS_pidfd_open, RAW(SYS_getpid, 0), 0);
    struct iovec v = {page(3), 4096};
    is(RAW(SYS_process_madvise, fd, &v, 1, 20, 0)); /* MADV_COLD */
    shut(fd);
}
CASE(process_mrelease, BOTH) { int fd = (int)RAW(SYS_pidfd_open, RAW(SYS_getpid, 0), 0); is(RAW(SYS_process_mrelease, fd, 0)); shut(fd); }
CASE(process_vm_readv, BOTH)
{
    struct iovec to = {buffer, 5}, from = {(void *)"other", 5};
    text(RAW(SYS_process_vm_readv, RAW(SYS_getpid, 0), &to, 1, &from, 1, 0));
}
CASE(lsm_get_self_attr, BOTH) { uint32_t size = sizeof buffer; is(RAW(NR_lsm_get_self_attr, 100, buffer, &size, 0)); }
CASE(lsm_list_modules, BOTH) { uint32_t size = sizeof buffer; done(RAW(NR_lsm_list_modules, buffer, &size, 0)); }
CASE(statmount, BOTH) { uint64_t req[3] = {24, 1, 1}; is(RAW(NR_statmount, req, buffer, sizeof buffer, 0)); }
CASE(listmount, BOTH) { uint64_t req[3] = {24, -1, 0}; done(RAW(NR_listmount, req, buffer, 8, 0)); }

/* Time, waiting, signals of its own. */
CASE(time, BOTH) { done(RAW(SYS_time, 0)); }
CASE(gettimeofday, BOTH) { is(RAW(SYS_gettimeofday, buffer, 0)); }
CASE(clock_gettime, BOTH) { is(RAW(SYS_clock_gettime, CLOCK_MONOTONIC, buffer)); }
CASE(clock_getres, BOTH) { is(RAW(SYS_clock_getres, CLOCK_MONOTONIC, buffer)); }
CASE(times, BOTH) { done(RAW(SYS_times, buffer)); }
CASE(nanosleep, BOTH) { struct timespec t = {0, 1}; is(RAW(SYS_nanosleep, &t, 0)); }
CASE(clock_nanosleep, BOTH) { struct timespec t = {0, 1}; is(RAW(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, 0)); }
CASE(alarm, BOTH) { is(RAW(SYS_alarm, 1000)); done(RAW(SYS_alarm, 0)); }
CASE(getitimer, BOTH) { is(RAW(SYS_getitimer, 0, buffer)); }
CASE(setitimer, BOTH) { struct itimerval t = {{0, 0}, {0, 0}}; is(RAW(SYS_setitimer, 0, &t, 0)); }
static int timer(void)
{
    int id = -1;
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    is(RAW(SYS_timer_create, CLOCK_MONOTONIC, &event, &id));
    return id;
}
CASE(timer_create, BOTH) { RAW(SYS_timer_delete, timer()); }
CASE(timer_settime, BOTH) { struct itimerspec t = {.it_value = {1000, 0}}; int id = timer(); is(RAW(SYS_timer_settime, id, 0, &t, 0)); RAW(SYS_timer_delete, id); }
CASE(timer_gettime, BOTH) { int id = timer(); is(RAW(SYS_timer_gettime, id, buffer)); RAW(SYS_timer_delete, id); }
CASE(timer_getoverrun, BOTH) { int id = timer(); is(RAW(SYS_timer_getoverrun, id)); RAW(SYS_timer_delete, id); }
CASE(timer_delete, BOTH) { is(RAW(SYS_timer_delete, timer())); }
CASE(futex, BOTH) { static int word; is(RAW(SYS_futex, &word, FUTEX_WAKE, 1)); is(RAW(SYS_futex, &word, FUTEX_WAIT, 1, 0)); }
CASE(futex_waitv, BOTH) { is(RAW(SYS_futex_waitv, buffer, 0, 0, 0, 0)); }
CASE(futex_wake, BOTH) { static int word; is(RAW(NR_futex_wake, &word, -1, 1, 2)); }
CASE(futex_wait, BOTH) { static int word; is(RAW(NR_futex_wait, &word, 1, -1, 2, 0, 0)); }
CASE(futex_requeue, BOTH) { is(RAW(NR_futex_requeue, buffer, 99, 0, 0)); }
CASE(uname, BOTH) { struct utsname u; is(RAW(SYS_uname, &u)); say(" %s", u.machine); }
CASE(sysinfo, BOTH) { is(RAW(SYS_sysinfo, buffer)); }
CASE(sysfs, BOTH) { done(RAW(SYS_sysfs, 3)); }
CASE(getrandom, BOTH) { is(RAW(SYS_getrandom, buffer, 8, 0)); }
CASE(restart_syscall, BOTH) { is(RAW(SYS_restart_syscall, 0)); }
CASE(sigaltstack, BOTH) { stack_t s; is(RAW(SYS_sigaltstack, 0, &s)); }
CASE(rt_sigaction, BOTH) { struct { uint64_t w[4]; } old; is(RAW(SYS_rt_sigaction, SIGUSR1, 0, &old, 8)); is(RAW(SYS_rt_sigaction, SIGKILL, &old, 0, 8)); }
CASE(rt_sigprocmask, BOTH)
{
    uint64_t usr1 = 1 << (SIGUSR1 - 1), old = 0;
    is(RAW(SYS_rt_sigprocmask, SIG_BLOCK, &usr1, 0, 8));
    is(RAW(SYS_rt_sigprocmask, SIG_UNBLOCK, &usr1, &old, 8));
    say(" %d", (old & usr1) != 0);
}
CASE(rt_sigpending, BOTH) { is(RAW(SYS_rt_sigpending, buffer, 8)); }
CASE(rt_sigtimedwait, BOTH) { uint64_t usr1 = 1 << (SIGUSR1 - 1); struct timespec none = {0, 0}; is(RAW(SYS_rt_sigtimedwait, &usr1, 0, &none, 8)); }
static char *forbidden;
static void allow(int signal)
{
    (void)signal;
    RAW(SYS_mprotect, forbidden, 8192, 3);
}
/* A handler that returns. */
CASE(rt_sigreturn, BOTH)
{
    struct sigaction old, new = {.sa_handler = allow};
    sigaction(SIGSEGV, &new, &old);
    forbidden = page(0);
    *(volatile char *)forbidden = 1;
    sigaction(SIGSEGV, &old, NULL);
    say(" %d", forbidden[0]);
}
static void nothing(int signal) { (void)signal; }
static void alarmed(long number)
{
    uint64_t none = 0;
    struct itimerval often = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    struct sigaction old, new = {.sa_handler = nothing};
    sigaction(SIGALRM, &new, &old);
    setitimer(ITIMER_REAL, &often, NULL);
    is(RAW(number, &none, 8));
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &old, NULL);
}
CASE(rt_sigsuspend, BOTH) { alarmed(SYS_rt_sigsuspend); }
CASE(pause, BOTH) { alarmed(SYS_pause); }
CASE(io_destroy, BOTH) { is(RAW(SYS_io_destroy, 0)); }
CASE(io_getevents, BOTH) { is(RAW(SYS_io_getevents, 0, 0, 0, 0, 0)); }
CASE(io_pgetevents, BOTH) { is(RAW(SYS_io_pgetevents, 0, 0, 0, 0, 0, 0)); }

/* What a command under `txos run` may do without anybody else noticing. */
static void child(long pid)
{
    int status = 0;
    if (pid == 0)
        RAW(SYS_exit_group, RAW(SYS_mkdir, at("by-the-child"), 0700) == 0 ? 7 : 8);
    done(pid);
    is(RAW(SYS_wait4, pid, &status, 0, 0) == pid);
    say(" %d", status >> 8);
}
CASE(fork, RUN) { child(RAW(SYS_fork, 0)); }
CASE(vfork, RUN) { child(vfork()); }
CASE(clone, RUN) { child(RAW(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }
CASE(clone3, RUN) { uint64_t args[8] = {[4] = SIGCHLD}; child(RAW(SYS_clone3, args, sizeof args)); }
static void program(long number)
{
    char *words[] = {"mkdir", (char *)at("by-the-program"), NULL}, *empty[] = {NULL};
    long pid = RAW(SYS_fork, 0);
    if (pid == 0) {
        if (number == SYS_execve)
            RAW(number, "/bin/mkdir", words, empty);
        else
            RAW(number, HERE, "/bin/mkdir", words, empty, 0);
        RAW(SYS_exit, 9);
    }
    int status = 0;
    is(RAW(SYS_wait4, pid, &status, 0, 0) == pid);
    say(" %d", status);
}
CASE(execve, RUN) { program(SYS_execve); }
CASE(execveat, RUN) { program(SYS_execveat); }
static void ending(long number)
{
    int status = 0;
    long pid = RAW(SYS_fork, 0);
    if (pid == 0)
        RAW(number, 5);
    is(RAW(SYS_wait4, pid, &status, 0, 0) == pid);
    say(" %d", status >> 8);
}
CASE(exit, RUN) { ending(SYS_exit); }
CASE(exit_group, RUN) { ending(SYS_exit_group); }
CASE(setpgid, BOTH) { any(RAW(SYS_setpgid, 0, 0)); }
CASE(setsid, BOTH) { any(RAW(SYS_setsid, 0)); }
CASE(setrlimit, BOTH) { RAW(SYS_getrlimit, RLIMIT_CORE, buffer); is(RAW(SYS_setrlimit, RLIMIT_CORE, buffer)); }
CASE(prlimit64, BOTH) { is(RAW(SYS_prlimit64, 0, RLIMIT_CORE, 0, buffer)); is(RAW(SYS_prlimit64, 0, RLIMIT_CORE, buffer, 0)); }
CASE(setpriority, BOTH) { is(RAW(SYS_setpriority, 0, 0, 0)); is(RAW(SYS_setpriority, 0, RAW(SYS_getpid, 0), 0)); }
CASE(ioprio_set, BOTH) { is(RAW(SYS_ioprio_set, 1, 0, 0)); is(RAW(SYS_ioprio_set, 1, RAW(SYS_getpid, 0), 0)); }
CASE(sched_setparam, BOTH) { int zero = 0; is(RAW(SYS_sched_setparam, 0, &zero)); is(RAW(SYS_sched_setparam, RAW(SYS_getpid, 0), &zero)); }
CASE(sched_setscheduler, BOTH) { int zero = 0; is(RAW(SYS_sched_setscheduler, 0, 0, &zero)); }
CASE(sched_setattr, BOTH) { RAW(SYS_sched_getattr, 0, buffer, 48, 0); is(RAW(SYS_sched_setattr, 0, buffer, 0)); }
CASE(personality, BOTH) { is(RAW(SYS_personality, 0xffffffff)); }
CASE(iopl, BOTH) { is(RAW(SYS_iopl, 99)); }
CASE(ioperm, BOTH) { is(RAW(SYS_ioperm, -1, -1, 0)); }
CASE(setuid, BOTH) { is(RAW(SYS_setuid, 0)); }
CASE(setgid, BOTH) { is(RAW(SYS_setgid, 0)); }
CASE(setreuid, BOTH) { is(RAW(SYS_setreuid, -1, -1)); }
CASE(setregid, BOTH) { is(RAW(SYS_setregid, -1, -1)); }
CASE(setresuid, BOTH) { is(RAW(SYS_setresuid, -1, -1, -1)); }
CASE(setresgid, BOTH) { is(RAW(SYS_setresgid, -1, -1, -1)); }
CASE(setfsuid, BOTH) { is(RAW(SYS_setfsuid, -1)); }
CASE(setfsgid, BOTH) { is(RAW(SYS_setfsgid, -1)); }
CASE(setgroups, BOTH) { long n = RAW(SYS_getgroups, 100, buffer); is(RAW(SYS_setgroups, n, buffer)); }
CASE(capset, BOTH) { struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0}; RAW(SYS_capget, &h, buffer); is(RAW(SYS_capset, &h, buffer)); }
CASE(unshare, RUN) { is(RAW(SYS_unshare, 0)); }
CASE(seccomp, RUN) { uint32_t action = 0x00050000; is(RAW(SYS_seccomp, 2, 0, &action)); }
CASE(landlock_create_ruleset, RUN) { any(RAW(SYS_landlock_create_ruleset, 0, 0, 1)); }
CASE(landlock_add_rule, RUN) { is(RAW(SYS_landlock_add_rule, -1, 1, buffer, 0)); }
CASE(landlock_restrict_self, RUN) { is(RAW(SYS_landlock_restrict_self, -2, 0)); }
CASE(lsm_set_self_attr, RUN) { is(RAW(NR_lsm_set_self_attr, 100, buffer, 1, 9)); }
CASE(pidfd_getfd, RUN) { int p = (int)RAW(SYS_pidfd_open, RAW(SYS_getpid, 0), 0), fd = (int)is(RAW(SYS_pidfd_getfd, p, p, 0)); shut(p); shut(fd); }
CASE(process_vm_writev, RUN) { struct iovec to = {buffer, 5}, from = {(void *)"other", 5}; is(RAW(SYS_process_vm_writev, RAW(SYS_getpid, 0), &from, 1, &to, 1, 0)); }
CASE(migrate_pages, RUN) { any(RAW(SYS_migrate_pages, RAW(SYS_getpid, 0), 0, 0, 0)); }
CASE(move_pages, RUN) { is(RAW(SYS_move_pages, 0, 0, 0, 0, 0, 0)); }
static struct { unsigned n; int type; char h[128]; } handle;
static long handle_of(int dir, const char *path, int flags)
{
    int mount;
    handle.n = 128;
    return RAW(SYS_name_to_handle_at, dir, path, &handle, &mount, flags);
}
/* (An overlay, as under `txos run`, has no handles.) */
CASE(name_to_handle_at, BOTH)
{
    any(handle_of(HERE, at("f"), 0));
    is(handle_of(HERE, at("none"), 0));
    is(handle_of(HERE, at("f"), 0x8000));
}
CASE(open_by_handle_at, INSIDE)
{
    int of = file(O_RDONLY), mount;
    is(handle_of(of, "", AT_EMPTY_PATH));
    is(handle_of(HERE, current, AT_SYMLINK_FOLLOW));
    is(handle_of(HERE, "/proc/self", 0));
    handle.n = 0;
    is(RAW(SYS_name_to_handle_at, HERE, at("f"), &handle, &mount, 0));
    say(" %d", handle.n > 0);
    shut(of);
    is(handle_of(HERE, at("f"), 0));
    int d = dir(), fd = (int)done(RAW(SYS_open_by_handle_at, d, &handle, O_RDWR));
    text(RAW(SYS_read, fd, buffer, 5));
    /* What is written is found by the handle as well. */
    is(RAW(SYS_write, fd, "new", 3));
    int again = (int)done(RAW(SYS_open_by_handle_at, d, &handle, O_RDONLY | O_NOFOLLOW));
    text(RAW(SYS_read, again, buffer, 9));
    shut(again), shut(fd);
    is(handle_of(HERE, current, 0));
    fd = (int)done(RAW(SYS_open_by_handle_at, d, &handle, O_RDONLY | O_DIRECTORY));
    is(RAW(SYS_openat, fd, "f", O_RDONLY | O_DIRECTORY));
    is(RAW(SYS_open_by_handle_at, d, &handle, O_RDWR));
    is(RAW(SYS_open_by_handle_at, 9999, &handle, O_RDONLY));
    is(RAW(SYS_open_by_handle_at, d, 1, O_RDONLY));
    shut(fd), shut(d);
}
static void asynchronous(bool whole)
{
    aio_context_t context = 0;
    struct io_event event = {0};
    int fd = file(O_RDONLY);
    struct iocb one = {.aio_fildes = (unsigned)fd, .aio_lio_opcode = IOCB_CMD_PREAD,
                       .aio_buf = (uint64_t)buffer, .aio_nbytes = 7}, *list = &one;
    is(RAW(SYS_io_setup, 1, &context));
    if (whole) {
        is(RAW(SYS_io_submit, context, 1, &list));
        is(RAW(SYS_io_getevents, context, 1, 1, &event, 0));
        text(event.res);
    }
    is(RAW(SYS_io_destroy, context));
    shut(fd);
}
CASE(io_setup, RUN) { asynchronous(false); }
CASE(io_submit, RUN) { asynchronous(true); }
CASE(io_cancel, BOTH) { is(RAW(SYS_io_cancel, 0, 0, 0)); }
CASE(io_uring_enter, RUN) { is(RAW(SYS_io_uring_enter, -1, 0, 0, 0, 0, 0)); }
CASE(io_uring_register, RUN) { is(RAW(SYS_io_uring_register, -1, 2, 0, 0)); }
CASE(fanotify_init, RUN) { int fd = (int)is(RAW(SYS_fanotify_init, 0, 0)); shut(fd); }
CASE(fanotify_mark, RUN) { int fd = (int)RAW(SYS_fanotify_init, 0, 0); is(RAW(SYS_fanotify_mark, fd, FAN_MARK_ADD, FAN_OPEN, HERE, at("f"))); shut(fd); }
CASE(pivot_root, RUN) { is(RAW(SYS_pivot_root, at("none"), at("none"))); }
CASE(open_tree, RUN) { int fd = (int)is(RAW(SYS_open_tree, HERE, at("f"), 0)); shut(fd); is(RAW(SYS_open_tree, HERE, at("none"), 0)); }
CASE(open_tree_attr, RUN) { is(RAW(NR_open_tree_attr, HERE, at("none"), 0, 0, 0)); }
CASE(fsopen, BOTH) { int fd = (int)is(RAW(SYS_fsopen, "tmpfs", 0)); shut(fd); }
CASE(fsmount, RUN) { is(RAW(SYS_fsmount, -1, 0, 0)); }
CASE(fspick, RUN) { is(RAW(SYS_fspick, HERE, at("none"), 0)); }
static int server, client;
static struct sockaddr_un name_of_server(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", at("socket"));
    return name;
}
static void meet(int say_of)
{
    struct sockaddr_un name = name_of_server();
    server = (int)RAW(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    client = (int)RAW(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    long made[3] = {RAW(SYS_bind, server, &name, sizeof name), RAW(SYS_listen, server, 1),
                    RAW(SYS_connect, client, &name, sizeof name)};
    if (say_of >= 0)
        is(made[say_of]);
}
static void part(void)
{
    shut(server), shut(client);
    RAW(SYS_unlink, at("socket"));
}
CASE(bind, RUN) { meet(0); part(); }
CASE(listen, RUN) { meet(1); part(); }
CASE(connect, RUN) { meet(2); part(); }
CASE(accept, RUN) { meet(-1); shut((int)is(RAW(SYS_accept, server, 0, 0))); part(); }
CASE(accept4, RUN) { meet(-1); shut((int)is(RAW(SYS_accept4, server, 0, 0, 0))); part(); }
static void traffic(long number)
{
    int p[2];
    struct mmsghdr one = {.msg_hdr = {.msg_iov = pieces(), .msg_iovlen = 2}};
    RAW(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, p);
    RAW(SYS_write, p[1], "waiting", 7);
    switch (number) {
    case SYS_sendto: is(RAW(number, p[0], "x", 1, 0, 0, 0)); break;
    case SYS_recvfrom: text(RAW(number, p[0], buffer, 100, 0, 0, 0)); break;
    case SYS_sendmsg: case SYS_recvmsg: is(RAW(number, p[0], &one.msg_hdr, 0)); break;
    case SYS_shutdown: is(RAW(number, p[0], SHUT_WR)); break;
    default: is(RAW(number, p[0], &one, 1, 0, 0));
    }
    shut(p[0]), shut(p[1]);
}
CASE(sendto, RUN) { traffic(SYS_sendto); }
CASE(sendmsg, RUN) { traffic(SYS_sendmsg); }
CASE(sendmmsg, RUN) { traffic(SYS_sendmmsg); }
CASE(recvfrom, RUN) { traffic(SYS_recvfrom); }
CASE(recvmsg, RUN) { traffic(SYS_recvmsg); }
CASE(recvmmsg, RUN) { traffic(SYS_recvmmsg); }
CASE(shutdown, RUN) { traffic(SYS_shutdown); }
static void segment(void)
{
    long id = RAW(SYS_shmget, IPC_PRIVATE, 4096, 0600);
    done(id);
    char *memory = (char *)done(RAW(SYS_shmat, id, 0, 0));
    memory[0] = 1;
    is(RAW(SYS_shmdt, memory));
    is(RAW(SYS_shmctl, id, IPC_RMID, 0));
}
CASE(shmat, RUN) { segment(); }
CASE(shmdt, BOTH) { is(RAW(SYS_shmdt, 1)); }
CASE(semop, RUN) { is(RAW(SYS_semop, -1, buffer, 0)); }
CASE(semtimedop, RUN) { is(RAW(SYS_semtimedop, -1, buffer, 0, 0)); }
CASE(msgsnd, RUN) { *(long *)buffer = 1; is(RAW(SYS_msgsnd, -1, buffer, 1, 0)); }
CASE(msgrcv, RUN) { is(RAW(SYS_msgrcv, -1, buffer, 1, 0, 0)); }
CASE(mq_timedsend, RUN) { is(RAW(SYS_mq_timedsend, -1, "x", 1, 0, 0)); }
CASE(mq_timedreceive, RUN) { is(RAW(SYS_mq_timedreceive, -1, buffer, 1, 0, 0)); }
CASE(mq_notify, RUN) { is(RAW(SYS_mq_notify, -1, 0)); }
CASE(mq_getsetattr, RUN) { is(RAW(SYS_mq_getsetattr, -1, 0, 0)); }
CASE(perf_event_open, BOTH) { is(RAW(SYS_perf_event_open, 0, 0, -1, -1, 0)); }

/* What the cases work on, each in a directory of its name. */
static void prepare(void)
{
    for (int i = 0; i < count; i++) {
        current = cases[i].name;
        if (mkdir(current, 0755) || mkdir(at("d"), 0755) || mkdir(at("e"), 0755) || symlink("f", at("l")))
            exit(3);
        const char *files[] = {at("f"), at("d/x")};
        for (int k = 0; k < 2; k++) {
            int fd = open(files[k], O_CREAT | O_WRONLY, 0644);
            if (fd < 0 || write(fd, "content of a file\n", 18) != 18 || close(fd))
                exit(3);
        }
        setxattr(at("f"), "user.note", "a note", 6, 0);
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    bool inside = !strcmp(mode, "commit") || !strcmp(mode, "abort");
    umask(022);
    if (!strcmp(mode, "prepare"))
        return prepare(), 0;
    if (!strcmp(mode, "list")) {
        for (int i = 0; i < count; i++)
            printf("%s %d\n", cases[i].name, cases[i].where);
        return 0;
    }
    /* Numbers that are free in the transaction, and not in the kernel. */
    top = open(".", O_RDONLY | O_DIRECTORY);
    dup2(top, 100);
    top = 100;
    for (int fd = 3; fd < 9; fd++)
        dup2(100, fd);
    if (inside && sys_xbegin(0) != 0)
        return fprintf(stderr, "calls: %s\n", txos_strerror()), 125;
    for (int fd = 3; fd < 9; fd++)
        RAW(SYS_close, fd);
    for (int i = 0; i < count; i++) {
        if (inside && !(cases[i].where & INSIDE))
            continue;
        if (!strcmp(mode, "plain") && !(cases[i].where & RUN))
            continue;
        current = cases[i].name;
        say("%s:", current);
        cases[i].make();
        say("\n");
    }
    if (!strcmp(mode, "abort"))
        sys_xabort(1);
    else if (inside && sys_xend() != 0)
        return fprintf(stderr, "calls: %s\n", txos_strerror()), 125;
    fputs(said, stdout);
    return 0;
}
