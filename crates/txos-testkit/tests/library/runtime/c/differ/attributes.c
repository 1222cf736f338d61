/* Modes, owners, times, extended attributes. */
#include "differ.h"

static void do_chmod(void)
{
    mode_t mode = some_mode();
    int at, fd;
    const char *p = path();
    switch (below(4)) {
    case 0:
        say("chmod(");
        say_path(p);
        say(", %o)", mode);
        DO(chmod(p, mode), SYS_chmod, p, mode);
        break;
    case 1:
        fd = descriptor();
        say("fchmod(%d, %o)", fd, mode);
        DO(fchmod(fd, mode), SYS_fchmod, fd, mode);
        break;
    case 2:
        at = dir();
        say("fchmodat(%d, ", at);
        say_path(p);
        say(", %o)", mode);
        DO(fchmodat(at, p, mode, 0), SYS_fchmodat, at, p, mode);
        break;
    default: {
        at = dir();
        int flags = at_flags(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
        say("fchmodat2(%d, ", at);
        say_path(p);
        say(", %o, %#x)", mode, (unsigned)flags);
        DO(syscall(SYS_fchmodat2, at, p, mode, flags), SYS_fchmodat2, at, p, mode, flags);
        break;
    }
    }
    answer();
}

static void do_chown(void)
{
    uid_t uid = chance(30) ? (uid_t)-1 : chance(50) ? getuid() : below(3);
    gid_t gid = chance(30) ? (gid_t)-1 : chance(50) ? getgid() : below(3);
    const char *p = path();
    int fd = descriptor(), at = AT_FDCWD, flags = at_flags(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
    if (chance(40)) {
        at = dir();
        p = path();
    }
    switch (below(4)) {
    case 0:
        say("chown(");
        say_path(p);
        say(", %d, %d)", (int)uid, (int)gid);
        DO(chown(p, uid, gid), SYS_chown, p, uid, gid);
        break;
    case 1:
        say("lchown(");
        say_path(p);
        say(", %d, %d)", (int)uid, (int)gid);
        DO(lchown(p, uid, gid), SYS_lchown, p, uid, gid);
        break;
    case 2:
        say("fchown(%d, %d, %d)", fd, (int)uid, (int)gid);
        DO(fchown(fd, uid, gid), SYS_fchown, fd, uid, gid);
        break;
    default:
        say("fchownat(%d, ", at);
        say_path(p);
        say(", %d, %d, %#x)", (int)uid, (int)gid, (unsigned)flags);
        DO(fchownat(at, p, uid, gid, flags), SYS_fchownat, at, p, uid, gid, flags);
        break;
    }
    answer();
}

static void do_utimens(void)
{
    struct timespec times[2] = { { 1100000000 + call, 5 }, { 1200000000 + call, 7 } };
    bool null = chance(15);
    for (unsigned i = 0; i < 2; i++) {
        if (chance(15))
            times[i].tv_nsec = UTIME_NOW;
        else if (chance(15))
            times[i].tv_nsec = UTIME_OMIT;
        else if (chance(3))
            times[i].tv_nsec = 1000000000;
    }
    const struct timespec *given = null ? NULL : times;
    int fd = descriptor(), at = dir(), flags = at_flags(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
    const char *p = path();
    if (chance(40)) {
        say("futimens(%d, ", fd);
        DO(futimens(fd, given), SYS_utimensat, fd, NULL, given, 0);
    } else {
        say("utimensat(%d, ", at);
        say_path(p);
        say(", %#x, ", (unsigned)flags);
        DO(utimensat(at, p, given, flags), SYS_utimensat, at, p, given, flags);
    }
    say("%s %ld)", null ? "now" : "given", null ? 0 : times[1].tv_nsec);
    answer();
}

static void do_utimes(void)
{
    const struct timeval times[2] = { { 1300000000, 1 }, { 1300000001, 2 } };
    const char *p = path();
    say("utimes(");
    say_path(p);
    say(")");
    DO(utimes(p, times), SYS_utimes, p, times);
    answer();
}

/* --- Extended attributes ---------------------------------------------------------------------- */

static const char *attribute(void)
{
    static const char *const names[] = { "user.a", "user.b", "user.c", "trusted.a", "security.a",
                                         "nonsense", "user." };
    return chance(60) ? "user.a" : PICK(names);
}

static void do_setxattr(void)
{
    const char *p = path(), *a = attribute();
    int fd = descriptor(), flags = chance(30) ? (int)below(3) : 0;
    size_t size = chance(5) ? 3000 : below(40);
    const void *value = data(size);
    switch (below(3)) {
    case 0:
        say("setxattr(");
        say_path(p);
        DO(setxattr(p, a, value, size, flags), SYS_setxattr, p, a, value, size, flags);
        break;
    case 1:
        say("lsetxattr(");
        say_path(p);
        DO(lsetxattr(p, a, value, size, flags), SYS_lsetxattr, p, a, value, size, flags);
        break;
    default:
        say("fsetxattr(%d", fd);
        DO(fsetxattr(fd, a, value, size, flags), SYS_fsetxattr, fd, a, value, size, flags);
        break;
    }
    say(", %s, %zu, %d)", a, size, flags);
    answer();
}

static void do_getxattr(void)
{
    const char *p = path();
    const char *a = chance(85)                       ? attribute()
                    : class_is_on("acl") && chance(50) ? "system.posix_acl_access"
                    : class_is_on("acl")             ? "system.posix_acl_default"
                                                     : "user.a";
    int fd = descriptor();
    size_t size = chance(80) ? 4096 : below(10);
    switch (below(3)) {
    case 0:
        say("getxattr(");
        say_path(p);
        DO(getxattr(p, a, room, size), SYS_getxattr, p, a, room, size);
        break;
    case 1:
        say("lgetxattr(");
        say_path(p);
        DO(lgetxattr(p, a, room, size), SYS_lgetxattr, p, a, room, size);
        break;
    default:
        say("fgetxattr(%d", fd);
        DO(fgetxattr(fd, a, room, size), SYS_fgetxattr, fd, a, room, size);
        break;
    }
    say(", %s, %zu)", a, size);
    answer();
    if (R > 0 && size > 0)
        say_bytes(room, (size_t)R);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void do_listxattr(void)
{
    const char *p = path();
    int fd = descriptor();
    size_t size = chance(80) ? 4096 : below(10);
    switch (below(3)) {
    case 0:
        say("listxattr(");
        say_path(p);
        DO(listxattr(p, room, size), SYS_listxattr, p, room, size);
        break;
    case 1:
        say("llistxattr(");
        say_path(p);
        DO(llistxattr(p, room, size), SYS_llistxattr, p, room, size);
        break;
    default:
        say("flistxattr(%d", fd);
        DO(flistxattr(fd, room, size), SYS_flistxattr, fd, room, size);
        break;
    }
    say(", %zu)", size);
    /* xfs lists access lists once more, as what they are stored as. */
    for (long at = 0; size > 0 && at < R && !class_is_on("rawacl");) {
        long n = (long)strlen(room + at) + 1;
        if (strncmp(room + at, "trusted.SGI_ACL_", 16) == 0) {
            memmove(room + at, room + at + n, (size_t)(R - at - n));
            R -= n;
        } else {
            at += n;
        }
    }
    answer();
    /* Their order is the file system's own. */
    const char *names[64];
    size_t n = 0;
    for (long at = 0; size > 0 && at < R && n < LENGTH(names); at += (long)strlen(room + at) + 1)
        names[n++] = room + at;
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++)
        say(" %s", names[i]);
}

static void do_removexattr(void)
{
    const char *p = path(), *a = attribute();
    int fd = descriptor();
    switch (below(3)) {
    case 0:
        say("removexattr(");
        say_path(p);
        DO(removexattr(p, a), SYS_removexattr, p, a);
        break;
    case 1:
        say("lremovexattr(");
        say_path(p);
        DO(lremovexattr(p, a), SYS_lremovexattr, p, a);
        break;
    default:
        say("fremovexattr(%d", fd);
        DO(fremovexattr(fd, a), SYS_fremovexattr, fd, a);
        break;
    }
    say(", %s)", a);
    answer();
}

/* Access control lists as the kernel takes them. What goes into the mode is seen in the mode. */
static void do_acl(void)
{
    struct {
        uint32_t version;
        struct {
            uint16_t tag, permissions;
            uint32_t id;
        } entry[5];
    } acl = { 2,
              { { 1, 7, ~0u },
                { 2, (uint16_t)below(8), 1 + below(2) },
                { 4, (uint16_t)below(8), ~0u },
                { 16, (uint16_t)below(8), ~0u },
                { 32, (uint16_t)below(8), ~0u } } };
    const char *p = path();
    const char *a = chance(60) ? "system.posix_acl_default" : "system.posix_acl_access";
    bool removes = chance(20);
    say("%s(", removes ? "removexattr" : "setxattr");
    say_path(p);
    say(", %s)", a);
    if (removes)
        DO(removexattr(p, a), SYS_removexattr, p, a);
    else
        DO(setxattr(p, a, &acl, sizeof acl, 0), SYS_setxattr, p, a, &acl, sizeof acl, 0);
    answer();
}

const struct kind attributes[] = {
    { "chmod", "mode", 30, do_chmod },
    { "chown", "owner", 25, do_chown },
    { "utimens", "times", 25, do_utimens },
    { "utimes", "times", 4, do_utimes },
    { "setxattr", "xattr", 15, do_setxattr },
    { "getxattr", "xattr", 12, do_getxattr },
    { "listxattr", "xattr", 10, do_listxattr },
    { "removexattr", "xattr", 8, do_removexattr },
    { "acl", "acl", 8, do_acl },
    { 0 },
};
