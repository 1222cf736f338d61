/* TX_CHECKPOINT: memory after an abort, one scenario for each argument. The code in the transactions
 * knows nothing of them. What the scenarios remember is in a page that is shared with nobody, but by
 * that flag: it is no part of what is put back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "txos.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            int error = errno;                                                                     \
            dprintf(2, "%s:%d: %s (errno %d; %s)\n", __func__, __LINE__, #what, error,             \
                    txos_strerror());                                                              \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* In debug builds of the library this call is a lost conflict. */
#define LOSE ioctl(-1, 0x7458054c)
#define PAGE 4096UL
/* A place that nothing else is near to, so that nothing else is in one mapping with what lies there. */
#define PLACE ((char *)0x100000000000)

/* What no checkpoint puts back. */
static struct {
    long count, seed;
    uint64_t hash;
    int error;
    char *memory;
    /* Of each mapping: its line, and the hash up to it. */
    char text[2][64 << 10];
    struct {
        const char *line;
        uint64_t hash;
    } parts[2][200];
} *outside;

static void prepare(void) {
    outside = mmap(NULL, sizeof *outside, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(outside != MAP_FAILED);
    /* What the C library keeps for the library in the program's heap is made by the first one. */
    CHECK(sys_xbegin(0) == 0 && sys_xend() == 0);
}

static uint64_t mix(uint64_t hash, const void *from, size_t size) {
    const unsigned char *at = from;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * 0x100000001b3;
    return hash;
}

/* Whether a mapping is the program's alone: its own, its heap, and what it has mapped by itself. The
 * library's is not, nor is a stack, nor the block of a thread. */
static int is_programs(const char *line, uint64_t from, uint64_t to) {
    static char *own;
    uint64_t block = (uint64_t)&errno;
    if (!own)
        own = program_invocation_short_name;
    if (strstr(line, "[heap]") || strstr(line, own))
        return 1;
    if (strstr(line, "/libc") && strstr(line, "rw-p"))
        return 1;
    if (from <= block && block < to)
        return 0;
    return outside->memory && from >> 32 == (uint64_t)PLACE >> 32;
}

/* Of all that is the program's: addresses, rights, and every byte that can be read. Before: 0. */
static __attribute__((noinline)) uint64_t hash_of_all(int after) {
    extern char **environ;
    char *text = outside->text[after], *top = (char *)environ, *here = __builtin_frame_address(0);
    size_t size = 0, part = 0;
    uint64_t last = 0;
    const char *alike = " none", *alike_path = "";
    int fd = open("/proc/self/maps", O_RDONLY);
    ssize_t n;
    while ((n = read(fd, text + size, sizeof outside->text[0] - 1 - size)) > 0)
        size += n;
    close(fd);
    text[size] = 0;
    /* The stack above the caller. */
    uint64_t hash = mix(0xcbf29ce484222325, here + 256, top - here - 256);
    outside->parts[after][part].line = "the stack";
    outside->parts[after][part++].hash = hash;
    for (char *line = text; *line && part < 200;) {
        char *end = strchr(line, '\n');
        *end = 0;
        uint64_t from = strtoull(line, NULL, 16), to = strtoull(strchr(line, '-') + 1, NULL, 16);
        if (is_programs(line, from, to)) {
            /* Neighbours that are alike may be one mapping or two. */
            const char *rights = strchr(line, ' '), *path = strrchr(line, ' ');
            if (from != last || memcmp(rights, alike, 5) != 0 || strcmp(path, alike_path) != 0) {
                hash = mix(mix(hash, &last, sizeof last), &from, sizeof from);
                hash = mix(mix(hash, rights, 5), path, strlen(path));
            }
            last = to;
            alike = rights;
            alike_path = path;
            if (strchr(line, ' ')[1] == 'r')
                hash = mix(hash, (void *)from, to - from);
            outside->parts[after][part].line = line;
            outside->parts[after][part++].hash = hash;
        }
        line = end + 1;
    }
    CHECK(part < 200);
    hash = mix(hash, &last, sizeof last);
    for (size_t i = 0; after && hash != outside->hash && i < part; i++)
        if (outside->parts[0][i].hash != outside->parts[1][i].hash) {
            dprintf(2, "first difference (or a border): was %s, is %s\n", outside->parts[0][i].line, outside->parts[1][i].line);
            break;
        }
    return hash;
}

/* Begins; after the abort everything is as it was. `inside` never gets to its end. */
#define ABORTED(inside)                                                                            \
    do {                                                                                           \
        hash_of_all(0); /* so that what it uses has been used */                                   \
        outside->hash = hash_of_all(0);                                                            \
        if (sys_xbegin(TX_CHECKPOINT) == 0) {                                                      \
            inside;                                                                                \
            sys_xabort(1);                                                                         \
            CHECK(!"it went on");                                                                  \
        }                                                                                          \
        outside->error = errno;                                                                    \
        CHECK(hash_of_all(1) == outside->hash);                                                    \
        CHECK(outside->error == ECANCELED && !txos_in_transaction());                              \
    } while (0)

static int global = 1;
static char zeroed[3 * PAGE];
static char *block;
static FILE *stream;

static __attribute__((noinline)) long deep(int levels) {
    volatile char room[2000];
    memset((char *)room, levels, sizeof room);
    return levels ? deep(levels - 1) + room[7] : room[9];
}

static void change_everything(void) {
    global = 2;
    memset(zeroed, 7, sizeof zeroed);
    strcpy(block, "something else");
    free(block);
    for (int i = 0; i < 1000; i++)
        block = realloc(i % 3 ? block : NULL, i * 37 % 5000 + 1);
    block = malloc(8 << 20);
    memset(block, 1, 8 << 20);
    fprintf(stream, "and more\n");
    fflush(stream);
    fprintf(stream, "and what is not flushed");
    setenv("A_NEW_ONE", "value", 1);
    CHECK(deep(300) != 77);
    CHECK(sbrk(1 << 20) != (void *)-1);
    char *new = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(new != MAP_FAILED);
    memset(new, 9, 1 << 20);
    srand(77);
    outside->count++;
}

static void everything(void) {
    stream = fopen("stream", "w");
    block = strdup("before");
    fprintf(stream, "before;");
    for (int i = 0; i < 20; i++) {
        ABORTED(change_everything());
        CHECK(strcmp(block, "before") == 0 && global == 1);
    }
    CHECK(outside->count == 20);
    fprintf(stream, "after");
    CHECK(fclose(stream) == 0);
    char text[100] = "";
    int fd = open("stream", O_RDONLY);
    CHECK(read(fd, text, sizeof text) == 12 && strcmp(text, "before;after") == 0);
    /* A commit keeps it. */
    stream = fopen("stream", "w");
    CHECK(sys_xbegin(TX_CHECKPOINT) == 0);
    change_everything();
    CHECK(sys_xend() == 0 && global == 2 && block[5] == 1 && getenv("A_NEW_ONE"));
    CHECK(fclose(stream) == 0);
}

/* With TX_RESTART it begins again with memory as it was; variables need no `volatile`. */
static void restart(void) {
    int local = 5;
    char *text = strdup("text");
    int attempt = sys_xbegin(TX_CHECKPOINT | TX_RESTART);
    CHECK(attempt == outside->count && local == 5 && strcmp(text, "text") == 0 && global == 1);
    global++;
    local += attempt + 1;
    free(text);
    text = NULL;
    if (outside->count++ < 5)
        LOSE;
    CHECK(sys_xend() == 0 && attempt == 5 && local == 11 && global == 2);
    struct txos_stats stats = {.size = sizeof stats};
    CHECK(txos_stats(&stats) == 0 && stats.restarted == 5 && stats.committed == 2);
    /* Asked for. */
    outside->count = 0;
    attempt = sys_xbegin(TX_CHECKPOINT | TX_RESTART);
    if (outside->count++ < 3)
        sys_xabort(0);
    CHECK(attempt == 3 && sys_xend() == 0);
    /* A conflict without it, in a call and through the C library: it is told where it began. */
    for (outside->count = 0; outside->count < 2; outside->count++) {
        if (sys_xbegin(TX_CHECKPOINT) == 0) {
            global = 9;
            if (outside->count)
                LOSE;
            else
                syscall(16, -1, 0x7458054c);
            CHECK(!"it went on");
        }
        CHECK(errno == ECANCELED && global == 2);
        struct txos_abort why = {.size = sizeof why};
        CHECK(txos_abort_reason(&why) == 0 && why.reason == TXOS_CONFLICT);
    }
}

static __attribute__((noinline)) int begins(int *seen) {
    int result = sys_xbegin(TX_CHECKPOINT | TX_RESTART);
    (*seen)++;
    return result;
}

/* The function that began may have returned: its frame is put back as well. */
static void frames(void) {
    int seen = 0;
    int attempt = begins(&seen);
    CHECK(seen == 1 && attempt == outside->count);
    deep(20);
    if (outside->count++ < 4)
        sys_xabort(0);
    CHECK(sys_xend() == 0 && attempt == 4);
}

/* Registers for floating point, the mask and handlers of signals, the stack for them. */
static void handler(int signal) {
    (void)signal;
}

static void state(void) {
    stack_t stack = {.ss_sp = malloc(64 << 10), .ss_size = 64 << 10}, other = stack, now;
    other.ss_sp = malloc(64 << 10);
    CHECK(sigaltstack(&stack, NULL) == 0);
    _mm_setcsr(0x5f80);
    sigset_t set, mask;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (sys_xbegin(TX_CHECKPOINT) == 0) {
        _mm_setcsr(0x3f80);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_SETMASK, &set, NULL);
        signal(SIGUSR1, handler);
        CHECK(sigaltstack(&other, NULL) == 0);
        sys_xabort(1);
    }
    CHECK(errno == ECANCELED && _mm_getcsr() == 0x5f80);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0);
    CHECK(sigismember(&mask, SIGUSR2) && !sigismember(&mask, SIGUSR1));
    CHECK(signal(SIGUSR1, SIG_DFL) == SIG_DFL);
    CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack.ss_sp);
}

/* Calls that write to memory: files, pipes, the kernel's own answers. */
static void calls(void) {
    static char buffer[5 * PAGE];
    static struct stat stat_buffer;
    struct timespec *time = calloc(1, sizeof *time);
    int ends[2];
    int fd = open("bytes", O_RDWR | O_CREAT, 0600);
    CHECK(pipe(ends) == 0);
    memset(buffer, 'x', sizeof buffer);
    CHECK(write(fd, buffer, sizeof buffer) == sizeof buffer);
    memset(buffer, 'o', sizeof buffer);
    ABORTED({
        CHECK(write(ends[1], "pipe", 4) == 4 && read(ends[0], buffer + 4 * PAGE, 4) == 4);
        CHECK(pread(fd, buffer, 4 * PAGE, 0) == 4 * PAGE && buffer[PAGE] == 'x');
        CHECK(fstat(fd, &stat_buffer) == 0 && stat_buffer.st_size > 0);
        CHECK(clock_gettime(CLOCK_REALTIME, time) == 0 && time->tv_sec);
        CHECK(getcwd(buffer + 3 * PAGE, PAGE) && lseek(fd, 0, SEEK_SET) == 0);
        CHECK(read(fd, buffer, 1) == 1);
    });
    CHECK(buffer[0] == 'o' && lseek(fd, 0, SEEK_CUR) == sizeof buffer);
}

static char *map(void *at, size_t pages, int flags) {
    char *new = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(new != MAP_FAILED);
    return new;
}

/* Mappings that are made, taken away, moved, emptied, replaced, protected. */
static void mappings(void) {
    int private = MAP_PRIVATE | MAP_ANONYMOUS, fixed = private | MAP_FIXED;
    outside->memory = map(PLACE, 64, private);
    char *a = outside->memory;
    CHECK(munmap(a + 40 * PAGE, 4 * PAGE) == 0);
    for (int i = 0; i < 40; i++)
        a[i * PAGE] = i;
    mprotect(a + 10 * PAGE, PAGE, PROT_READ);
    mprotect(a + 11 * PAGE, PAGE, PROT_NONE);
    ABORTED(CHECK(munmap(a, 30 * PAGE) == 0));
    ABORTED({
        CHECK(munmap(a, 64 * PAGE) == 0);
        /* What comes next does not get the place. */
        char *new = map(NULL, 64, private);
        CHECK(new != a);
        memset(new, 5, 64 * PAGE);
        for (int i = 0; i < 50; i++)
            memset(malloc(300000), 4, 300000);
        map(a + 2 * PAGE, 3, fixed)[5] = 5;
        CHECK(munmap(a + 3 * PAGE, PAGE) == 0);
    });
    ABORTED({
        CHECK(madvise(a, 20 * PAGE, MADV_DONTNEED) == 0);
        for (int i = 0; i < 10; i++)
            CHECK(a[i * PAGE] == 0);
        a[3 * PAGE] = 1;
    });
    ABORTED({
        CHECK(mprotect(a, 30 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
        memset(a, 3, 30 * PAGE);
        CHECK(mprotect(a + 5 * PAGE, 9 * PAGE, PROT_NONE) == 0);
    });
    ABORTED({
        CHECK(map(a + 5 * PAGE, 5, fixed)[6] == 0);
        a[6 * PAGE] = 99;
        map(a + 41 * PAGE, 2, fixed)[6] = 7;
    });
    char *b = map(a + 100 * PAGE, 30, fixed);
    memset(b, 8, 20 * PAGE);
    ABORTED({
        CHECK(mremap(b + 12 * PAGE, 18 * PAGE, 2 * PAGE, 0) == b + 12 * PAGE);
        map(b + 14 * PAGE, 1, fixed)[0] = 4;
        char *moved = mremap(b, 8 * PAGE, 600 * PAGE, MREMAP_MAYMOVE);
        CHECK(moved != MAP_FAILED && moved != b && moved[3 * PAGE] == 8);
        CHECK(mremap(b + 8 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, b + 13 * PAGE) ==
              b + 13 * PAGE);
    });
    ABORTED({
        char *top = sbrk(0);
        CHECK(brk(top + 300 * PAGE) == 0);
        memset(top, 6, 300 * PAGE);
        CHECK(brk(top - PAGE) == 0 && sbrk(0) == top - PAGE);
        CHECK(brk(top + PAGE) == 0 && top[-1] == 0);
    });
    /* A commit does what was asked for, also with what is only given back then. */
    CHECK(sys_xbegin(TX_CHECKPOINT) == 0);
    CHECK(munmap(a + 20 * PAGE, 4 * PAGE) == 0);
    map(a + 21 * PAGE, 1, fixed)[1] = 3;
    CHECK(sys_xend() == 0);
    CHECK(a[21 * PAGE + 1] == 3 && msync(a + 20 * PAGE, PAGE, MS_ASYNC) == -1 && errno == ENOMEM);
    CHECK(msync(a + 22 * PAGE, PAGE, MS_ASYNC) == -1 && msync(a, PAGE, MS_ASYNC) == 0);
}

/* Files and shared memory. What is shared stays as it is; where it is mapped is put back. */
static void files(void) {
    int fd = open("mapped", O_RDWR | O_CREAT, 0600), rw = PROT_READ | PROT_WRITE;
    CHECK(ftruncate(fd, 4 * PAGE) == 0 && pwrite(fd, "in the file", 11, PAGE) == 11);
    char *a = outside->memory = map(PLACE, 20, MAP_PRIVATE | MAP_ANONYMOUS);
    CHECK(mmap(a, 4 * PAGE, rw, MAP_PRIVATE | MAP_FIXED, fd, 0) == a);
    char *shared = a + 8 * PAGE;
    CHECK(mmap(shared, 4 * PAGE, rw, MAP_SHARED | MAP_FIXED, fd, 0) == shared);
    a[5] = 'p';
    ABORTED({
        CHECK(a[PAGE] == 'i' && a[5] == 'p');
        a[PAGE] = a[5] = a[3 * PAGE] = 'n';
    });
    ABORTED(CHECK(munmap(a, 3 * PAGE) == 0));
    ABORTED(CHECK(munmap(shared + PAGE, 2 * PAGE) == 0 && munmap(shared, PAGE) == 0));
    ABORTED(CHECK(mremap(shared, 2 * PAGE, 99 * PAGE, MREMAP_MAYMOVE) != shared));
    ABORTED(map(shared, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)[1] = 5);
    shared[PAGE] = 'I';
    char byte = 0;
    CHECK(pread(fd, &byte, 1, PAGE) == 1 && byte == 'I');
    /* The one of the C library, of the program's own. */
    int id = shmget(IPC_PRIVATE, 3 * PAGE, 0600);
    CHECK(id != -1);
    char *segment = shmat(id, NULL, 0);
    CHECK(segment != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    segment[7] = 's';
    if (sys_xbegin(TX_CHECKPOINT) == 0) {
        segment[8] = 't';
        CHECK(shmdt(segment) == 0);
        sys_xabort(1);
    }
    CHECK(segment[7] == 's' && segment[8] == 't' && shmdt(segment) == 0);
    outside->memory = NULL;
}

/* A process that is made meanwhile has pages in common. */
static void forks(void) {
    char *a = outside->memory = map(PLACE, 64, MAP_PRIVATE | MAP_ANONYMOUS);
    memset(a, 1, 64 * PAGE);
    int ends[2];
    CHECK(pipe(ends) == 0);
    ABORTED({
        memset(a, 2, 32 * PAGE);
        if (fork() == 0) {
            char byte;
            close(ends[1]);
            _exit(read(ends[0], &byte, 1) == 0);
        }
        global = 8;
    });
    CHECK(write(ends[1], "x", 1) == 1 && wait(NULL) > 0);
}

static void no_children(void) {
    CHECK(waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD);
}

/* Nobody is left behind, however it ends. */
static void nobody_is_left(void) {
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    CHECK(sys_xbegin(TX_CHECKPOINT) == 0);
    CHECK(wait(NULL) == -1 && errno == ECHILD);
    CHECK(sys_xend() == 0);
    no_children();
    ABORTED(global = 4);
    no_children();
    for (int how = 0; how < 4; how++) {
        int pid = fork();
        if (pid == 0) {
            CHECK(sys_xbegin(TX_CHECKPOINT) == 0);
            if (how == 0)
                raise(SIGKILL);
            if (how == 1)
                _exit(0);
            if (how == 2)
                execl("/bin/true", "true", NULL);
            pthread_exit(NULL);
        }
        /* It, and who kept its memory, if that outlives it for a moment. */
        while (waitpid(-1, NULL, __WALL) > 0)
            ;
        CHECK(errno == ECHILD);
    }
}

/* What can't be: an error, nothing begun, nothing changed. */
static void *waits(void *lock) {
    pthread_mutex_lock(lock);
    return NULL;
}

static void refused(int flags, int error, const char *why) {
    CHECK(sys_xbegin(flags) == -1 && errno == error && strstr(txos_strerror(), why));
    no_children();
}

static void refusals(void) {
    refused(TX_CHECKPOINT | TX_THREADS, EINVAL, "TX_THREADS");
    refused(TX_CHECKPOINT | TX_MANAGED, EINVAL, "TX_MANAGED");
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    pthread_mutex_lock(&lock);
    CHECK(pthread_create(&thread, NULL, waits, &lock) == 0);
    refused(TX_CHECKPOINT, EBUSY, "other threads");
    pthread_mutex_unlock(&lock);
    CHECK(pthread_join(thread, NULL) == 0);
    /* The kernel counts it a little longer than the C library does. */
    struct stat tasks;
    do
        CHECK(stat("/proc/self/task", &tasks) == 0 && sched_yield() == 0);
    while (tasks.st_nlink != 3);
    CHECK(sys_xbegin(0) == 0);
    CHECK(sys_xbegin(TX_CHECKPOINT) == -1 && errno == EINVAL && txos_in_transaction());
    CHECK(sys_xend() == 0);
    if (sys_xbegin(TX_CHECKPOINT) == 0) {
        CHECK(sys_xpause() == -1 && errno == EPERM && strstr(txos_strerror(), "TX_CHECKPOINT"));
        CHECK(txos_share() == -1 && errno == EPERM && txos_in_transaction());
        CHECK(pthread_create(&thread, NULL, waits, &lock) == EAGAIN);
        CHECK(sys_xbegin(TX_CHECKPOINT) == 0 && sys_xend() == 0);
        sys_xabort(1);
    }
    CHECK(errno == ECANCELED);
    /* No process can be made. */
    struct rlimit none = {0, 0};
    CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
    if (geteuid() == 0)
        CHECK(setresuid(54321, 54321, 54321) == 0);
    refused(TX_CHECKPOINT, EAGAIN, "no process can be made");
}

/* Who keeps memory is killed: the process can't go on, and says so. */
static void lost(void) {
    char name[64] = "", path[64];
    CHECK(sys_xbegin(TX_CHECKPOINT) == 0);
    int fd = open("/proc/thread-self/children", O_RDONLY);
    CHECK(fd >= 0 && read(fd, name, sizeof name - 1) > 0);
    snprintf(path, sizeof path, "/proc/%d/comm", atoi(name));
    fd = open(path, O_RDONLY);
    /* It gives itself its name, perhaps when this has begun already. */
    CHECK(fd >= 0);
    while (pread(fd, path, 12, 0) != 12 || strncmp(path, "txos-memory\n", 12) != 0)
        CHECK(sched_yield() == 0);
    siginfo_t end;
    CHECK(kill(atoi(name), SIGKILL) == 0);
    CHECK(waitid(P_PID, atoi(name), &end, WEXITED | WNOWAIT | __WALL) == 0);
    sys_xabort(1);
    CHECK(!"it went on");
}

/* The library is part of the program. */
static void linked_in(void) {
    CHECK(sys_xbegin(TX_CHECKPOINT) == -1 && errno == ENOTSUP);
    CHECK(strstr(txos_strerror(), "libtxos.so") && !txos_in_transaction());
    no_children();
}

static unsigned next(unsigned below) {
    outside->seed = outside->seed * 6364136223846793005L + 1442695040888963407L;
    return (unsigned long)outside->seed >> 33 & 0x7fffffff ? ((unsigned long)outside->seed >> 33) % below : 0;
}

static char *blocks[64];
static char *area, *top;
static long top_size;

static void random_step(void) {
    unsigned i = next(64), at = next(200), pages = next(20) + 1;
    char *place = area + at * PAGE;
    switch (next(12)) {
    case 0:
        blocks[i] = realloc(blocks[i], next(next(8) ? 2000 : 400000) + 1);
        blocks[i][0] = i;
        break;
    case 1:
        free(blocks[i]);
        blocks[i] = NULL;
        break;
    case 2:
        munmap(place, pages * PAGE);
        break;
    case 3:
        map(place, pages, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)[i] = i;
        break;
    case 4:
        mprotect(place, pages * PAGE, (int[]){PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE}[i % 3]);
        break;
    case 5:
        madvise(place, pages * PAGE, MADV_DONTNEED);
        break;
    case 6:
        mremap(place, pages * PAGE, (next(30) + 1) * PAGE, i % 2 ? MREMAP_MAYMOVE : 0);
        break;
    case 7:
        mremap(place, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
               area + next(200) * PAGE);
        break;
    case 8:
        /* The C library's heap may have grown behind it: then it is not at the end any more. */
        if (i % 2 && sbrk(top_size = next(50000)) != (void *)-1)
            top = sbrk(0);
        else if (top == sbrk(0) && top_size > 0) {
            sbrk(-top_size);
            top_size = 0;
        }
        break;
    default:
        /* The kernel writes, where something can be written to. */
        for (unsigned page = 0; page < pages; page++) {
            int fd = open("/dev/zero", O_RDONLY);
            read(fd, place + page * PAGE + i, 1 + next(300));
            close(fd);
        }
        zeroed[next(sizeof zeroed)]++;
    }
}

/* Random calls for memory, some committed, some aborted. */
static void at_random(const char *seed) {
    outside->seed = seed ? atol(seed) : 1;
    dprintf(2, "seed %ld\n", outside->seed);
    area = outside->memory = map(PLACE, 256, MAP_PRIVATE | MAP_ANONYMOUS);
    for (int round = 0; round < 150; round++) {
        if (next(4) == 0) {
            for (int i = next(5); i > 0; i--)
                random_step();
            CHECK(sys_xbegin(TX_CHECKPOINT) == 0);
            for (int i = next(20); i > 0; i--)
                random_step();
            CHECK(sys_xend() == 0);
        }
        ABORTED(for (int i = next(30); i > 0; i--) random_step());
    }
}

static void random_calls(void) {
    at_random(NULL);
}

/* Pages that lie apart, more of them than there can be mappings. */
static void scattered(void) {
    size_t pages = 140000;
    char *a = map(NULL, pages, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    madvise(a, pages * PAGE, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < pages; i += 4)
        a[i * PAGE] = 1;
    if (sys_xbegin(TX_CHECKPOINT) == 0) {
        for (size_t i = 0; i < pages; i += 2)
            a[i * PAGE] = 2;
        sys_xabort(1);
    }
    for (size_t i = 0; i < pages; i++)
        CHECK(a[i * PAGE] == (i % 4 ? 0 : 1));
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
#define SCENARIO(name) {#name, name}
    SCENARIO(everything),
    SCENARIO(restart),
    SCENARIO(frames),
    SCENARIO(state),
    SCENARIO(calls),
    SCENARIO(mappings),
    SCENARIO(files),
    SCENARIO(forks),
    SCENARIO(nobody_is_left),
    SCENARIO(refusals),
    SCENARIO(lost),
    SCENARIO(linked_in),
    SCENARIO(random_calls),
    SCENARIO(scattered),
};

int main(int argc, char **argv) {
    prepare();
    if (argc == 3 && strcmp(argv[1], "random") == 0) {
        at_random(argv[2]);
        return 0;
    }
    for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    return 99;
}
