/* Random arguments. Names are few, so that calls meet. */
#include "differ.h"

char base[2048];
char room[ROOM] __attribute__((aligned(4096)));
int slot[SLOTS] = { -1, -1, -1, -1, -1, -1, -1, -1 };

static mode_t slot_type[SLOTS];
static uint64_t state;
static bool relative; /* the next path is taken from a directory that is not the base */

static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Each call draws from a stream of its own: leaving one out changes no other. */
void pick_from(uint64_t a, uint64_t b)
{
    state = mixed(a * 0x9e3779b97f4a7c15 + mixed(b + 1));
    relative = false;
}

uint64_t bits(void)
{
    state += 0x9e3779b97f4a7c15;
    return mixed(state);
}

unsigned below(unsigned n)
{
    return (unsigned)(bits() % (n ? n : 1));
}

bool chance(unsigned percent)
{
    return below(100) < percent;
}

/* --- Paths ------------------------------------------------------------------------------------ */

const char *name(void)
{
    /* The last ones are not there at the beginning. */
    static const char *const names[] = { "a", "b", "c", "d", "e", "f", "g" };
    return PICK(names);
}

/* What there was at the beginning, by its path from the base. */
static char known[256][64];
static unsigned known_count;

static void look_below(const char *path, unsigned depth)
{
    for (const char *letter = "abcde"; *letter; letter++) {
        char inner[64];
        struct stat stat;
        snprintf(inner, sizeof inner, "%s%s%c", path, *path ? "/" : "", *letter);
        if (lstat(inner, &stat) != 0 || known_count == LENGTH(known))
            continue;
        strcpy(known[known_count++], inner);
        if (S_ISDIR(stat.st_mode) && depth < 4)
            look_below(inner, depth + 1);
    }
}

void look_around(void)
{
    look_below("", 0);
}

static char *paths(void)
{
    static char buffers[6][8192];
    static unsigned next;
    return buffers[next++ % LENGTH(buffers)];
}

static const char *odd_path(char *text)
{
    int fd = slot[below(SLOTS)];
    switch (below(12)) {
    case 0:
        return class_is_on("fault") ? BAD : "";
    case 1:
        return "";
    case 2: /* one name too long, or just not */
        memset(text, 'n', 256);
        text[255 + below(2)] = 0;
        return text;
    case 3: { /* a path too long, or just not */
        size_t n = 4093 + below(4);
        for (size_t i = 0; i < n; i++)
            text[i] = i % 2 ? '/' : '.';
        text[n] = 0;
        return text;
    }
    case 4:
        snprintf(text, 64, "/proc/self/fd/%d", fd);
        return class_is_on("proc") ? text : "/";
    case 5:
        snprintf(text, 64, "/proc/self/fd/%d/%s", fd, name());
        return class_is_on("proc") ? text : "//";
    case 6:
        snprintf(text, 64, "/proc/self/cwd/%s", name());
        return class_is_on("proc") ? text : ".";
    case 7:
        return "/dev/null";
    case 8:
        return "/";
    case 9:
        return ".";
    case 10:
        return "..";
    default:
        return "./";
    }
}

const char *path(void)
{
    char *text = paths();
    unsigned way = below(100);
    if (way < 5)
        return odd_path(text);
    if (!relative && known_count > 0 && way < 45)
        return known[below(known_count)];
    if (!relative && known_count > 0 && way < 70) {
        snprintf(text, 4096, "%s/%s", known[below(known_count)], name());
        return text;
    }
    unsigned depth = relative || chance(55) ? 1 : chance(70) ? 2 : 3;
    text[0] = 0;
    if (chance(10))
        snprintf(text, 4096, "%s/", base);
    bool up = false;
    for (unsigned i = 0; i < depth; i++) {
        /* Up once at most: the tree has a margin around it, but not without end. */
        const char *part = !up && i > 0 && chance(8) ? ".." : chance(2) ? "." : name();
        up = up || strcmp(part, "..") == 0;
        strcat(text, part);
        if (i + 1 < depth)
            strcat(text, chance(3) ? "//" : "/");
    }
    if (chance(5))
        strcat(text, chance(20) ? "/." : "/");
    return text;
}

/* --- Descriptors ------------------------------------------------------------------------------ */

/* One that is open, of a type if there is one; sometimes any, or none. */
static int one_of(mode_t type)
{
    if (chance(3))
        return chance(50) ? -1 : 999;
    if (chance(15))
        type = 0;
    int fd = -1;
    unsigned from = below(SLOTS);
    for (unsigned i = 0; i < 2 * SLOTS; i++) {
        unsigned at = (from + i) % SLOTS;
        bool fits = i >= SLOTS || type == 0 || slot_type[at] == type;
        if (slot[at] >= 0 && fits)
            return slot[at];
    }
    return fd;
}

int descriptor(void)
{
    return one_of(0);
}

int file(void)
{
    return one_of(S_IFREG);
}

int listed(void)
{
    return one_of(S_IFDIR);
}

int dir(void)
{
    int fd = chance(65) ? AT_FDCWD : one_of(S_IFDIR);
    relative = fd != AT_FDCWD;
    return fd;
}

void forget(int fd)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (slot[i] == fd)
            slot[i] = -1;
}

void keep(int fd)
{
    unsigned i = below(SLOTS);
    if (fd < 0)
        return;
    int old = slot[i];
    if (old >= 0 && old != fd) {
        forget(old);
        int r = close(old);
        say(" closes %d=%d", old, r);
    }
    slot[i] = fd;
    slot_type[i] = type_of(fd);
}

mode_t type_of(int fd)
{
    struct stat stat;
    return fstat(fd, &stat) == 0 ? stat.st_mode & S_IFMT : 0;
}

bool may_block(int fd)
{
    mode_t type = type_of(fd);
    if (type != S_IFIFO)
        return false;
    return !class_is_on("fifo") || !(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

/* --- The rest --------------------------------------------------------------------------------- */

int at_flags(int some)
{
    int flags = 0;
    if (chance(40))
        flags |= some & AT_SYMLINK_NOFOLLOW;
    if (chance(10))
        flags |= some & AT_EMPTY_PATH;
    if (chance(20))
        flags |= some & AT_SYMLINK_FOLLOW;
    if (chance(2))
        flags |= 0x80000;
    return flags;
}

unsigned some_size(void)
{
    static const unsigned sizes[] = { 0, 1, 5, 100, 511, 4095, 4096, 4097, 8192, 10000, 70000 };
    return chance(50) ? below(300) : PICK(sizes);
}

int64_t some_offset(void)
{
    static const int64_t offsets[] = { 0, 1, 4095, 4096, 4097, 8192, 12288, 65536, 1000000 };
    if (chance(2))
        return -1;
    return chance(50) ? (int64_t)below(5000) : PICK(offsets);
}

mode_t some_mode(void)
{
    static const mode_t modes[] = { 0644, 0600, 0755, 0700, 0777, 0666, 0000, 0444, 0555,
                                    04755, 02755, 01777, 02770, 06711, 0222, 0311 };
    mode_t mode = PICK(modes);
    /* What keeps its own owner out can't be looked at by a transaction of his either. */
    return class_is_on("locked") ? mode : mode | 0700;
}

const void *data(size_t size)
{
    static char bytes[ROOM];
    int n = snprintf(bytes, 32, "<%d>", call);
    for (size_t i = (size_t)n; i < size; i++)
        bytes[i] = bytes[i - (size_t)n];
    /* Some of it zeros, as holes read. */
    if (size > 64 && chance(10))
        memset(bytes, 0, size);
    return bytes;
}
