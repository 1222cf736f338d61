/* interpret FILE SECTION DIR [OPTION...]
 *
 * Carries out one section of a list of operations (txos_testkit::trees has the format) in a
 * directory, and tells what each answered. Operations may fail; they are to fail alike, wherever
 * they are carried out.
 *
 * SECTION  0 is what prepares the tree, 1, 2... are the transactions
 * OPTION   --in commit|abort   in a transaction of the library
 *          --status N          ends with this status
 *          --without LIST      leaves out what a door has limits for: dirmove (moving directories),
 *                              linked (changing files with several names), owners (giving files away),
 *                              devices (changing or opening device nodes); does not tell: links (their number)
 *          --owner N           gives what is root's afterwards to this user and group
 *
 * All paths are relative, or begin with '@', which is the directory: nothing outside is meant, and
 * what links lead to has to be mounted read-only.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "../../../library/runtime/c/raw.h"

#define SLOTS 4
#define ROOM (1 << 20)
#define WORDS 8
#define LINES 4096
/* Times from here on are "now". */
#define NOW_FROM 1500000000
#define PREPARED 1000000000

static const char *base;
static const char *without = "";
static char *args[WORDS];
static int slot[SLOTS] = { -1, -1, -1, -1 };
static struct {
    char *at;
    size_t size;
    off_t offset;
    int fd;
} map[SLOTS];
static char room[ROOM];
static char text[ROOM];
static size_t length;

/* --- What is told: kept in memory until the end, as output is not part of a transaction ---------- */

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text + length, sizeof text - length, format, list);
    va_end(list);
    if (n > 0 && length + (size_t)n < sizeof text)
        length += (size_t)n;
}

static void tell(void)
{
    for (size_t at = 0; at < length;) {
        ssize_t n = write(1, text + at, length - at);
        if (n <= 0)
            _exit(4);
        at += (size_t)n;
    }
    length = 0;
}

static long answer(long r)
{
    if (r == -1)
        say(" = -1 %s", strerrorname_np(errno));
    else
        say(" = %ld", r);
    return r;
}

static void say_hash(const char *bytes, size_t size)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
    say(" %zu:%08x", size, (unsigned)(hash ^ hash >> 32));
}

/* --- Arguments ---------------------------------------------------------------------------------- */

static const char *path(int n)
{
    static char buffers[WORDS][4096];
    if (args[n][0] != '@')
        return args[n];
    snprintf(buffers[n], sizeof buffers[n], "%s%s", base, args[n] + 1);
    return buffers[n];
}

static long number(int n)
{
    return strtol(args[n], NULL, 0);
}

static mode_t mode(int n)
{
    return (mode_t)strtol(args[n], NULL, 8) & 07777;
}

static int *slot_at(int n)
{
    return &slot[(unsigned long)number(n) % SLOTS];
}

static int fd(int n)
{
    return *slot_at(n);
}

static const char *data(size_t size, int tag)
{
    size_t n = (size_t)snprintf(room, 32, "<%ld>", number(tag));
    for (size_t i = n; i < size && i < sizeof room; i++)
        room[i] = room[i - n];
    return room;
}

static size_t size_of(int n)
{
    unsigned long size = (unsigned long)number(n);
    return size < ROOM ? size : ROOM - 1;
}

static bool left_out(const char *what)
{
    return strstr(without, what) != NULL;
}

static bool is_directory(const char *at)
{
    struct stat st;
    return lstat(at, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool has_names(const char *at)
{
    struct stat st;
    return stat(at, &st) == 0 && !S_ISDIR(st.st_mode) && st.st_nlink > 1;
}

static bool is_device(int r, const struct stat *st)
{
    return r == 0 && (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode));
}

/* Whether an operation changes a device node, gives it another name, or opens it. */
static bool uses_device(void)
{
    static const char *const by_path[] = { "chmod", "chown", "lchown", "times", "ltimes", "setxattr", "lsetxattr",
                                           "removexattr", "acl", "dacl", "link", "linkf", "rename", "rename2",
                                           "read", "write", "append", "patch", "allocate", "map", "copy" };
    static const char *const by_slot[] = { "fchmod", "fchown", "ftimes", "fsetxattr", "flink" };
    struct stat st;
    for (unsigned i = 0; i < sizeof by_path / sizeof *by_path; i++)
        if (strcmp(args[0], by_path[i]) == 0 &&
            (is_device(lstat(path(1), &st), &st) || is_device(stat(path(1), &st), &st)))
            return true;
    for (unsigned i = 0; i < sizeof by_slot / sizeof *by_slot; i++)
        if (strcmp(args[0], by_slot[i]) == 0 && is_device(fstat(fd(1), &st), &st))
            return true;
    bool two = strcmp(args[0], "rename2") == 0 || strcmp(args[0], "copy") == 0 || strcmp(args[0], "open") == 0;
    return two && (is_device(lstat(path(2), &st), &st) || is_device(stat(path(2), &st), &st));
}

/* Whether an operation is left out: decided natively, for what counts links in another way. */
static bool skipped(void)
{
    const char *op = args[0];
    if (left_out("devices") && uses_device())
        return true;
    if (strncmp(op, "rename", 6) == 0) {
        if (left_out("dirmove") && (is_directory(path(1)) || is_directory(path(2))))
            return true;
        struct stat a, b;
        bool linked = (lstat(path(1), &a) == 0 && !S_ISDIR(a.st_mode) && a.st_nlink > 1) ||
                      (lstat(path(2), &b) == 0 && !S_ISDIR(b.st_mode) && b.st_nlink > 1);
        if (left_out("linked") && linked)
            return true;
    }
    static const char *const changing[] = { "write", "append", "patch", "truncate", "allocate", "map",
                                            "chmod", "chown", "times", "setxattr", "removexattr", "acl",
                                            "lsetxattr", "lchown", "link", "linkf", "open", "flink" };
    if (left_out("linked"))
        for (unsigned i = 0; i < sizeof changing / sizeof *changing; i++)
            if (strcmp(op, changing[i]) == 0 && args[1] && has_names(path(strcmp(op, "open") == 0 ? 2 : 1)))
                return true;
    if (left_out("linked") && strcmp(op, "copy") == 0 && args[2] && has_names(path(2)))
        return true;
    if (left_out("owners") && (strcmp(op, "chown") == 0 || strcmp(op, "lchown") == 0 || strcmp(op, "fchown") == 0))
        return true;
    return false;
}

/* --- Operations --------------------------------------------------------------------------------- */

static void say_stat(long r, const struct stat *st)
{
    if (answer(r) != 0)
        return;
    bool dir = S_ISDIR(st->st_mode);
    say(" %o %u:%u", st->st_mode, st->st_uid, st->st_gid);
    if (!dir)
        say(" links %lu size %ld", left_out("links") ? 0 : (unsigned long)st->st_nlink, (long)st->st_size);
    if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
        say(" device %u:%u", major(st->st_rdev), minor(st->st_rdev));
    if (S_ISFIFO(st->st_mode))
        return; /* what passes through it moves its times, not always at the same place */
    if (st->st_mtime >= NOW_FROM)
        say(" now");
    else
        say(" at %ld.%ld", (long)st->st_mtime, st->st_mtim.tv_nsec);
}

static int less(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void say_list(int at)
{
    char *names[1024];
    unsigned count = 0;
    DIR *dir = fdopendir(at);
    if (!dir) {
        answer(-1);
        close(at);
        return;
    }
    rewinddir(dir);
    for (struct dirent *entry; count < 1024 && (entry = readdir(dir));)
        names[count++] = strdup(entry->d_name);
    closedir(dir);
    qsort(names, count, sizeof *names, less);
    answer(count);
    for (unsigned i = 0; i < count; i++) {
        say(" %s", names[i]);
        free(names[i]);
    }
}

static void write_to(int to, off_t at, int size, int tag)
{
    if (to < 0) {
        answer(-1);
        return;
    }
    size_t n = size_of(size);
    const char *bytes = data(n, tag);
    answer(at < 0 ? write(to, bytes, n) : pwrite(to, bytes, n, at));
    answer(close(to));
}

static void read_from(int from, size_t size)
{
    size_t n = 0;
    for (ssize_t r; n < size && (r = read(from, room + n, size - n)) != 0; n += (size_t)r)
        if (r < 0) {
            answer(-1);
            return;
        }
    answer(0);
    say_hash(room, n);
}

static void allocate(int to, long kind, off_t at, off_t size)
{
    static const int modes[] = { 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                 FALLOC_FL_ZERO_RANGE };
    answer(fallocate(to, modes[(unsigned long)kind % 4], at, size));
}

static struct timespec some_time(int n)
{
    long seconds = number(n);
    struct timespec time = { seconds, seconds % 1000 };
    if (seconds == -1)
        time.tv_nsec = UTIME_NOW;
    if (seconds == -2)
        time.tv_nsec = UTIME_OMIT;
    return time;
}

/* u::rwx, u:1:rw-, g::r-x, m::rwx, o::--x */
static const unsigned char named[] = {
    2, 0, 0, 0, /* version */
    1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 1, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255,
    16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 1, 0, 255, 255, 255, 255,
};

/* u::rw-, g::r--, o::--- */
static const unsigned char minimal[] = {
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
};

/* u::rwx, u:2:r--, g::rwx, g:1:-wx, m::r--, o::r-- */
static const unsigned char masked[] = {
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 4, 0, 2, 0, 0, 0, 4, 0, 7, 0, 255, 255, 255, 255,
    8, 0, 3, 0, 1, 0, 0, 0, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255,
};

static void acl(const char *at, const char *name, long kind)
{
    switch ((unsigned long)kind % 4) {
    case 0:
        /* File systems differ in what they say if there is none. */
        if (removexattr(at, name) != 0 && errno != ENODATA)
            answer(-1);
        return;
    case 1:
        answer(setxattr(at, name, named, sizeof named, 0));
        return;
    case 2:
        answer(setxattr(at, name, minimal, sizeof minimal, 0));
        return;
    default:
        answer(setxattr(at, name, masked, sizeof masked, 0));
    }
}

static int remove_one(const char *at, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)where;
    if ((type == FTW_DP || type == FTW_DNR || type == FTW_D ? rmdir(at) : unlink(at)) != 0)
        say(" %s", strerrorname_np(errno));
    return 0;
}

static void open_slot(void)
{
    int flags = O_NONBLOCK | O_CLOEXEC, *to = slot_at(1);
    const char *word = args[3];
    flags |= strchr(word, '+') ? O_RDWR : strchr(word, 'w') ? O_WRONLY : O_RDONLY;
    static const struct {
        char letter;
        int flag;
    } letters[] = { { 'c', O_CREAT }, { 'x', O_EXCL }, { 't', O_TRUNC }, { 'a', O_APPEND },
                    { 'd', O_DIRECTORY }, { 'n', O_NOFOLLOW }, { 'p', O_PATH }, { 's', O_SYNC } };
    for (unsigned i = 0; i < sizeof letters / sizeof *letters; i++)
        if (strchr(word, letters[i].letter))
            flags |= letters[i].flag;
    if (*to >= 0)
        close(*to);
    *to = open(path(2), flags, mode(4));
    answer(*to < 0 ? -1 : 0);
}

static void unmap(unsigned n)
{
    if (map[n].at) {
        munmap(map[n].at, map[n].size);
        close(map[n].fd);
        map[n].at = NULL;
    }
}

static void poke(unsigned n, off_t offset, int tag)
{
    struct stat st;
    /* Beyond the end of the file a store is a signal, not an answer. */
    if (!map[n].at || offset < 0 || offset >= (off_t)map[n].size || fstat(map[n].fd, &st) != 0 ||
        map[n].offset + offset >= st.st_size) {
        say(" = nothing there");
        return;
    }
    map[n].at[offset] = (char)number(tag);
    answer(0);
}

static void carry_out(void)
{
    const char *op = args[0];
    struct stat st;
#define IS(name) (strcmp(op, name) == 0)
    if (IS("create")) {
        int to = open(path(1), O_WRONLY | O_CREAT | O_EXCL | O_NONBLOCK, mode(2));
        answer(to < 0 ? -1 : close(to));
    } else if (IS("write")) {
        write_to(open(path(1), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, 0644), -1, 2, 3);
    } else if (IS("append")) {
        write_to(open(path(1), O_WRONLY | O_APPEND | O_NONBLOCK), -1, 2, 3);
    } else if (IS("patch")) {
        write_to(open(path(1), O_WRONLY | O_NONBLOCK), number(2), 3, 4);
    } else if (IS("truncate")) {
        answer(truncate(path(1), number(2)));
    } else if (IS("allocate")) {
        int to = open(path(1), O_WRONLY | O_NONBLOCK);
        if (to < 0) {
            answer(-1);
            return;
        }
        allocate(to, number(2), number(3), number(4));
        answer(close(to));
    } else if (IS("map")) {
        int to = open(path(1), O_RDWR | O_NONBLOCK);
        if (to < 0 || fstat(to, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
            say(" = nothing to map");
            if (to >= 0)
                close(to);
            return;
        }
        size_t size = st.st_size < ROOM ? (size_t)st.st_size : ROOM;
        char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, to, 0);
        answer(close(to));
        if (at == MAP_FAILED) {
            answer(-1);
            return;
        }
        size_t from = (size_t)number(2) % size, n = size_of(3);
        memcpy(at + from, data(n, 4), n < size - from ? n : size - from);
        answer(munmap(at, size));
    } else if (IS("copy")) {
        int from = open(path(1), O_RDONLY | O_NONBLOCK);
        if (from < 0) {
            answer(-1);
            return;
        }
        int to = open(path(2), O_WRONLY | O_CREAT | O_NONBLOCK, 0644);
        if (to < 0)
            answer(-1);
        else {
            answer(copy_file_range(from, NULL, to, NULL, ROOM, 0));
            answer(close(to));
        }
        close(from);
    } else if (IS("tmpfile")) {
        char name[64];
        int to = open(path(1), O_WRONLY | O_TMPFILE, 0640);
        if (to < 0) {
            answer(-1);
            return;
        }
        size_t n = size_of(3);
        const char *bytes = data(n, 4);
        answer(write(to, bytes, n));
        snprintf(name, sizeof name, "/proc/self/fd/%d", to);
        answer(linkat(AT_FDCWD, name, AT_FDCWD, path(2), AT_SYMLINK_FOLLOW));
        answer(close(to));
    } else if (IS("mkdir")) {
        answer(mkdir(path(1), mode(2)));
    } else if (IS("fifo")) {
        answer(mkfifo(path(1), mode(2)));
    } else if (IS("socket")) {
        answer(mknod(path(1), S_IFSOCK | mode(2), 0));
    } else if (IS("device")) {
        /* The null device, and one that no driver has. */
        bool block = number(2) & 1;
        answer(mknod(path(1), block ? S_IFBLK | 0600 : S_IFCHR | 0666, block ? makedev(240, 7) : makedev(1, 3)));
    } else if (IS("symlink")) {
        answer(symlink(path(1), path(2)));
    } else if (IS("link")) {
        answer(link(path(1), path(2)));
    } else if (IS("linkf")) {
        answer(linkat(AT_FDCWD, path(1), AT_FDCWD, path(2), AT_SYMLINK_FOLLOW));
    } else if (IS("rename")) {
        answer(rename(path(1), path(2)));
    } else if (IS("rename2")) {
        answer(renameat2(AT_FDCWD, path(1), AT_FDCWD, path(2), number(3) & 1 ? RENAME_NOREPLACE : RENAME_EXCHANGE));
    } else if (IS("unlink")) {
        answer(unlink(path(1)));
    } else if (IS("rmdir")) {
        answer(rmdir(path(1)));
    } else if (IS("remove")) {
        if (lstat(path(1), &st) != 0) {
            answer(-1);
        } else if (strcmp(args[1], ".") == 0) {
            errno = EINVAL;
            answer(-1);
        } else {
            answer(nftw(path(1), remove_one, 16, FTW_DEPTH | FTW_PHYS));
        }
    } else if (IS("chmod")) {
        answer(chmod(path(1), mode(2)));
    } else if (IS("chown")) {
        answer(chown(path(1), (uid_t)number(2), (gid_t)number(3)));
    } else if (IS("lchown")) {
        answer(lchown(path(1), (uid_t)number(2), (gid_t)number(3)));
    } else if (IS("times") || IS("ltimes")) {
        struct timespec both[2] = { some_time(2), some_time(3) };
        answer(utimensat(AT_FDCWD, path(1), both, op[0] == 'l' ? AT_SYMLINK_NOFOLLOW : 0));
    } else if (IS("setxattr") || IS("lsetxattr")) {
        size_t n = size_of(3);
        const char *bytes = data(n, 4);
        answer(op[0] == 'l' ? lsetxattr(path(1), args[2], bytes, n, 0) : setxattr(path(1), args[2], bytes, n, 0));
    } else if (IS("removexattr")) {
        answer(removexattr(path(1), args[2]));
    } else if (IS("acl")) {
        acl(path(1), "system.posix_acl_access", number(2));
    } else if (IS("dacl")) {
        acl(path(1), "system.posix_acl_default", number(2));
    } else if (IS("stat")) {
        say_stat(stat(path(1), &st), &st);
    } else if (IS("lstat")) {
        say_stat(lstat(path(1), &st), &st);
    } else if (IS("read")) {
        int from = open(path(1), O_RDONLY | O_NONBLOCK);
        if (from < 0) {
            answer(-1);
            return;
        }
        read_from(from, 300000);
        close(from);
    } else if (IS("list")) {
        int from = open(path(1), O_RDONLY | O_DIRECTORY);
        if (from < 0)
            answer(-1);
        else
            say_list(from);
    } else if (IS("readlink")) {
        ssize_t n = readlink(path(1), room, sizeof room - 1);
        if (answer(n) > 0)
            say_hash(room, (size_t)n);
    } else if (IS("access")) {
        answer(access(path(1), (int)number(2) & 7));
    } else if (IS("attributes")) {
        ssize_t n = llistxattr(path(1), room, 4096);
        /* xfs lists access lists once more, as what they are stored as. */
        for (ssize_t at = 0; at < n;) {
            ssize_t length = (ssize_t)strlen(room + at) + 1;
            if (strncmp(room + at, "trusted.SGI_ACL_", 16) == 0) {
                memmove(room + at, room + at + length, (size_t)(n - at - length));
                n -= length;
            } else {
                at += length;
            }
        }
        if (answer(n) > 0) {
            uint64_t sum = 0;
            for (char *name = room; name < room + n; name += strlen(name) + 1) {
                char value[4096];
                ssize_t size = lgetxattr(path(1), name, value, sizeof value);
                sum += (uint64_t)size + (unsigned char)name[strlen(name) - 1];
                for (ssize_t i = 0; i < size; i++)
                    sum += (unsigned char)value[i] * (uint64_t)(i + 1);
            }
            say(" %lu", (unsigned long)sum);
        }
    } else if (IS("open")) {
        open_slot();
    } else if (IS("fwrite")) {
        size_t n = size_of(2);
        const char *bytes = data(n, 3);
        answer(write(fd(1), bytes, n));
    } else if (IS("fpatch")) {
        size_t n = size_of(3);
        const char *bytes = data(n, 4);
        answer(pwrite(fd(1), bytes, n, number(2)));
    } else if (IS("fread")) {
        read_from(fd(1), size_of(2));
    } else if (IS("seek")) {
        static const int whence[] = { SEEK_SET, SEEK_CUR, SEEK_END };
        off_t at = lseek(fd(1), number(2), whence[(unsigned long)number(3) % 3]);
        // A position in a directory means something to the file system only.
        answer(at > 0 && fstat(fd(1), &st) == 0 && S_ISDIR(st.st_mode) ? 0 : at);
    } else if (IS("ftruncate")) {
        answer(ftruncate(fd(1), number(2)));
    } else if (IS("fallocate")) {
        allocate(fd(1), number(2), number(3), number(4));
    } else if (IS("fchmod")) {
        answer(fchmod(fd(1), mode(2)));
    } else if (IS("fchown")) {
        answer(fchown(fd(1), (uid_t)number(2), (gid_t)number(3)));
    } else if (IS("ftimes")) {
        struct timespec both[2] = { some_time(2), some_time(3) };
        answer(futimens(fd(1), both));
    } else if (IS("fsetxattr")) {
        size_t n = size_of(3);
        const char *bytes = data(n, 4);
        answer(fsetxattr(fd(1), args[2], bytes, n, 0));
    } else if (IS("fstat")) {
        say_stat(fstat(fd(1), &st), &st);
    } else if (IS("flist")) {
        int copy = dup(fd(1));
        if (copy < 0)
            answer(-1);
        else
            say_list(copy);
    } else if (IS("fsync")) {
        answer(fsync(fd(1)));
    } else if (IS("close")) {
        answer(close(fd(1)));
        *slot_at(1) = -1;
    } else if (IS("dup")) {
        int copy = dup(fd(1)), *to = slot_at(2);
        if (copy >= 0) {
            if (*to >= 0)
                close(*to);
            *to = copy;
        }
        answer(copy < 0 ? -1 : 0);
    } else if (IS("fmap")) {
        unsigned n = (unsigned)number(1) % SLOTS;
        unmap(n);
        if (fstat(fd(1), &st) != 0 || !S_ISREG(st.st_mode)) {
            say(" = nothing to map");
            return;
        }
        map[n].offset = number(2) & ~4095L;
        map[n].size = size_of(3);
        char *at = mmap(NULL, map[n].size, PROT_READ | PROT_WRITE, MAP_SHARED, fd(1), map[n].offset);
        answer(at == MAP_FAILED ? -1 : 0);
        if (at != MAP_FAILED) {
            map[n].at = at;
            map[n].fd = dup(fd(1));
        }
    } else if (IS("poke")) {
        poke((unsigned)number(1) % SLOTS, number(2), 3);
    } else if (IS("unmap")) {
        unmap((unsigned)number(1) % SLOTS);
        answer(0);
    } else if (IS("flink")) {
        char name[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd(1));
        answer(linkat(AT_FDCWD, name, AT_FDCWD, path(2), AT_SYMLINK_FOLLOW));
    } else if (IS("chdir")) {
        answer(chdir(path(1)));
    } else if (IS("fchdir")) {
        answer(fchdir(fd(1)));
    } else if (IS("home")) {
        answer(chdir(base));
    } else if (IS("umask")) {
        say(" = %o", umask(mode(1)));
    } else {
        fprintf(stderr, "interpret: %s: no such operation\n", op);
        exit(2);
    }
}

/* --- The list ----------------------------------------------------------------------------------- */

/* How many arguments each takes: checked before anything is done. */
static int arity(const char *op)
{
    static const char *const kinds[] = {
        "home",
        "unlink rmdir remove stat lstat read list readlink attributes fstat flist fsync close unmap chdir fchdir umask",
        "create truncate mkdir fifo socket device symlink link linkf rename chmod removexattr acl dacl access fread "
        "ftruncate fchmod dup flink copy",
        "write append rename2 chown lchown times ltimes fwrite seek fchown ftimes fmap poke",
        "patch allocate map tmpfile setxattr lsetxattr open fpatch fallocate fsetxattr",
    };
    size_t n = strlen(op);
    for (int i = 0; i < 5; i++)
        for (const char *at = kinds[i]; (at = strstr(at, op)); at += n)
            if ((at == kinds[i] || at[-1] == ' ') && (at[n] == 0 || at[n] == ' '))
                return i;
    return -1;
}

static char *lines[LINES];
static unsigned line_count;

static void read_list(const char *file, long section)
{
    FILE *stream = fopen(file, "re");
    if (!stream) {
        perror(file);
        exit(2);
    }
    char *line = NULL;
    size_t size = 0;
    long at = -1;
    while (getline(&line, &size, stream) > 0) {
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line, "prepare") == 0) {
            at = 0;
        } else if (strcmp(line, "transaction") == 0) {
            at = at < 0 ? 1 : at + 1;
        } else if (at == section && line[0] && line[0] != '#') {
            if (line_count == LINES) {
                fprintf(stderr, "interpret: too long a list\n");
                exit(2);
            }
            lines[line_count++] = strdup(line);
        }
    }
    free(line);
    fclose(stream);
}

/* Threads that carry out operations by turns. */
enum { MEMBERS = 2 };
static struct member {
    sem_t go, done;
    bool joins, ends;
    pthread_t thread;
} members[MEMBERS];
static bool by_turns;
static int shown = -1;

static void *member(void *argument)
{
    struct member *own = argument;
    sem_wait(&own->go);
    if (own->joins && sys_xjoin(shown) != 0) {
        fprintf(stderr, "interpret: not joined: %s\n", txos_strerror());
        exit(3);
    }
    while (!own->ends) {
        carry_out();
        sem_post(&own->done);
        sem_wait(&own->go);
    }
    if (own->joins && sys_xend() != 0) {
        fprintf(stderr, "interpret: not left: %s\n", txos_strerror());
        exit(3);
    }
    return NULL;
}

static void start_member(struct member *own)
{
    sem_init(&own->go, 0, 0);
    sem_init(&own->done, 0, 0);
    if (pthread_create(&own->thread, NULL, member, own) != 0)
        exit(3);
}

static void end_members(void)
{
    for (int i = 0; i < MEMBERS; i++) {
        members[i].ends = true;
        sem_post(&members[i].go);
        pthread_join(members[i].thread, NULL);
    }
    close(shown);
}

static void carry_out_by_turns(unsigned n)
{
    unsigned whose = n % (MEMBERS + 1);
    if (whose == MEMBERS) {
        carry_out();
        return;
    }
    sem_post(&members[whose].go);
    sem_wait(&members[whose].done);
}

static void carry_out_list(void)
{
    for (unsigned n = 0; n < line_count; n++) {
        say("%s", lines[n]);
        int count = 0;
        memset(args, 0, sizeof args);
        char *rest = lines[n];
        for (char *word; count < WORDS && (word = strsep(&rest, " "));)
            if (*word)
                args[count++] = word;
        if (count == 0 || arity(args[0]) != count - 1) {
            fprintf(stderr, "interpret: line %u: no such operation\n", n);
            exit(2);
        }
        if (skipped())
            say(" is left out");
        else if (by_turns)
            carry_out_by_turns(n);
        else
            carry_out();
        say("\n");
    }
}

static int owner = -1;

static int finish_one(const char *at, const struct stat *st, int type, struct FTW *where)
{
    (void)type, (void)where;
    if (owner >= 0 && st->st_uid == 0) {
        /* This takes set-user-ID bits away. */
        if (lchown(at, (uid_t)owner, (gid_t)owner) != 0 ||
            (!S_ISLNK(st->st_mode) && chmod(at, st->st_mode & 07777) != 0))
            perror(at);
    }
    const struct timespec both[2] = { { PREPARED, 0 }, { PREPARED, 0 } };
    if (utimensat(AT_FDCWD, at, both, AT_SYMLINK_NOFOLLOW) != 0)
        perror(at);
    return 0;
}

/* Root may do everything: what is not the test's own has to be mounted read-only. An ordinary user
 * makes namespaces by writing in /proc. */
static void must_be_contained(void)
{
    static const char *const places[] = { "/", "/dev", "/proc", "/tmp", "/etc", "/home", "/root" };
    struct statvfs st;
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++)
        if (statvfs(places[i], &st) == 0 && !(st.f_flag & ST_RDONLY) &&
            (getuid() == 0 || strcmp(places[i], "/proc") != 0)) {
            fprintf(stderr, "interpret: %s is mounted for writing: not here\n", places[i]);
            exit(2);
        }
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc % 2) {
        fprintf(stderr, "usage: interpret FILE SECTION DIR [OPTION VALUE]...\n");
        return 2;
    }
    const char *in = "";
    int status = 0;
    base = argv[3];
    for (int i = 4; i < argc; i += 2) {
        if (strcmp(argv[i], "--in") == 0)
            in = argv[i + 1];
        else if (strcmp(argv[i], "--status") == 0)
            status = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--without") == 0)
            without = argv[i + 1];
        else if (strcmp(argv[i], "--owner") == 0)
            owner = atoi(argv[i + 1]);
        else
            return 2;
    }
    must_be_contained();
    long section = atol(argv[2]);
    read_list(argv[1], section);
    if (chdir(base) != 0) {
        perror(base);
        return 2;
    }
    umask(022);
    by_turns = strcmp(in, "members") == 0;
    if (by_turns) {
        members[0].joins = true;
        start_member(&members[0]);
    }
    if (*in) {
        if (!sys_xbegin || sys_xbegin(by_turns ? TX_THREADS : 0) != 0) {
            fprintf(stderr, "interpret: no transaction: %s\n", txos_strerror ? txos_strerror() : "not linked");
            return 3;
        }
    }
    if (by_turns) {
        start_member(&members[1]);
        shown = txos_share();
    }
    carry_out_list();
    if (by_turns)
        end_members();
    if ((by_turns || strcmp(in, "commit") == 0) && sys_xend() != 0) {
        fprintf(stderr, "interpret: not committed: %s\n", txos_strerror());
        return 3;
    }
    if (strcmp(in, "abort") == 0)
        sys_xabort(1);
    if (section == 0 && nftw(base, finish_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
        perror(base);
    tell();
    return status;
}
