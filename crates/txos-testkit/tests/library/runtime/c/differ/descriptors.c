/* Descriptors, locks, and what belongs to the process. */
#include "differ.h"

static void do_dup(void)
{
    int fd = descriptor();
    say("dup(%d)", fd);
    DO(dup(fd), SYS_dup, fd);
    answer();
    if (R >= 0)
        keep((int)R);
}

static void do_dup2(void)
{
    int fd = descriptor(), to = chance(60) ? descriptor() : 20 + (int)below(10);
    int flags = chance(30) ? O_CLOEXEC : chance(5) ? 1 : 0;
    /* Never one that belongs to others. */
    if (to >= 0 && to < 3)
        to = 20;
    if (chance(50)) {
        say("dup2(%d, %d)", fd, to);
        DO(dup2(fd, to), SYS_dup2, fd, to);
    } else {
        say("dup3(%d, %d, %#x)", fd, to, (unsigned)flags);
        DO(dup3(fd, to, flags), SYS_dup3, fd, to, flags);
    }
    answer();
    if (R >= 0) {
        forget(to);
        keep(to);
    }
}

static void do_close(void)
{
    int fd = descriptor();
    say("close(%d)", fd);
    DO(close(fd), SYS_close, fd);
    answer();
    if (R == 0)
        forget(fd);
}

static void do_close_range(void)
{
    unsigned first = 3 + below(8), last = first + below(4);
    int flags = chance(40) ? 4 /* CLOSE_RANGE_CLOEXEC */ : 0;
    bool all = class_is_on("closeall") && chance(20);
    if (all)
        first = 3, last = ~0u;
    if (chance(5))
        last = first - 1;
    say("close_range(%u, %d, %d)", first, (int)last, flags);
    DO(close_range(first, last, flags), SYS_close_range, first, last, flags);
    answer();
    for (unsigned i = 0; R == 0 && !flags && i < SLOTS; i++)
        if (slot[i] >= (int)first && (all || slot[i] <= (int)last))
            slot[i] = -1;
}

static void do_fcntl(void)
{
    int fd = descriptor(), n = (int)below(40);
    switch (below(6)) {
    case 0:
        say("fcntl(%d, F_GETFL)", fd);
        DO(fcntl(fd, F_GETFL), SYS_fcntl, fd, F_GETFL);
        if (R > 0 && !class_is_on("nofollow"))
            R &= ~O_NOFOLLOW;
        break;
    case 1: {
        int flags = (chance(50) ? O_APPEND : 0) | (chance(50) ? O_NONBLOCK : 0) |
                    (chance(10) ? O_NOATIME : 0);
        say("fcntl(%d, F_SETFL, %#x)", fd, (unsigned)flags);
        DO(fcntl(fd, F_SETFL, flags), SYS_fcntl, fd, F_SETFL, flags);
        break;
    }
    case 2:
        say("fcntl(%d, F_GETFD)", fd);
        DO(fcntl(fd, F_GETFD), SYS_fcntl, fd, F_GETFD);
        break;
    case 3:
        say("fcntl(%d, F_SETFD, %d)", fd, n & 1);
        DO(fcntl(fd, F_SETFD, n & 1), SYS_fcntl, fd, F_SETFD, n & 1);
        break;
    default: {
        int command = chance(50) ? F_DUPFD : F_DUPFD_CLOEXEC;
        say("fcntl(%d, %s, %d)", fd, command == F_DUPFD ? "F_DUPFD" : "F_DUPFD_CLOEXEC", n);
        DO(fcntl(fd, command, n), SYS_fcntl, fd, command, n);
        answer();
        if (R >= 0)
            keep((int)R);
        return;
    }
    }
    answer();
}

static void do_flock(void)
{
    static const int operations[] = { LOCK_SH, LOCK_EX, LOCK_UN, LOCK_SH };
    int fd = descriptor(), operation = PICK(operations) | LOCK_NB;
    say("flock(%d, %d)", fd, operation);
    DO(flock(fd, operation), SYS_flock, fd, operation);
    answer();
}

static void do_record_lock(void)
{
    static const short types[] = { F_RDLCK, F_WRLCK, F_UNLCK };
    static const int commands[] = { F_SETLK, F_GETLK, F_OFD_SETLK, F_OFD_GETLK };
    int fd = descriptor(), command = PICK(commands);
    struct flock lock = { .l_type = PICK(types),
                          .l_whence = chance(80) ? SEEK_SET : SEEK_CUR,
                          .l_start = below(100),
                          .l_len = below(50) };
    say("fcntl(%d, lock %d, %d %lld+%lld)", fd, command, lock.l_type, (long long)lock.l_start,
        (long long)lock.l_len);
    DO(fcntl(fd, command, &lock), SYS_fcntl, fd, command, &lock);
    answer();
    if (R == 0 && (command == F_GETLK || command == F_OFD_GETLK))
        say(" %d %lld+%lld %s", lock.l_type, (long long)lock.l_start, (long long)lock.l_len,
            lock.l_pid == getpid() ? "mine" : lock.l_pid == -1 ? "a descriptor's" : "none's");
}

static void do_ioctl(void)
{
    int fd = descriptor(), n = -1;
    switch (below(4)) {
    case 0:
        say("ioctl(%d, FIONREAD)", fd);
        /* Of a directory it is the file system's own. */
        if (type_of(fd) == S_IFDIR) {
            say(" no file");
            return;
        }
        DO(ioctl(fd, FIONREAD, &n), SYS_ioctl, fd, FIONREAD, &n);
        break;
    case 1: {
        int from = descriptor();
        say("ioctl(%d, FICLONE, %d)", fd, from);
        DO(ioctl(fd, FICLONE, from), SYS_ioctl, fd, FICLONE, from);
        break;
    }
    case 2:
        say("ioctl(%d, FS_IOC_GETFLAGS)", fd);
        DO(ioctl(fd, FS_IOC_GETFLAGS, &n), SYS_ioctl, fd, FS_IOC_GETFLAGS, &n);
        break;
    default:
        say("ioctl(%d, TCGETS)", fd);
        DO(ioctl(fd, 0x5401, room), SYS_ioctl, fd, 0x5401, room);
        break;
    }
    answer();
    if (R == 0)
        say(" %d", n);
}

static void do_poll(void)
{
    struct pollfd one = { .fd = descriptor(), .events = POLLIN | POLLOUT };
    say("poll(%d)", one.fd);
    DO(poll(&one, 1, 0), SYS_poll, &one, 1, 0);
    answer();
    say(" %x", (unsigned)one.revents);
}

/* --- The process ------------------------------------------------------------------------------ */

static bool chrooted;

static void do_chdir(void)
{
    if (chance(60)) {
        const char *p = chance(30) ? base : path();
        say("chdir(");
        say_path(p);
        say(")");
        DO(chdir(p), SYS_chdir, p);
    } else {
        int fd = descriptor();
        say("fchdir(%d)", fd);
        DO(fchdir(fd), SYS_fchdir, fd);
    }
    answer();
    /* Little happens outside of the tree: back then. */
    long n = syscall(SYS_getcwd, room, sizeof room);
    if (n > 0 && strncmp(room, base, strlen(base)) != 0 && !chrooted) {
        int r = chdir(base);
        say(" and back %d", r);
    }
}

static void do_getcwd(void)
{
    size_t size = chance(90) ? 4096 : below(60);
    memset(room, 0, 4096);
    say("getcwd(%zu)", size);
    DO(syscall(SYS_getcwd, room, size), SYS_getcwd, room, size);
    /* Its length is that of the base, too. */
    if (R > 0) {
        say(" = ");
        say_path(room);
    } else {
        answer();
    }
}

static void do_umask(void)
{
    static const mode_t masks[] = { 0, 022, 027, 077, 0777, 002 };
    mode_t mask = PICK(masks);
    say("umask(%o)", mask);
    if (!class_is_on("locked"))
        mask &= 077;
    DO(umask(mask), SYS_umask, mask);
    answer();
}

static void do_chroot(void)
{
    const char *p = chance(50) ? "." : path();
    say("chroot(");
    say_path(p);
    say(")");
    /* Into directories of the tree only. */
    struct stat stat;
    bool outside = p == BAD || strncmp(p, "/proc", 5) == 0 || strncmp(p, "..", 2) == 0;
    if (outside || fstatat(AT_FDCWD, p, &stat, 0) != 0 || !S_ISDIR(stat.st_mode)) {
        say(" not there");
        return;
    }
    DO(chroot(p), SYS_chroot, p);
    answer();
    chrooted = chrooted || R == 0;
}

const struct kind descriptors[] = {
    { "dup", "dup", 12, do_dup },
    { "dup2", "dup", 15, do_dup2 },
    { "close", "close", 25, do_close },
    { "close_range", "close", 4, do_close_range },
    { "fcntl", "fcntl", 30, do_fcntl },
    { "flock", "lock", 10, do_flock },
    { "record lock", "lock", 10, do_record_lock },
    { "ioctl", "ioctl", 8, do_ioctl },
    { "poll", "poll", 5, do_poll },
    { "chdir", "cwd", 20, do_chdir },
    { "getcwd", "cwd", 10, do_getcwd },
    { "umask", "umask", 8, do_umask },
    { "chroot", "chroot", 1, do_chroot },
    { 0 },
};
