/* Memory that is a file. */
#include "differ.h"

static sigjmp_buf past_the_end;

static void on_sigbus(int signal)
{
    (void)signal;
    siglongjmp(past_the_end, 1);
}

/* Reads or writes one byte; the end of a file may be before it. */
static int touch(char *at, int value)
{
    static struct sigaction ours = { .sa_handler = on_sigbus, .sa_flags = SA_NODEFER };
    static bool set;
    if (!set) {
        sigaction(SIGBUS, &ours, NULL);
        set = true;
    }
    if (sigsetjmp(past_the_end, 0))
        return -1;
    volatile char *byte = at;
    if (value >= 0)
        *byte = (char)value;
    return (unsigned char)*byte;
}

static void *map(int fd, size_t size, int protection, int flags, int64_t at)
{
    void *p;
    errno = 0;
    if (raw)
        p = (void *)RAW(SYS_mmap, NULL, size, protection, flags, fd, at);
    else
        p = mmap(NULL, size, protection, flags, fd, at);
    R = p == MAP_FAILED ? -1 : 0;
    E = R == -1 ? errno : 0;
    return p;
}

/* Maps, looks, writes, and unmaps. */
static void do_map(void)
{
    static const int protections[] = { PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE };
    int fd = file(), protection = PICK(protections);
    int flags = chance(60) ? MAP_SHARED : MAP_PRIVATE;
    int64_t at = 4096 * (int64_t)below(3) + (chance(2) ? 1 : 0);
    size_t size = 1 + below(3 * 4096);
    say("mmap(%d, %lld, %zu, %d, %s)", fd, (long long)at, size, protection,
        flags == MAP_SHARED ? "shared" : "private");
    if (type_of(fd) == S_IFCHR) {
        say(" device");
        return;
    }
    char *p = map(fd, size, protection, flags, at);
    answer();
    if (R != 0)
        return;
    struct stat stat;
    fstat(fd, &stat);
    int64_t there = stat.st_size - at;
    size_t readable = there <= 0 ? 0 : (size_t)there < size ? (size_t)there : size;
    say_bytes(p, readable);
    if ((protection & PROT_WRITE) && readable > 0) {
        const char *from = data(300);
        for (unsigned n = below(4); n > 0; n--) {
            size_t to = below((unsigned)readable), length = below(200);
            if (length > readable - to)
                length = readable - to;
            memcpy(p + to, from, length);
        }
        say_bytes(p, readable);
        if (chance(50)) {
            DO(msync(p, size, MS_SYNC), SYS_msync, p, size, MS_SYNC);
            say(" msync");
            answer();
        }
        /* What read(2) makes of it. */
        ssize_t n = pread(fd, room, readable, at);
        say(" pread %zd", n);
        if (n > 0)
            say_bytes(room, (size_t)n);
    }
    DO(munmap(p, size), SYS_munmap, p, size);
    answer();
}

/* --- Mappings that stay ----------------------------------------------------------------------- */

static struct {
    char *at;
    size_t size;
    bool writable;
} maps[3];

static void do_map_keep(void)
{
    unsigned i = below(LENGTH(maps));
    int fd = file();
    bool writable = chance(60);
    size_t size = 1 + below(3 * 4096);
    int flags = chance(75) ? MAP_SHARED : MAP_PRIVATE;
    /* What is mapped before a transaction, and shared, it does not change. */
    if (!is_within(call))
        flags = MAP_PRIVATE;
    say("map %u: mmap(%d, %zu, %s%s)", i, fd, size, flags == MAP_SHARED ? "shared" : "private",
        writable ? ", writable" : "");
    if (type_of(fd) == S_IFCHR) {
        say(" device");
        return;
    }
    if (maps[i].at)
        munmap(maps[i].at, maps[i].size);
    maps[i].at = NULL;
    char *p = map(fd, size, PROT_READ | (writable ? PROT_WRITE : 0), flags, 0);
    answer();
    if (R == 0) {
        maps[i].at = p;
        maps[i].size = size;
        maps[i].writable = writable;
    }
}

static void do_map_use(void)
{
    unsigned i = below(LENGTH(maps)), writes = below(3);
    say("map %u:", i);
    if (!maps[i].at) {
        say(" none");
        return;
    }
    for (unsigned n = 0; n < writes; n++) {
        size_t at = below((unsigned)maps[i].size);
        if (maps[i].writable)
            say(" [%zu]=%d", at, touch(maps[i].at + at, 'A' + (int)below(26)));
    }
    for (unsigned n = 0; n < 3; n++) {
        size_t at = below((unsigned)maps[i].size);
        say(" %zu:%d", at, touch(maps[i].at + at, -1));
    }
    if (chance(30)) {
        DO(msync(maps[i].at, maps[i].size, MS_SYNC), SYS_msync, maps[i].at, maps[i].size, MS_SYNC);
        say(" msync");
        answer();
    }
}

const struct kind mapping[] = {
    { "mmap", "mmap", 15, do_map },
    { "mmap to keep", "mapkeep", 6, do_map_keep },
    { "use of a map", "mapkeep", 10, do_map_use },
    { 0 },
};
