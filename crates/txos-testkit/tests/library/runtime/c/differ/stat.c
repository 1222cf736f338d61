/* Looking at things. */
#include "differ.h"

static void found(const struct stat *stat)
{
    answer();
    if (R == 0)
        say_stat(stat);
}

static void do_stat(void)
{
    struct stat st;
    const char *p = path();
    say("stat(");
    say_path(p);
    say(")");
    DO(stat(p, &st), SYS_stat, p, &st);
    found(&st);
}

static void do_lstat(void)
{
    struct stat st;
    const char *p = path();
    say("lstat(");
    say_path(p);
    say(")");
    DO(lstat(p, &st), SYS_lstat, p, &st);
    found(&st);
}

static void do_fstat(void)
{
    struct stat st;
    int fd = descriptor();
    say("fstat(%d)", fd);
    DO(fstat(fd, &st), SYS_fstat, fd, &st);
    found(&st);
}

static void do_fstatat(void)
{
    struct stat st;
    int at = dir(), flags = at_flags(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
    const char *p = (flags & AT_EMPTY_PATH) && chance(60) ? "" : path();
    say("fstatat(%d, ", at);
    say_path(p);
    say(", %#x)", (unsigned)flags);
    DO(fstatat(at, p, &st, flags), SYS_newfstatat, at, p, &st, flags);
    found(&st);
}

static void do_statx(void)
{
    struct statx st;
    int at = dir(), flags = at_flags(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
    unsigned mask = chance(90) ? STATX_BASIC_STATS : STATX_SIZE | STATX_MODE | STATX_TYPE;
    const char *p = (flags & AT_EMPTY_PATH) && chance(60) ? "" : path();
    memset(&st, 0, sizeof st);
    say("statx(%d, ", at);
    say_path(p);
    say(", %#x, %#x)", (unsigned)flags, mask);
    DO(statx(at, p, flags, mask, &st), SYS_statx, at, p, flags, mask, &st);
    answer();
    if (R != 0)
        return;
    say(" mask %s", (st.stx_mask & mask) == mask ? "given" : "not given");
    /* What was not asked for may be there or not. */
    if (mask != STATX_BASIC_STATS) {
        say(" [%s %o %llu bytes]", type_name(st.stx_mode), st.stx_mode & 07777, (unsigned long long)st.stx_size);
        return;
    }
    struct stat plain = {
        .st_mode = st.stx_mode,
        .st_nlink = st.stx_nlink,
        .st_uid = st.stx_uid,
        .st_gid = st.stx_gid,
        .st_size = (off_t)st.stx_size,
        .st_ino = st.stx_ino,
        .st_dev = makedev(st.stx_dev_major, st.stx_dev_minor),
        .st_rdev = makedev(st.stx_rdev_major, st.stx_rdev_minor),
        .st_mtim = { st.stx_mtime.tv_sec, st.stx_mtime.tv_nsec },
    };
    say_stat(&plain);
}

static void do_access(void)
{
    const char *p = path();
    int mode = (int)below(8);
    say("access(");
    say_path(p);
    say(", %d)", mode);
    DO(access(p, mode), SYS_access, p, mode);
    answer();
}

static void do_faccessat(void)
{
    int at = dir(), mode = (int)below(9), flags = at_flags(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
    const char *p = (flags & AT_EMPTY_PATH) && chance(60) ? "" : path();
    if (chance(40))
        flags |= AT_EACCESS;
    say("faccessat2(%d, ", at);
    say_path(p);
    say(", %d, %#x)", mode, (unsigned)flags);
    DO(syscall(SYS_faccessat2, at, p, mode, flags), SYS_faccessat2, at, p, mode, flags);
    answer();
}

/* An unnamed file's name has its inode number in it. */
static void say_target(char *text)
{
    char *sharp = strchr(text, '#');
    if (sharp)
        for (char *p = sharp + 1; *p >= '0' && *p <= '9'; p++)
            *p = 'N';
    if (strncmp(text, "pipe:[", 6) == 0)
        text[6] = 0;
    say(" -> ");
    say_path(text);
}

static void linked(size_t size)
{
    answer();
    if (R >= 0 && (size_t)R < size) {
        room[R] = 0;
        say_target(room);
    }
}

static size_t link_size(void)
{
    return chance(90) ? 4096 : below(10);
}

static void do_readlink(void)
{
    const char *p = path();
    size_t size = link_size();
    say("readlink(");
    say_path(p);
    say(", %zu)", size);
    DO(readlink(p, room, size), SYS_readlink, p, room, size);
    linked(size);
}

static void do_readlinkat(void)
{
    int at = dir();
    const char *p = chance(20) ? "" : path();
    size_t size = link_size();
    say("readlinkat(%d, ", at);
    say_path(p);
    say(", %zu)", size);
    DO(readlinkat(at, p, room, size), SYS_readlinkat, at, p, room, size);
    linked(size);
}

static void do_proc_fd(void)
{
    int fd = descriptor();
    char proc[64];
    snprintf(proc, sizeof proc, chance(90) ? "/proc/self/fd/%d" : "/proc/self/cwd", fd);
    say("readlink(\"%s\")", proc);
    DO(readlink(proc, room, 4096), SYS_readlink, proc, room, 4096);
    static const char gone[] = " (deleted)";
    size_t n = sizeof gone - 1;
    if (R >= (long)n && R < 4096 && memcmp(room + R - n, gone, n) == 0 && !class_is_on("gone")) {
        say(" = a file without a name");
        return;
    }
    /* Inode numbers are of different lengths. */
    for (char *sharp = R > 0 ? memchr(room, '#', (size_t)R) : NULL; sharp && sharp + 2 < room + R &&
                                                                   sharp[2] >= '0' && sharp[2] <= '9';) {
        memmove(sharp + 1, sharp + 2, (size_t)(room + R - sharp - 2));
        R--;
    }
    linked(4096);
}

static void do_realpath(void)
{
    const char *p = path();
    char whole[8192];
    say("realpath(");
    say_path(p);
    say(")");
    char *r = p == BAD ? NULL : realpath(p, whole);
    if (!r) {
        say(" = %s", p == BAD ? "BAD" : strerrorname_np(errno));
        return;
    }
    say(" = ");
    say_path(r);
}

static void say_statfs(const struct statfs *st)
{
    answer();
    if (R == 0)
        say(" [%lx %ld %ld]", (unsigned long)st->f_type, (long)st->f_bsize, (long)st->f_namelen);
}

static void do_statfs(void)
{
    struct statfs st;
    if (chance(50)) {
        const char *p = path();
        say("statfs(");
        say_path(p);
        say(")");
        DO(statfs(p, &st), SYS_statfs, p, &st);
    } else {
        int fd = descriptor();
        say("fstatfs(%d)", fd);
        DO(fstatfs(fd, &st), SYS_fstatfs, fd, &st);
    }
    say_statfs(&st);
}

const struct kind stating[] = {
    { "stat", "stat", 25, do_stat },
    { "lstat", "stat", 20, do_lstat },
    { "fstat", "stat", 20, do_fstat },
    { "fstatat", "stat", 20, do_fstatat },
    { "statx", "stat", 20, do_statx },
    { "access", "access", 10, do_access },
    { "faccessat2", "access", 12, do_faccessat },
    { "readlink", "link", 12, do_readlink },
    { "readlinkat", "link", 8, do_readlinkat },
    { "readlink fd", "proc", 8, do_proc_fd },
    { "realpath", "link", 6, do_realpath },
    { "statfs", "statfs", 6, do_statfs },
    { 0 },
};
