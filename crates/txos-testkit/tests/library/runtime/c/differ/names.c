/* Names: making, removing, moving. */
#include "differ.h"

/* "name(" with one or two paths, and what comes after them. */
static void say_call(const char *name, int at, const char *p)
{
    say("%s(", name);
    if (at != AT_FDCWD)
        say("%d, ", at);
    say_path(p);
}

static void do_mkdir(void)
{
    mode_t mode = chance(70) ? 0755 : some_mode();
    const char *p = path();
    say_call("mkdir", AT_FDCWD, p);
    say(", %o)", mode);
    DO(mkdir(p, mode), SYS_mkdir, p, mode);
    answer();
}

static void do_mkdirat(void)
{
    int at = dir();
    mode_t mode = chance(70) ? 0755 : some_mode();
    const char *p = path();
    say_call("mkdirat", at, p);
    say(", %o)", mode);
    DO(mkdirat(at, p, mode), SYS_mkdirat, at, p, mode);
    answer();
}

static void do_mknod(void)
{
    static const mode_t types[] = { S_IFIFO, S_IFIFO, S_IFREG, S_IFCHR, S_IFSOCK, 0, S_IFDIR };
    mode_t mode = PICK(types) | some_mode();
    /* Harmless ones: null, and the device that overlays take for an absence. */
    dev_t dev = chance(70) ? makedev(1, 3) : 0;
    int at = dir();
    const char *p = path();
    say_call("mknodat", at, p);
    say(", %o, %lu)", mode, (unsigned long)dev);
    if (at == AT_FDCWD && chance(50))
        DO(mknod(p, mode, dev), SYS_mknod, p, mode, dev);
    else
        DO(mknodat(at, p, mode, dev), SYS_mknodat, at, p, mode, dev);
    answer();
}

static void do_link(void)
{
    const char *p = path(), *q = path();
    say_call("link", AT_FDCWD, p);
    say(", ");
    say_path(q);
    say(")");
    DO(link(p, q), SYS_link, p, q);
    answer();
}

static void do_linkat(void)
{
    int from = dir(), to = dir(), flags = at_flags(AT_EMPTY_PATH | AT_SYMLINK_FOLLOW);
    const char *p = path(), *q = path();
    say_call("linkat", from, p);
    say(", %d, ", to);
    say_path(q);
    say(", %#x)", (unsigned)flags);
    DO(linkat(from, p, to, q, flags), SYS_linkat, from, p, to, q, flags);
    answer();
}

static const char *target(void)
{
    static char text[8192];
    if (chance(2))
        return path();
    switch (below(7)) {
    case 0:
        snprintf(text, sizeof text, "../%s", name());
        break;
    case 1:
        snprintf(text, sizeof text, "%s/%s", base, name());
        break;
    case 2:
        snprintf(text, sizeof text, "%s/..", name());
        break;
    case 3:
        snprintf(text, sizeof text, "%s/%s", name(), name());
        break;
    case 4:
        snprintf(text, sizeof text, "./%s/", name());
        break;
    default:
        snprintf(text, sizeof text, "%s", name());
        break;
    }
    return text;
}

static void do_symlink(void)
{
    int at = dir();
    const char *t = target(), *p = path();
    say_call("symlinkat", AT_FDCWD, t);
    say(", %d, ", at);
    say_path(p);
    say(")");
    if (at == AT_FDCWD && chance(50))
        DO(symlink(t, p), SYS_symlink, t, p);
    else
        DO(symlinkat(t, at, p), SYS_symlinkat, t, at, p);
    answer();
}

static void do_unlink(void)
{
    const char *p = path();
    say_call("unlink", AT_FDCWD, p);
    say(")");
    DO(unlink(p), SYS_unlink, p);
    answer();
}

static void do_unlinkat(void)
{
    int at = dir(), flags = chance(40) ? AT_REMOVEDIR : 0;
    const char *p = path();
    if (chance(2))
        flags |= 1;
    say_call("unlinkat", at, p);
    say(", %#x)", (unsigned)flags);
    DO(unlinkat(at, p, flags), SYS_unlinkat, at, p, flags);
    answer();
}

static void do_rmdir(void)
{
    const char *p = path();
    say_call("rmdir", AT_FDCWD, p);
    say(")");
    DO(rmdir(p), SYS_rmdir, p);
    answer();
}

static void do_rename(void)
{
    const char *p = path(), *q = path();
    say_call("rename", AT_FDCWD, p);
    say(", ");
    say_path(q);
    say(")");
    DO(rename(p, q), SYS_rename, p, q);
    answer();
}

static void do_renameat(void)
{
    int from = dir(), to = dir();
    const char *p = path(), *q = path();
    say_call("renameat", from, p);
    say(", %d, ", to);
    say_path(q);
    say(")");
    DO(renameat(from, p, to, q), SYS_renameat, from, p, to, q);
    answer();
}

static void do_renameat2(void)
{
    int from = dir(), to = dir();
    unsigned flags = chance(30)   ? RENAME_NOREPLACE
                     : chance(50) ? RENAME_EXCHANGE
                     : chance(50) ? (class_is_on("whiteout") ? RENAME_WHITEOUT : 0)
                     : chance(80) ? 0
                                  : below(16);
    const char *p = path(), *q = path();
    if (!class_is_on("whiteout"))
        flags &= ~(unsigned)RENAME_WHITEOUT;
    say_call("renameat2", from, p);
    say(", %d, ", to);
    say_path(q);
    say(", %u)", flags);
    DO(renameat2(from, p, to, q, flags), SYS_renameat2, from, p, to, q, flags);
    answer();
}

const struct kind naming[] = {
    { "mkdir", "names", 25, do_mkdir },
    { "mkdirat", "names", 15, do_mkdirat },
    { "mknod", "mknod", 10, do_mknod },
    { "link", "hardlink", 15, do_link },
    { "linkat", "hardlink", 10, do_linkat },
    { "symlink", "link", 25, do_symlink },
    { "unlink", "names", 25, do_unlink },
    { "unlinkat", "names", 15, do_unlinkat },
    { "rmdir", "names", 15, do_rmdir },
    { "rename", "rename", 40, do_rename },
    { "renameat", "rename", 15, do_renameat },
    { "renameat2", "rename", 25, do_renameat2 },
    { 0 },
};
