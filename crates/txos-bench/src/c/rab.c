/* The Reimplemented Andrew Benchmark: one phase of it at a time.
 *
 *     rab DIR files|mkdir|cp|du|grep plain|transaction|durable
 *
 * `files` makes 500 files of 1,000 printable bytes, which belongs to no phase; `mkdir` makes 20,000
 * directories; `cp` copies all files into 500 of these; `du` adds up what everything takes; `grep`
 * looks into every copy for a word that is in none, and adds up all their bytes. A phase is one
 * transaction. `files`, `dirs` and `filled` in the environment make it smaller. */
#include "common.h"

#include <dirent.h>

enum { SIZE = 1000 };

static int files = 500, dirs = 20000, filled = 500;
static const char *dir;
static char path[4096], content[SIZE + 1];

static void source(int i) {
    snprintf(path, sizeof path, "%s/files/f%03d", dir, i);
}

static void directory(int i) {
    snprintf(path, sizeof path, "%s/tree/d%05d", dir, i);
}

static void copy_of(int d, int i) {
    snprintf(path, sizeof path, "%s/tree/d%05d/f%03d", dir, d, i);
}

static void put(void) {
    int fd = MUST(open(path, O_WRONLY | O_CREAT | O_EXCL, 0644));
    if (write(fd, content, SIZE) != SIZE)
        die("write");
    MUST(close(fd));
}

static void get(void) {
    int fd = MUST(open(path, O_RDONLY));
    if (read(fd, content, SIZE) != SIZE)
        die("read");
    MUST(close(fd));
}

static void make_files(void) {
    uint64_t x = 88172645463325252u;
    snprintf(path, sizeof path, "%s/files", dir);
    MUST(mkdir(path, 0755));
    for (int i = 0; i < files; i++) {
        for (int b = 0; b < SIZE; b++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            content[b] = ' ' + x % 90; /* never '~' */
        }
        source(i);
        put();
    }
}

static void make_dirs(void) {
    snprintf(path, sizeof path, "%s/tree", dir);
    MUST(mkdir(path, 0755));
    for (int d = 0; d < dirs; d++) {
        directory(d);
        MUST(mkdir(path, 0755));
    }
}

static void copy(void) {
    for (int d = 0; d < filled; d++)
        for (int i = 0; i < files; i++) {
            source(i);
            get();
            copy_of(d, i);
            put();
        }
}

/* The blocks of everything below an open directory. */
static uint64_t blocks(int at) {
    uint64_t sum = 0;
    struct dirent *entry;
    struct stat st;
    DIR *stream = fdopendir(at);
    if (!stream)
        die("fdopendir");
    while ((entry = readdir(stream))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        MUST(fstatat(at, entry->d_name, &st, AT_SYMLINK_NOFOLLOW));
        sum += st.st_blocks;
        if (S_ISDIR(st.st_mode))
            sum += blocks(MUST(openat(at, entry->d_name, O_RDONLY | O_DIRECTORY)));
    }
    closedir(stream);
    return sum;
}

static void du(void) {
    if (!blocks(MUST(open(dir, O_RDONLY | O_DIRECTORY))))
        die("du");
}

static void grep(void) {
    uint64_t sum = 0;
    for (int d = 0; d < filled; d++)
        for (int i = 0; i < files; i++) {
            copy_of(d, i);
            get();
            if (strstr(content, "~~~"))
                die("grep");
            for (int b = 0; b < SIZE; b++)
                sum += (unsigned char)content[b];
        }
    if (!sum)
        die("sum");
}

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } phases[] = {{"files", make_files}, {"mkdir", make_dirs}, {"cp", copy}, {"du", du}, {"grep", grep}};
    size_t n = 0;
    if (argc != 4)
        return 2;
    dir = argv[1];
    while (strcmp(phases[n].name, argv[2]))
        if (++n == sizeof phases / sizeof *phases)
            return 2;
    int flags = !strcmp(argv[3], "transaction") ? 0 : !strcmp(argv[3], "durable") ? TX_DURABLE : -1;
    files = number("files", files);
    dirs = number("dirs", dirs);
    filled = number("filled", filled);
    if (flags >= 0 && sys_xbegin(flags) != 0)
        die("begin");
    phases[n].run();
    if (flags >= 0 && sys_xend() != 0)
        die("end");
    return 0;
}
