/* System calls one by one, each timed by itself.
 *
 *     calls DIR none|background|inside|each|shared
 *
 * The second word says where transactions are: nowhere, in another thread, around all the calls of a
 * batch, around each call (begin and end timed with it), or around all the calls of a batch with another
 * process in the transaction. Reads lines `CALL same|other COUNT` and
 * answers each with the nanoseconds of one call of such a batch; what prepares a call and what
 * removes its traces is not timed. `same` makes the call on one object again and again, `other` each
 * time on another one, of which there are as many as calls. */
#include "common.h"

#include <pthread.h>
#include <sys/wait.h>

enum { MOST = 900, PAGE = 4096 };

static enum { NONE, BACKGROUND, INSIDE, EACH, SHARED } mode;
static const char *dir;
static char page[PAGE];
static struct stat st;
/* Of the object that the next call is about. */
static char path[4096], second[4096];
/* Where a batch makes and removes names. */
static char place[2048];
static int fds[MOST];

static void name(char *to, const char *in, const char *stem, int i) {
    snprintf(to, sizeof path, "%s/%s%04d", in, stem, i);
}

static void create(const char *file) {
    int fd = MUST(open(file, O_WRONLY | O_CREAT | O_EXCL, 0644));
    MUST(close(fd));
}

/* One kind of call. `before` and `after` belong to a single call when the object is always the same,
 * and else to all of them, made before and after the batch. They get the number of the object. */
struct kind {
    const char *name;
    void (*before)(int i), (*call)(int i), (*after)(int i);
};

static void nothing(int i) {
    (void)i;
}
static void do_access(int i) {
    (void)i;
    MUST(access(path, R_OK));
}
static void do_stat(int i) {
    (void)i;
    MUST(stat(path, &st));
}
static void do_open(int i) {
    (void)i;
    MUST(close(MUST(open(path, O_RDONLY))));
}
static void rewind_fd(int i) {
    MUST(lseek(fds[i], 0, SEEK_SET));
}
static void do_read(int i) {
    if (read(fds[i], page, PAGE) != PAGE)
        die("read");
}
static void do_write(int i) {
    if (write(fds[i], page, PAGE) != PAGE)
        die("write");
}
static void make_victim(int i) {
    name(second, place, "victim", i);
    create(second);
}
static void do_unlink(int i) {
    (void)i;
    MUST(unlink(second));
}
static void name_victim(int i) {
    name(second, place, "victim", i);
}
static void name_link(int i) {
    name(second, place, "link", i);
}
static void do_link(int i) {
    (void)i;
    MUST(link(path, second));
}
static void remove_link(int i) {
    name_link(i);
    MUST(unlink(second));
}
static void name_dir(int i) {
    name(second, place, "dir", i);
}
static void do_mkdir(int i) {
    (void)i;
    MUST(mkdir(second, 0755));
}
static void remove_dir(int i) {
    name_dir(i);
    MUST(rmdir(second));
}

static const struct {
    struct kind kind;
    /* Says on which object the call is, without a system call. */
    void (*point)(int i);
} kinds[] = {
    {{"access", nothing, do_access, nothing}, nothing},
    {{"stat", nothing, do_stat, nothing}, nothing},
    {{"open", nothing, do_open, nothing}, nothing},
    {{"unlink", make_victim, do_unlink, nothing}, name_victim},
    {{"link", nothing, do_link, remove_link}, name_link},
    {{"mkdir", nothing, do_mkdir, remove_dir}, name_dir},
    {{"read", rewind_fd, do_read, nothing}, nothing},
    {{"write", rewind_fd, do_write, nothing}, nothing},
};

static void begin(void) {
    if (sys_xbegin(TX_RESTART) != 0)
        die("begin");
}

/* The transaction is no longer this process's alone from the fork on, and the child is gone again. */
static void begin_shared(void) {
    int status;
    if (sys_xbegin(TX_RESTART | TX_PROCESSES) != 0)
        die("begin");
    pid_t child = MUST(fork());
    if (child == 0)
        _exit(0);
    MUST(waitpid(child, &status, 0));
}

static void end(void) {
    if (sys_xend() != 0)
        die("end");
}

/* Ticks of one look at the clock. */
static uint64_t overhead(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 10000; i++) {
        uint64_t start = ticks(), took = ticks() - start;
        least = took < least ? took : least;
    }
    return least;
}

static uint64_t batch(int k, int other, int count) {
    const struct kind *kind = &kinds[k].kind;
    static uint64_t look;
    uint64_t sum = 0;
    static int number;
    if (!look)
        look = overhead();
    snprintf(place, sizeof place, "%s/batch%d-%d", dir, number++, getpid());
    MUST(mkdir(place, 0755));
    if (other)
        for (int i = 0; i < count; i++)
            kind->before(i);
    if (mode == INSIDE)
        begin();
    if (mode == SHARED)
        begin_shared();
    for (int i = 0; i < count; i++) {
        int object = other ? i : 0;
        name(path, dir, "file", object);
        kinds[k].point(object);
        if (!other)
            kind->before(0);
        uint64_t start = ticks();
        if (mode == EACH)
            begin();
        kind->call(object);
        if (mode == EACH)
            end();
        sum += ticks() - start - look;
        if (!other)
            kind->after(0);
    }
    if (mode == INSIDE || mode == SHARED)
        end();
    if (other)
        for (int i = 0; i < count; i++)
            kind->after(i);
    MUST(rmdir(place));
    return sum;
}

/* A transaction that has looked at something and changed something, and goes on for as long as the
 * program does. */
static pthread_barrier_t begun;
static void *background(void *unused) {
    char other[4096];
    pin(1);
    begin();
    snprintf(other, sizeof other, "%s/background", dir);
    create(other);
    snprintf(other, sizeof other, "%s/untouched", dir);
    MUST(stat(other, &st));
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&begun); /* where nobody else comes */
    return unused;
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"none", "background", "inside", "each", "shared"};
    char word[16], which[16];
    int count;
    if (argc != 3)
        return 2;
    dir = argv[1];
    while (strcmp(modes[mode], argv[2]))
        if (++mode > SHARED)
            return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    make_apart(dir);
    for (int i = 0; i < MOST; i++) {
        name(path, dir, "file", i);
        create(path);
        fds[i] = MUST(open(path, O_RDWR));
        do_write(i);
    }
    snprintf(path, sizeof path, "%s/untouched", dir);
    create(path);
    MUST(fsync(fds[0]));
    if (mode == BACKGROUND) {
        pthread_t thread;
        pthread_barrier_init(&begun, NULL, 2);
        if (pthread_create(&thread, NULL, background, NULL))
            die("a thread");
        pthread_barrier_wait(&begun);
    }
    pin(0);
    uint64_t start = ticks();
    double clock = now();
    while (now() < clock + 5e7)
        continue;
    double per_tick = (now() - clock) / (ticks() - start);
    puts("ready");
    while (scanf("%15s %15s %d", word, which, &count) == 3) {
        int k = 0;
        while (strcmp(kinds[k].kind.name, word))
            if (++k == sizeof kinds / sizeof *kinds)
                return 2;
        if (count > MOST)
            return 2;
        printf("%.2f\n", batch(k, !strcmp(which, "other"), count) * per_tick / count);
    }
    return 0;
}
