/* What is written down. */
#include "differ.h"
#include <ftw.h>

#define SIZE_MAX_LOG (16u << 20)

static char *text;
static size_t used;
static bool mapped;

/* Into shared memory if standard output allows that: a program that dies in a transaction has
 * still told what it did, and writing things down is not itself a system call. */
void log_open(void)
{
    struct stat stat;
    /* A mapping wants to be read as well, and standard output may be open for writing only. */
    int fd = fstat(1, &stat) == 0 && S_ISREG(stat.st_mode) ? open("/proc/self/fd/1", O_RDWR) : -1;
    mapped = fd >= 0 && ftruncate(fd, SIZE_MAX_LOG) == 0;
    text = mmap(NULL, SIZE_MAX_LOG, PROT_READ | PROT_WRITE,
                mapped ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, mapped ? fd : -1, 0);
    if (fd >= 0)
        close(fd);
    if (text == MAP_FAILED) {
        perror("differ: memory for the log");
        exit(2);
    }
}

void log_close(void)
{
    bool ok = true;
    if (mapped)
        ok = ftruncate(1, (off_t)used) == 0;
    else
        for (size_t at = 0; ok && at < used;) {
            ssize_t n = write(1, text + at, used - at);
            ok = n > 0;
            at += ok ? (size_t)n : 0;
        }
    if (!ok) {
        perror("differ: writing the log");
        exit(2);
    }
}

void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text + used, SIZE_MAX_LOG - used, format, list);
    va_end(list);
    if (n < 0 || (size_t)n >= SIZE_MAX_LOG - used)
        abort();
    used += (size_t)n;
}

void answer(void)
{
    if (R == -1)
        say(" = -1 %s", strerrorname_np(E));
    else
        say(" = %ld", R);
}

static uint64_t hash(const void *bytes, size_t size)
{
    uint64_t h = 0xcbf29ce484222325;
    for (const unsigned char *p = bytes; size-- > 0; p++)
        h = (h ^ *p) * 0x100000001b3;
    return h;
}

void say_path(const char *path)
{
    if (path == BAD) {
        say("BAD");
    } else if (strlen(path) > 200) {
        say("\"%.8s...\"(%zu)", path, strlen(path));
    } else {
        size_t n = strlen(base);
        bool below = n > 1 && strncmp(path, base, n) == 0;
        say("\"%s%s\"", below ? "BASE" : "", below ? path + n : path);
    }
}

void say_bytes(const void *bytes, size_t size)
{
    say(" %zu:%016llx", size, (unsigned long long)hash(bytes, size));
}

/* Times from here on are those of the test itself: "now", whatever they are exactly. */
#define NOW_FROM 1500000000

void say_time(int64_t seconds, int64_t nanoseconds)
{
    if (seconds >= NOW_FROM)
        say(" now");
    else
        say(" %lld.%09lld", (long long)seconds, (long long)nanoseconds);
}

static struct {
    uint64_t dev, ino;
} inodes[8192];
static unsigned inode_count;

unsigned inode_number(uint64_t dev, uint64_t ino)
{
    if (!class_is_on("ino"))
        return 0;
    for (unsigned i = 0; i < inode_count; i++)
        if (inodes[i].dev == dev && inodes[i].ino == ino)
            return i + 1;
    if (inode_count == LENGTH(inodes))
        abort();
    inodes[inode_count].dev = dev;
    inodes[inode_count].ino = ino;
    return ++inode_count;
}

void forget_inodes(void)
{
    inode_count = 0;
}

const char *type_name(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG: return "file";
    case S_IFDIR: return "dir";
    case S_IFLNK: return "link";
    case S_IFIFO: return "fifo";
    case S_IFCHR: return "chr";
    case S_IFBLK: return "blk";
    case S_IFSOCK: return "socket";
    default: return "other";
    }
}

void say_stat(const struct stat *stat)
{
    bool is_dir = S_ISDIR(stat->st_mode);
    say(" [%s %o", type_name(stat->st_mode), stat->st_mode & 07777);
    if (!is_dir || class_is_on("dirlinks"))
        say(" x%lu", (unsigned long)stat->st_nlink);
    say(" %u:%u", stat->st_uid, stat->st_gid);
    if (!is_dir)
        say(" %lld bytes", (long long)stat->st_size);
    if (S_ISCHR(stat->st_mode) || S_ISBLK(stat->st_mode))
        say(" %u,%u", major(stat->st_rdev), minor(stat->st_rdev));
    say_time(stat->st_mtim.tv_sec, stat->st_mtim.tv_nsec);
    say(" #%u]", inode_number(stat->st_dev, stat->st_ino));
}

/* --- The state of the process ----------------------------------------------------------------- */

#define FDS_MAX 64 /* the sequence opens none beyond; what the library holds is elsewhere */

static const struct stat *wanted;

static int is_wanted(const char *at, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)at, (void)type, (void)ftw;
    return stat->st_dev == wanted->st_dev && stat->st_ino == wanted->st_ino;
}

static bool is_below(const struct stat *stat)
{
    wanted = stat;
    return nftw(base, is_wanted, 16, FTW_PHYS) == 1;
}

/* Whether the object is what its path leads to. */
static const char *where(int fd, const struct stat *stat)
{
    char proc[64], target[4096];
    struct stat other;
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(proc, target, sizeof target - 1);
    if (n < 0)
        return "?";
    target[n] = 0;
    if (lstat(target, &other) != 0)
        /* A file that was given another name and lost this one may as well have been moved. */
        return stat->st_nlink > 0 && is_below(stat) ? "there" : "nowhere";
    return other.st_dev == stat->st_dev && other.st_ino == stat->st_ino ? "there" : "elsewhere";
}

static void say_descriptor(int fd)
{
    int flags = fcntl(fd, F_GETFD);
    if (flags == -1)
        return;
    int status = fcntl(fd, F_GETFL);
    if (!class_is_on("nofollow"))
        status &= ~O_NOFOLLOW;
    struct stat stat;
    say("  %d: fd %x fl %x", fd, (unsigned)flags, (unsigned)status);
    if (fstat(fd, &stat) == 0) {
        if (!S_ISDIR(stat.st_mode))
            say(" at %lld", (long long)lseek(fd, 0, SEEK_CUR));
        say_stat(&stat);
        if (S_ISREG(stat.st_mode) || S_ISDIR(stat.st_mode))
            say(" %s", where(fd, &stat));
        if (S_ISREG(stat.st_mode) && (status & O_ACCMODE) != O_WRONLY && !(status & O_PATH)) {
            ssize_t n = pread(fd, room, sizeof room, 0);
            say_bytes(room, n < 0 ? 0 : (size_t)n);
        }
    }
    say("\n");
}

void say_state(const char *when)
{
    forget_inodes();
    say("state %s\n", when);
    for (int fd = 3; fd < FDS_MAX; fd++)
        say_descriptor(fd);
    /* The system call, whatever the C library makes of a directory out of reach. */
    long n = syscall(SYS_getcwd, room, sizeof room);
    say("  cwd ");
    if (n > 0)
        say_path(room);
    else
        say("%s", strerrorname_np(errno));
    struct stat root = { 0 };
    if (stat("/", &root) == 0)
        say(" root"), say_stat(&root);
    mode_t mask = umask(0);
    umask(mask);
    say("\n  umask %o\n", mask);
    say_identity();
    forget_inodes();
}
