/* Opening. */
#include "differ.h"

/* Opening a FIFO would wait for its other end. And a reader that is closed within a transaction is one
 * until the commit: whether there is another end is not asked. */
static int patient(int at, const char *path, int flags)
{
    struct stat stat;
    bool fifo = path != BAD && fstatat(at, path, &stat, 0) == 0 && S_ISFIFO(stat.st_mode);
    if (flags & O_PATH)
        return flags;
    if (fifo && !class_is_on("fifo"))
        flags = (flags & ~O_ACCMODE) | O_RDWR;
    return path == BAD || fifo ? flags | O_NONBLOCK : flags;
}

static int some_flags(void)
{
    static const int access[] = { O_RDONLY, O_RDWR, O_WRONLY, O_RDWR };
    int flags = PICK(access);
    if (chance(30))
        flags |= O_CREAT;
    if (chance(6))
        flags |= O_EXCL;
    if (chance(12))
        flags |= O_TRUNC;
    if (chance(12))
        flags |= O_APPEND;
    if (chance(8))
        flags |= O_NOFOLLOW;
    if (chance(8))
        flags |= O_DIRECTORY;
    if (chance(8))
        flags |= O_PATH;
    if (chance(20))
        flags |= O_CLOEXEC;
    if (chance(5))
        flags |= O_NONBLOCK;
    if (chance(3))
        flags |= O_NOATIME;
    if (chance(2))
        flags |= O_SYNC;
    return flags;
}

static void opened(void)
{
    answer();
    if (R >= 0) {
        keep((int)R);
        struct stat stat;
        if (fstat((int)R, &stat) == 0)
            say_stat(&stat);
    }
}

static void do_open(void)
{
    const char *p = path();
    int flags = patient(AT_FDCWD, p, some_flags());
    mode_t mode = some_mode();
    say("open(");
    say_path(p);
    say(", %#x, %o)", (unsigned)flags, mode);
    DO(open(p, flags, mode), SYS_open, p, flags, mode);
    opened();
}

static void do_openat(void)
{
    int at = dir();
    const char *p = path();
    int flags = patient(at, p, some_flags());
    mode_t mode = some_mode();
    say("openat(%d, ", at);
    say_path(p);
    say(", %#x, %o)", (unsigned)flags, mode);
    DO(openat(at, p, flags, mode), SYS_openat, at, p, flags, mode);
    opened();
}

static void do_openat2(void)
{
    static const unsigned resolves[] = { 0, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_SYMLINKS,
                                         RESOLVE_NO_MAGICLINKS, RESOLVE_NO_XDEV };
    int at = dir();
    const char *p = path();
    struct open_how how = { .flags = (unsigned)patient(at, p, some_flags()) };
    how.resolve = PICK(resolves);
    if (how.flags & O_CREAT)
        how.mode = some_mode();
    if (chance(3))
        how.flags |= 1ull << 40;
    say("openat2(%d, ", at);
    say_path(p);
    say(", %#llx, %llo, %#llx)", (unsigned long long)how.flags, (unsigned long long)how.mode,
        (unsigned long long)how.resolve);
    DO(syscall(SYS_openat2, at, p, &how, sizeof how), SYS_openat2, at, p, &how, sizeof how);
    opened();
}

static void do_creat(void)
{
    const char *p = path();
    mode_t mode = some_mode();
    struct stat stat;
    say("creat(");
    say_path(p);
    say(", %o)", mode);
    if (p != BAD && fstatat(AT_FDCWD, p, &stat, 0) == 0 && S_ISFIFO(stat.st_mode)) {
        say(" would wait");
        return;
    }
    DO(creat(p, mode), SYS_creat, p, mode);
    opened();
}

static void do_open_dir(void)
{
    const char *p = path();
    int flags = O_RDONLY | O_DIRECTORY | (chance(20) ? O_PATH : 0);
    say("open(");
    say_path(p);
    say(", %#x)", (unsigned)flags);
    DO(open(p, flags), SYS_open, p, flags);
    opened();
}

static void do_tmpfile(void)
{
    int at = dir();
    const char *p = chance(50) ? "." : path();
    int flags = O_TMPFILE | (chance(80) ? O_RDWR : O_WRONLY) | (chance(20) ? O_EXCL : 0);
    mode_t mode = some_mode();
    say("openat(%d, ", at);
    say_path(p);
    say(", O_TMPFILE %#x, %o)", (unsigned)flags, mode);
    DO(openat(at, p, flags, mode), SYS_openat, at, p, flags, mode);
    opened();
}

/* Gives an unnamed file a name. */
static void do_link_fd(void)
{
    int fd = descriptor(), at = dir();
    const char *to = path();
    char proc[64];
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    if (chance(50) || !class_is_on("proc")) {
        say("linkat(%d, \"\", %d, ", fd, at);
        say_path(to);
        say(", AT_EMPTY_PATH)");
        DO(linkat(fd, "", at, to, AT_EMPTY_PATH), SYS_linkat, fd, "", at, to, AT_EMPTY_PATH);
    } else {
        say("linkat(%s, %d, ", proc, at);
        say_path(to);
        say(", AT_SYMLINK_FOLLOW)");
        DO(linkat(AT_FDCWD, proc, at, to, AT_SYMLINK_FOLLOW), SYS_linkat, AT_FDCWD, proc, at, to,
           AT_SYMLINK_FOLLOW);
    }
    answer();
}

const struct kind opening[] = {
    { "open", "open", 70, do_open },
    { "openat", "open", 40, do_openat },
    { "openat2", "openat2", 15, do_openat2 },
    { "creat", "open", 8, do_creat },
    { "open dir", "open", 25, do_open_dir },
    { "tmpfile", "tmpfile", 10, do_tmpfile },
    { "link fd", "tmpfile", 8, do_link_fd },
    { 0 },
};
