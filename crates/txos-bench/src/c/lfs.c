/* The LFS benchmark: small files and a large one. Prints the nanoseconds of each phase, `NAME NS`.
 *
 *     lfs DIR small|spread|large plain|flushed|transaction|durable [PHASE]
 *
 * `small` has ten thousand files in one directory, `spread` in a hundred that the first phase makes,
 * `large` is one file. Each phase is one transaction, its begin and end timed with it; or else it is
 * followed by syncfs() if it is `flushed`. With PHASE only that one is run, in a directory that is
 * there. `count` and `size` in the environment make it smaller. */
#include "common.h"

enum { SMALL = 1024, CHUNK = 8192, DIRS = 100 };

static int files = 10000, chunks = 100 * 1024 * 1024 / CHUNK;
static int spread, flushed, flags;
static const char *dir, *only;
static int root; /* a descriptor of the directory, for syncfs() */
static char buffer[CHUNK], path[4096];
static int *order;

static void name(int i) {
    if (spread)
        snprintf(path, sizeof path, "%s/d%02d/f%05d", dir, i % DIRS, i);
    else
        snprintf(path, sizeof path, "%s/f%05d", dir, i);
}

static void directories(int (*change)(const char *)) {
    for (int d = 0; spread && d < DIRS; d++) {
        snprintf(path, sizeof path, "%s/d%02d", dir, d);
        MUST(change(path));
    }
}

static int make(const char *directory) {
    return mkdir(directory, 0755);
}

/* All of one chunk or file: what is shorter is a failure. */
static void all(ssize_t did, ssize_t wanted) {
    if (did != wanted)
        die("%zd bytes instead of %zd", did, wanted);
}

static void create(void) {
    directories(make);
    for (int i = 0; i < files; i++) {
        name(i);
        int fd = MUST(open(path, O_WRONLY | O_CREAT | O_EXCL, 0644));
        all(write(fd, buffer, SMALL), SMALL);
        MUST(close(fd));
    }
}

static void read_all(void) {
    for (int i = 0; i < files; i++) {
        name(i);
        int fd = MUST(open(path, O_RDONLY));
        all(read(fd, buffer, SMALL), SMALL);
        MUST(close(fd));
    }
}

static void delete(void) {
    for (int i = 0; i < files; i++) {
        name(i);
        MUST(unlink(path));
    }
    directories(rmdir);
}

static int large(int how) {
    snprintf(path, sizeof path, "%s/large", dir);
    return MUST(open(path, how, 0644));
}

static void write_seq(void) {
    int fd = large(O_WRONLY | O_CREAT | O_EXCL);
    for (int i = 0; i < chunks; i++)
        all(write(fd, buffer, CHUNK), CHUNK);
    MUST(close(fd));
}

static void read_seq(void) {
    int fd = large(O_RDONLY);
    for (int i = 0; i < chunks; i++)
        all(read(fd, buffer, CHUNK), CHUNK);
    MUST(close(fd));
}

static void write_random(void) {
    int fd = large(O_WRONLY);
    for (int i = 0; i < chunks; i++)
        all(pwrite(fd, buffer, CHUNK, (off_t)order[i] * CHUNK), CHUNK);
    MUST(close(fd));
}

static void read_random(void) {
    int fd = large(O_RDONLY);
    for (int i = 0; i < chunks; i++)
        all(pread(fd, buffer, CHUNK, (off_t)order[i] * CHUNK), CHUNK);
    MUST(close(fd));
}

static void phase(const char *what, void (*run)(void)) {
    if (only && strcmp(only, what))
        return;
    double start = now();
    if (flags >= 0 && sys_xbegin(flags) != 0)
        die("begin");
    run();
    if (flags >= 0 && sys_xend() != 0)
        die("end");
    if (flushed)
        MUST(syncfs(root));
    printf("%s %.0f\n", what, now() - start);
}

/* Every chunk once, in an order that repeats. */
static void shuffle(void) {
    uint64_t x = 88172645463325252u;
    order = calloc(chunks, sizeof *order);
    for (int i = 0; i < chunks; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        int j = x % (i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5)
        return 2;
    dir = argv[1];
    only = argv[4];
    spread = !strcmp(argv[2], "spread");
    flushed = !strcmp(argv[3], "flushed");
    flags = !strcmp(argv[3], "transaction") ? 0 : !strcmp(argv[3], "durable") ? TX_DURABLE : -1;
    if (getenv("count"))
        files = atoi(getenv("count"));
    if (getenv("size"))
        chunks = atoi(getenv("size")) / CHUNK;
    if (!only) {
        if (flags >= 0)
            use_once(dir, flags);
        MUST(mkdir(dir, 0755));
    }
    root = MUST(open(dir, O_RDONLY | O_DIRECTORY));
    memset(buffer, 'x', sizeof buffer);
    if (!only)
        MUST(syncfs(root));
    if (strcmp(argv[2], "large")) {
        phase("create", create);
        phase("read", read_all);
        phase("delete", delete);
    } else {
        shuffle();
        phase("write", write_seq);
        phase("read", read_seq);
        phase("write-random", write_random);
        phase("read-random", read_random);
        phase("reread", read_seq);
    }
    return 0;
}
