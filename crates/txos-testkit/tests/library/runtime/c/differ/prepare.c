/* The tree at the beginning: of a seed always the same. Calls may fail; what is there then is what
 * there is. */
#include "differ.h"

static void times(const char *path)
{
    struct timespec both[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
    (void)!utimensat(AT_FDCWD, path, both, AT_SYMLINK_NOFOLLOW);
}

static void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0)
        return;
    unsigned size = some_size();
    (void)!write(fd, data(size), size);
    if (chance(20)) {
        (void)!ftruncate(fd, 20000);
        (void)!pwrite(fd, "far", 3, 30000);
    }
    close(fd);
}

static void link_to(const char *path)
{
    char target[4200];
    switch (below(6)) {
    case 0:
        snprintf(target, sizeof target, "%s", name());
        break;
    case 1:
        snprintf(target, sizeof target, "../%s", name());
        break;
    case 2:
        snprintf(target, sizeof target, "%s/%s", base, name());
        break;
    case 3:
        snprintf(target, sizeof target, "%s/../%s", name(), name());
        break;
    case 4:
        snprintf(target, sizeof target, ".");
        break;
    default:
        snprintf(target, sizeof target, "%s/%s/", name(), name());
        break;
    }
    (void)!symlink(target, path);
}

static const char *early_name(void)
{
    static const char *const names[] = { "a", "b", "c", "d", "e" };
    return PICK(names);
}

static void object(const char *path, int depth);

static void contents(const char *path, int depth)
{
    /* Some are left empty. */
    for (unsigned n = depth > 0 && chance(35) ? 0 : 2 + below(6); n > 0; n--) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, early_name());
        object(inner, depth + 1);
    }
}

/* u::rwx, u:1:rw-, g::r-x, m::rwx, o::--x */
static const unsigned char acl[] = {
    2, 0, 0, 0, /* version */
    1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 1, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255,
    16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 1, 0, 255, 255, 255, 255,
};

static void object(const char *path, int depth)
{
    unsigned what = below(20);
    if (depth < 3 && what < 10) {
        if (mkdir(path, 0755) == 0)
            contents(path, depth);
    } else if (what < 15) {
        make_file(path);
    } else if (what < 17) {
        link_to(path);
    } else if (what < 19) {
        char other[4096];
        snprintf(other, sizeof other, "%s/%s", base, name());
        (void)!link(other, path);
    } else {
        (void)!mkfifo(path, 0644);
    }
}

/* Owners, modes, attributes and times, from the leaves up: each would disturb what comes later. */
static void decorate(const char *path, int uid, int gid)
{
    struct stat stat;
    if (lstat(path, &stat) != 0)
        return;
    if (S_ISDIR(stat.st_mode)) {
        static const char *const names[] = { "a", "b", "c", "d", "e" };
        for (unsigned i = 0; i < LENGTH(names); i++) {
            char inner[4096];
            snprintf(inner, sizeof inner, "%s/%s", path, names[i]);
            decorate(inner, uid, gid);
        }
    }
    bool top = strcmp(path, base) == 0;
    /* In directories of others the tree itself can't be put back quite as it was: their times. */
    if (uid != 0 && (top || chance(80) || !class_is_on("locked")))
        (void)!lchown(path, (uid_t)uid, (gid_t)gid);
    else if (uid == 0 && chance(15))
        (void)!lchown(path, below(3), below(3));
    if (!S_ISLNK(stat.st_mode)) {
        if (top)
            (void)!chmod(path, 0755);
        else if (chance(30))
            (void)!chmod(path, some_mode() | (class_is_on("locked") ? 0 : 0777));
        else if (uid != 0 && chance(20))
            (void)!chmod(path, 0777);
        if (chance(40))
            (void)!setxattr(path, "user.a", "prepared", 8, 0);
        if (S_ISDIR(stat.st_mode) && !top && chance(10))
            (void)!setxattr(path, "system.posix_acl_default", acl, sizeof acl, 0);
        if (chance(4))
            (void)!setxattr(path, "system.posix_acl_access", acl, sizeof acl, 0);
    }
    times(path);
}

void prepare(int uid, int gid)
{
    umask(022);
    pick_from(seed, UINT64_MAX);
    contents(base, 0);
    contents(base, 0);
    decorate(base, uid, gid);
}
