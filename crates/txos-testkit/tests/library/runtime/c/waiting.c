/* waiting SCENE DIR
 *
 * Transactions beside other synchronisation, as in table 1 of "Improving server applications with system
 * transactions" (EuroSys 2012):
 *
 *   goodfutex     a transaction waits at a futex; who is to wake it wants the same file first
 *   woken         the same; it was being waited for before it began to wait
 *   badfutex      one lock that is taken inside of a transaction and around one
 *   restarted     the same, and what waits begins again by itself
 *   own           the same with a mutex that only threads share: it waits for itself, and says so
 *   orderedfutex  the transaction whose turn comes later has the lock that the first one waits for
 *   orderedmutex  the same with a mutex, whose owner can be found
 *   mutex         mutexes inside and outside
 *   ordered-p/c   ordered transactions and semaphores
 *   pipe-p/c      ordered transactions and a pipe
 *   lockfile      one waits for a file that another transaction creates, and sleeps in between
 *   outsider      the same; no transaction creates it
 *   priorities    the same without sleeping: it defers by its priority
 *   threads       the same for threads of one process, which have priorities of their own
 *   pipe          one waits at a pipe for another one, which wants the same file first
 *   child         one waits for a child that wants the same file
 *
 * Exits with 0 if all was well, else says what was not. Nothing waits for a length of time: who is to wait is
 * looked at in /proc.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "raw.h"

/* What a scene may take on a busy machine. A transaction that waits for another one gives up after 60 s. */
enum { SECONDS_MAX = 40 };

static void fail(const char *format, ...)
{
    int error = errno;
    char why[1024];
    snprintf(why, sizeof why, "%s", txos_strerror());
    if (txos_in_transaction())
        sys_xabort(1);
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, " (%s; %s)\n", strerrorname_np(error), why);
    _exit(1);
}

#define CHECK(condition, ...) \
    do {                      \
        if (!(condition))     \
            fail(__VA_ARGS__); \
    } while (0)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Shared by processes. */
static struct shared {
    atomic_int futex, lock, stage, turns;
    volatile int off;
    pthread_mutex_t mutex, other;
} *shared;

static pthread_mutex_t private = PTHREAD_MUTEX_INITIALIZER;

/* --- Files ------------------------------------------------------------------------------------ */

static long number_in(const char *name)
{
    char text[32] = "";
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n < 0 ? -1 : strtol(text, NULL, 10);
}

/* False in a transaction that has lost. */
static bool add_one(const char *name)
{
    char text[32];
    long number = number_in(name);
    int n = snprintf(text, sizeof text, "%ld\n", number + 1);
    int fd = number < 0 ? -1 : open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    bool done = fd >= 0 && write(fd, text, (size_t)n) == n;
    int error = errno;
    if (fd >= 0)
        close(fd);
    CHECK(done || error == ECANCELED, "adding one to %s", name);
    return done;
}

static void append(const char *name, long number)
{
    char line[32];
    int n = snprintf(line, sizeof line, "%ld\n", number);
    int fd = open(name, O_WRONLY | O_APPEND | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, line, (size_t)n) == n, "writing %s", name);
    close(fd);
}

static void expect_lines(const char *name, long from, long to)
{
    FILE *file = fopen(name, "r");
    CHECK(file, "opening %s", name);
    for (long n = from; n < to; n++) {
        long found = -1;
        CHECK(fscanf(file, "%ld", &found) == 1 && found == n, "%s has %ld, not %ld", name, found, n);
    }
    CHECK(fgetc(file) == '\n' && fgetc(file) == EOF, "%s has more", name);
    fclose(file);
}

/* Not functions: a restart returns into the frame that called sys_xbegin(). */
#define BEGIN(flags, ...) CHECK(sys_xbegin(flags, ##__VA_ARGS__) >= 0, "sys_xbegin")
#define END() CHECK(sys_xend() == 0, "sys_xend")

/* --- Futexes ---------------------------------------------------------------------------------- */

static void futex_wait(atomic_int *at, int value)
{
    int done = (int)syscall(SYS_futex, at, FUTEX_WAIT, value, NULL);
    CHECK(done == 0 || errno == EAGAIN || errno == EINTR, "FUTEX_WAIT");
}

static void futex_wake(atomic_int *at)
{
    CHECK(syscall(SYS_futex, at, FUTEX_WAKE, INT_MAX) >= 0, "FUTEX_WAKE");
}

/* It may be begun again, and be late. */
static void reach(atomic_int *at, int value)
{
    int was = atomic_load(at);
    while (was < value && !atomic_compare_exchange_weak(at, &was, value))
        ;
    futex_wake(at);
}

static void await(atomic_int *at, int value)
{
    for (int is; (is = atomic_load(at)) < value;)
        futex_wait(at, is);
}

/* "Futexes are tricky", mutex 2. */
static void take(atomic_int *lock)
{
    int was = 0;
    if (atomic_compare_exchange_strong(lock, &was, 1))
        return;
    while (atomic_exchange(lock, 2) != 0)
        futex_wait(lock, 2);
}

static void give(atomic_int *lock)
{
    if (atomic_exchange(lock, 0) == 2)
        futex_wake(lock);
}

/* --- Others ----------------------------------------------------------------------------------- */

typedef void (*actor)(long);

static pid_t start(actor run, long argument)
{
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run(argument);
        exit(0);
    }
    return pid;
}

static void joined(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "another one ended with %x", status);
}

/* Waits until a thread is in one of these calls. Until it is at this place, if there is one. */
static void blocked(pid_t pid, const void *place, const long *calls)
{
    double since = now();
    for (;;) {
        char path[64], line[256] = "";
        snprintf(path, sizeof path, "/proc/%d/syscall", pid);
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0, "opening %s", path);
        if (read(fd, line, sizeof line - 1) <= 0)
            line[0] = 0;
        close(fd);
        char *rest;
        long number = strtol(line, &rest, 10);
        unsigned long first = strtoul(rest, NULL, 16);
        for (const long *call = calls; *call >= 0; call++)
            if (rest != line && number == *call && (!place || first == (unsigned long)place))
                return;
        CHECK(now() - since < SECONDS_MAX, "process %d does not wait: %s", pid, line);
        sched_yield();
    }
}

/* The same for the last thread of this process that was made. */
static void thread_blocked(const void *place, const long *calls)
{
    pid_t last = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks, "opening /proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (atoi(entry->d_name) > last)
            last = atoi(entry->d_name);
    closedir(tasks);
    blocked(last, place, calls);
}

static const long AT_FUTEX[] = { SYS_futex, -1 };
static const long AT_PIPE[] = { SYS_read, SYS_readv, SYS_poll, SYS_ppoll, SYS_preadv2, -1 };
static const long FOR_CHILD[] = { SYS_wait4, SYS_waitid, -1 };

/* --- Futexes and locks ------------------------------------------------------------------------ */

static void waits_within(long flags)
{
    (void)flags;
    BEGIN(TX_RESTART);
    add_one("f");
    await(&shared->futex, 1);
    END();
}

static void goodfutex(void)
{
    pid_t pid = start(waits_within, 0);
    blocked(pid, &shared->futex, AT_FUTEX);
    /* The second futex is waited at outside. */
    atomic_store(&shared->stage, 1);
    await(&shared->stage, 1);
    BEGIN(TX_RESTART);
    add_one("f");
    END();
    CHECK(number_in("f") == 1, "the one that waits was first");
    reach(&shared->futex, 1);
    joined(pid);
    CHECK(number_in("f") == 2, "f is %ld", number_in("f"));
}

static void wants_too(long unused)
{
    (void)unused;
    while (atomic_load(&shared->stage) < 1)
        ;
    BEGIN(TX_RESTART);
    add_one("f");
    END();
    reach(&shared->futex, 1);
}

static void woken(void)
{
    pid_t pid = start(wants_too, 0);
    struct txos_stats stats = { .size = sizeof stats };
    BEGIN(TX_RESTART);
    add_one("f");
    atomic_store(&shared->stage, 1);
    /* What is in /proc is of no transaction. */
    if (atomic_exchange(&shared->turns, 1) == 0)
        blocked(pid, NULL, AT_FUTEX);
    await(&shared->futex, 1);
    END();
    joined(pid);
    CHECK(number_in("f") == 2, "f is %ld", number_in("f"));
    CHECK(txos_stats(&stats) == 0, "txos_stats");
}

enum { ROUNDS = 10 };

static void takes_around(long rounds)
{
    for (volatile long i = 0; i < rounds; i++) {
        take(&shared->lock);
        BEGIN(TX_RESTART);
        add_one("f");
        END();
        give(&shared->lock);
    }
}

static void takes_within(long rounds)
{
    for (long i = 0; i < rounds; i++)
        do {
            BEGIN(0);
            if (add_one("f")) {
                take(&shared->lock);
                add_one("g");
                give(&shared->lock);
            }
        } while (sys_xend() != 0);
}

static void badfutex(void)
{
    /* First so that they are sure to meet, then as they like. */
    take(&shared->lock);
    pid_t within = start(takes_within, ROUNDS);
    blocked(within, &shared->lock, AT_FUTEX);
    BEGIN(TX_RESTART);
    add_one("f");
    END();
    CHECK(number_in("f") == 1 && number_in("g") == 0, "the one that waits was first");
    give(&shared->lock);
    pid_t around = start(takes_around, ROUNDS);
    joined(within);
    joined(around);
    CHECK(number_in("f") == 2 * ROUNDS + 1 && number_in("g") == ROUNDS, "f is %ld, g %ld",
          number_in("f"), number_in("g"));
}

static void begins_again(long unused)
{
    (void)unused;
    BEGIN(TX_RESTART);
    add_one("f");
    take(&shared->lock);
    add_one("g");
    END();
    give(&shared->lock);
}

static void restarted(void)
{
    take(&shared->lock);
    pid_t within = start(begins_again, 0);
    blocked(within, &shared->lock, AT_FUTEX);
    BEGIN(TX_RESTART);
    add_one("f");
    END();
    give(&shared->lock);
    joined(within);
    CHECK(number_in("f") == 2 && number_in("g") == 1, "f is %ld, g %ld", number_in("f"),
          number_in("g"));
}

static void *begins_again_with_mutex(void *unused)
{
    (void)unused;
    BEGIN(TX_RESTART);
    add_one("f");
    pthread_mutex_lock(&private);
    add_one("g");
    END();
    pthread_mutex_unlock(&private);
    return NULL;
}

/* It does not end: who reads what it says ends the process. */
static void own(long unused)
{
    (void)unused;
    pthread_t thread;
    pthread_mutex_lock(&private);
    CHECK(pthread_create(&thread, NULL, begins_again_with_mutex, NULL) == 0, "pthread_create");
    thread_blocked(&private, AT_FUTEX);
    BEGIN(TX_RESTART);
    add_one("f");
    END();
    pthread_mutex_unlock(&private);
    pthread_join(thread, NULL);
}

static void own_mutex(void)
{
    int report[2];
    CHECK(pipe(report) == 0, "pipe");
    int err = dup(2);
    dup2(report[1], 2);
    pid_t pid = start(own, 0);
    dup2(err, 2);
    close(report[1]);
    char said[4096];
    ssize_t n = read(report[0], said, sizeof said - 1);
    CHECK(n > 0, "reading what it says");
    said[n] = 0;
    CHECK(strstr(said, "which this thread itself took"), "it says: %s", said);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
}

/* --- Ordered ---------------------------------------------------------------------------------- */

static void ordered_from(uint64_t number)
{
    setpgid(0, 0); /* the order is that of a process group */
    BEGIN(TX_ORDERED | TX_ORDER_RESET, number);
    END();
}

static void takes_in_turn(long number)
{
    int attempts = 0;
    do {
        CHECK(attempts++ < 2, "it is aborted again and again");
        BEGIN(TX_ORDERED, (uint64_t)number);
        if (number == 2)
            txos_abort_if(&shared->off);
        add_one(number == 1 ? "f" : "g");
        if (number == 1)
            await(&shared->stage, 1);
        take(&shared->lock);
        reach(number == 1 ? &shared->turns : &shared->stage, 1);
        int done = sys_xend();
        give(&shared->lock);
        if (done == 0)
            return;
        struct txos_abort why = { .size = sizeof why };
        CHECK(txos_abort_reason(&why) == 0, "txos_abort_reason");
        fprintf(stderr, "aborted: %s\n", why.what);
        shared->off = 0;
        await(&shared->turns, 1); /* or it might take the lock again before the first one wakes up */
    } while (true);
}

/* Who reads what they say ends it. */
static void orderedfutex(void)
{
    ordered_from(0);
    int report[2];
    CHECK(pipe(report) == 0, "pipe");
    int err = dup(2);
    dup2(report[1], 2);
    pid_t second = start(takes_in_turn, 2);
    pid_t first = start(takes_in_turn, 1);
    dup2(err, 2);
    close(report[1]);
    double since = now();
    char said[8192] = "", one[64];
    snprintf(one, sizeof one, "sequence number 1");
    char holder[64];
    snprintf(holder, sizeof holder, "process %d", first);
    size_t length = 0;
    bool told = false;
    for (ssize_t n; (n = read(report[0], said + length, sizeof said - 1 - length)) > 0;) {
        fprintf(stderr, "%.*s", (int)n, said + length);
        length += (size_t)n;
        said[length] = 0;
        if (!told && strstr(said, one) && strstr(said, holder) && strstr(said, "futex"))
            shared->off = told = true;
    }
    fprintf(stderr, "(after %.1f s)\n", now() - since);
    CHECK(told, "nobody was told");
    joined(first);
    joined(second);
    CHECK(number_in("f") == 1 && number_in("g") == 1, "they have not both committed");
}

static void *mutex_in_turn(void *argument)
{
    uint64_t number = (uint64_t)(uintptr_t)argument;
    for (int attempt = 0;; attempt++) {
        BEGIN(TX_ORDERED, number);
        add_one(number == 1 ? "f" : "g");
        if (number == 1)
            await(&shared->stage, 1);
        pthread_mutex_lock(&shared->mutex);
        reach(number == 1 ? &shared->turns : &shared->stage, 1);
        int done = sys_xend(), error = errno;
        pthread_mutex_unlock(&shared->mutex);
        if (done == 0)
            return NULL;
        CHECK(error == ECANCELED && number == 2 && attempt == 0, "%d of %d failed", attempt,
              (int)number);
        struct txos_abort why = { .size = sizeof why };
        CHECK(txos_abort_reason(&why) == 0 && why.reason == TXOS_CONFLICT, "txos_abort_reason");
        CHECK(strstr(why.what, "deadlock") && strstr(why.what, "sequence number 1") &&
                  strstr(why.what, "mutex") && why.pid == getpid(),
              "process %d: %s", why.pid, why.what);
        await(&shared->turns, 1);
    }
}

static void orderedmutex(void)
{
    pthread_t first, second;
    ordered_from(0);
    CHECK(pthread_create(&second, NULL, mutex_in_turn, (void *)2) == 0, "pthread_create");
    CHECK(pthread_create(&first, NULL, mutex_in_turn, (void *)1) == 0, "pthread_create");
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    CHECK(number_in("f") == 1 && number_in("g") == 1, "they have not both committed");
}

/* --- Mutexes ---------------------------------------------------------------------------------- */

/* Each mutex on one side of the border: `mutex` is taken in transactions, `other` around them. */
static void *locks(void *argument)
{
    long me = (long)argument;
    for (volatile long i = 0; i < 30; i++) {
        if ((me + i) % 2 == 0) {
            pthread_mutex_lock(&shared->other);
            BEGIN(TX_RESTART);
            add_one("f");
            END();
            pthread_mutex_unlock(&shared->other);
            continue;
        }
        bool done;
        do {
            BEGIN(0);
            if (me % 4 < 2)
                add_one("f");
            pthread_mutex_lock(&shared->mutex);
            int turns = atomic_load(&shared->turns);
            if (me % 4 >= 2)
                add_one("f");
            atomic_store(&shared->turns, turns + 1);
            pthread_mutex_unlock(&shared->mutex);
            done = sys_xend() == 0;
            CHECK(done || errno == ECANCELED, "sys_xend");
        } while (!done);
    }
    return NULL;
}

static void holds_f(long unused)
{
    (void)unused;
    do {
        BEGIN(0);
        if (add_one("f")) {
            reach(&shared->stage, 1);
            await(&shared->stage, 2);
            pthread_mutex_lock(&shared->mutex);
            add_one("g");
            pthread_mutex_unlock(&shared->mutex);
        }
    } while (sys_xend() != 0);
}

static void mutex(void)
{
    /* They take the file and the mutex in different orders. */
    pid_t pid = start(holds_f, 0);
    await(&shared->stage, 1);
    BEGIN(0);
    pthread_mutex_lock(&shared->mutex);
    reach(&shared->stage, 2);
    blocked(pid, &shared->mutex, AT_FUTEX);
    add_one("f");
    pthread_mutex_unlock(&shared->mutex);
    END();
    joined(pid);
    CHECK(number_in("f") == 2 && number_in("g") == 1, "f is %ld", number_in("f"));
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, locks, (void *)i) == 0, "pthread_create");
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK(number_in("f") == 2 + 4 * 30, "f is %ld", number_in("f"));
}

/* --- Producers and consumers ------------------------------------------------------------------ */

enum { ITEMS = 12, CONSUMERS = 3 };

static long items[ITEMS];
static sem_t full[ITEMS];
static int line[2];

/* The number of an item is made by the transaction 2 n, and used by 2 n + 1. */
static void *produces(void *unused)
{
    (void)unused;
    for (volatile long n = 0; n < ITEMS; n++) {
        BEGIN(TX_ORDERED | TX_RESTART, (uint64_t)(2 * n));
        append("made", n);
        items[n] = n;
        END();
        sem_post(&full[n]);
    }
    return NULL;
}

static void *consumes(void *argument)
{
    for (volatile long n = (long)argument; n < ITEMS; n += CONSUMERS) {
        /* What was taken is not given back. */
        volatile bool taken = false;
        BEGIN(TX_ORDERED | TX_RESTART, (uint64_t)(2 * n + 1));
        append("used", n);
        if (!taken)
            while (sem_wait(&full[n]) == -1)
                CHECK(errno == EINTR, "sem_wait");
        taken = true;
        append("made", 1000 + items[n]);
        END();
    }
    return NULL;
}

static void expect_all(void)
{
    expect_lines("used", 0, ITEMS);
    FILE *file = fopen("made", "r");
    for (long n = 0; n < ITEMS; n++) {
        long made = -1, used = -1;
        CHECK(file && fscanf(file, "%ld %ld", &made, &used) == 2, "reading made");
        CHECK(made == n && used == 1000 + n, "%ld %ld, not %ld", made, used, n);
    }
    fclose(file);
}

/* The next transaction is that of number 0. */
static void ordered_from_zero(void)
{
    setpgid(0, 0); /* the order is that of a process group */
    BEGIN(TX_ORDERED | TX_ORDER_RESET, (uint64_t)0);
    sys_xabort(1);
}

static void ordered_pc(void)
{
    pthread_t producer, consumers[CONSUMERS];
    ordered_from_zero();
    for (int n = 0; n < ITEMS; n++)
        sem_init(&full[n], 0, 0);
    for (long i = 0; i < CONSUMERS; i++)
        CHECK(pthread_create(&consumers[i], NULL, consumes, (void *)i) == 0, "pthread_create");
    CHECK(pthread_create(&producer, NULL, produces, NULL) == 0, "pthread_create");
    pthread_join(producer, NULL);
    for (long i = 0; i < CONSUMERS; i++)
        pthread_join(consumers[i], NULL);
    expect_all();
}

enum { PRODUCERS = 2 };

static void produces_into_pipe(long first)
{
    close(line[0]);
    for (volatile long n = first; n < ITEMS; n += PRODUCERS) {
        long item = n;
        BEGIN(TX_ORDERED | TX_RESTART, (uint64_t)(2 * n));
        append("made", n);
        CHECK(write(line[1], &item, sizeof item) == sizeof item, "writing to the pipe");
        END();
    }
}

static void pipe_pc(void)
{
    pid_t producers[PRODUCERS];
    ordered_from_zero();
    CHECK(pipe(line) == 0, "pipe");
    for (long i = PRODUCERS - 1; i >= 0; i--)
        producers[i] = start(produces_into_pipe, i);
    close(line[1]);
    for (volatile long n = 0; n < ITEMS; n++) {
        long item = -1;
        BEGIN(TX_ORDERED | TX_RESTART, (uint64_t)(2 * n + 1));
        append("used", n);
        append("made", 1000 + n);
        CHECK(read(line[0], &item, sizeof item) == sizeof item, "reading from the pipe");
        CHECK(item == n, "the item is %ld, not %ld", item, n);
        END();
    }
    for (long i = 0; i < PRODUCERS; i++)
        joined(producers[i]);
    expect_all();
}

/* --- A lock file ------------------------------------------------------------------------------ */

static void polls(long sleeps)
{
    BEGIN(TX_RESTART);
    while (access("lock", F_OK) == -1) {
        CHECK(errno == ENOENT, "looking for the lock file");
        atomic_fetch_add(&shared->turns, 1);
        if (sleeps)
            usleep(2000);
        else
            CHECK(setpriority(PRIO_PROCESS, 0, 19) == 0, "setpriority");
    }
    add_one("f");
    END();
}

static void lockfile(bool sleeps, bool transaction)
{
    pid_t pid = start(polls, sleeps);
    while (atomic_load(&shared->turns) < 3)
        ;
    if (transaction)
        BEGIN(TX_RESTART);
    int fd = open("lock", O_WRONLY | O_CREAT | O_EXCL, 0644);
    CHECK(fd >= 0, "creating the lock file");
    close(fd);
    if (transaction)
        END();
    joined(pid);
    CHECK(number_in("f") == 1, "f is %ld", number_in("f"));
}

static void lockfile_in_transaction(void)
{
    lockfile(true, true);
}

static void outsider(void)
{
    lockfile(true, false);
}

static void priorities(void)
{
    lockfile(false, true);
}

/* --- Threads of one process ------------------------------------------------------------------- */

/* A thread of low priority has f, and does not wait. It ends, and should have lost, once the other one is through. */
static void *keeps_f(void *lower)
{
    BEGIN(0);
    if (lower)
        CHECK(setpriority(PRIO_PROCESS, 0, 10) == 0, "setpriority");
    add_one("f");
    atomic_store(&shared->stage, 1);
    for (double until = now() + 10; atomic_load(&shared->stage) != 2 && now() < until;)
        ;
    CHECK(sys_xend() == -1 && errno == ECANCELED, "the thread of lower priority has won");
    struct txos_abort why = { .size = sizeof why };
    CHECK(txos_abort_reason(&why) == 0 && why.reason == TXOS_CONFLICT, "reason %u", why.reason);
    return NULL;
}

static void *wants_f_too(void *unused)
{
    while (atomic_load(&shared->stage) != 1)
        ;
    BEGIN(0);
    add_one("f");
    END();
    atomic_store(&shared->stage, 2);
    return unused;
}

static void threads(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, keeps_f, "lower") == 0, "pthread_create");
    wants_f_too(NULL);
    pthread_join(thread, NULL);
    CHECK(number_in("f") == 1, "f is %ld", number_in("f"));
    /* And the other way round: it is the first thread that has the lower priority, from before. */
    atomic_store(&shared->stage, 0);
    CHECK(pthread_create(&thread, NULL, wants_f_too, NULL) == 0, "pthread_create");
    CHECK(setpriority(PRIO_PROCESS, 0, 10) == 0, "setpriority");
    keeps_f(NULL);
    pthread_join(thread, NULL);
    CHECK(number_in("f") == 2, "f is %ld", number_in("f"));
}

/* --- A pipe, a child -------------------------------------------------------------------------- */

static void reads(long unused)
{
    (void)unused;
    char byte = 0;
    BEGIN(TX_RESTART);
    add_one("f");
    CHECK(read(line[0], &byte, 1) == 1 && byte == 'x', "reading from the pipe");
    END();
}

static void pipe_scene(void)
{
    CHECK(pipe(line) == 0, "pipe");
    pid_t pid = start(reads, 0);
    blocked(pid, NULL, AT_PIPE);
    BEGIN(TX_RESTART);
    add_one("f");
    END();
    CHECK(number_in("f") == 1, "the one that waits was first");
    CHECK(write(line[1], "x", 1) == 1, "writing to the pipe");
    joined(pid);
    CHECK(number_in("f") == 2, "f is %ld", number_in("f"));
    /* The byte was read once. */
    CHECK(write(line[1], "y", 1) == 1, "writing to the pipe");
    char byte = 0;
    CHECK(read(line[0], &byte, 1) == 1 && byte == 'y', "the pipe had %d", byte);
}

static void wants_f(long unused)
{
    (void)unused;
    blocked(getppid(), NULL, FOR_CHILD);
    BEGIN(TX_RESTART);
    add_one("f");
    END();
}

static void child(void)
{
    BEGIN(0);
    add_one("f");
    joined(start(wants_f, 0));
    CHECK(sys_xend() == -1 && errno == ECANCELED, "it was not aborted");
    CHECK(number_in("f") == 1, "f is %ld", number_in("f"));
}

static const struct {
    const char *name;
    void (*run)(void);
} scenes[] = {
    { "goodfutex", goodfutex },
    { "woken", woken },
    { "badfutex", badfutex },
    { "restarted", restarted },
    { "own", own_mutex },
    { "orderedfutex", orderedfutex },
    { "orderedmutex", orderedmutex },
    { "mutex", mutex },
    { "ordered-p/c", ordered_pc },
    { "pipe-p/c", pipe_pc },
    { "lockfile", lockfile_in_transaction },
    { "outsider", outsider },
    { "priorities", priorities },
    { "threads", threads },
    { "pipe", pipe_scene },
    { "child", child },
};

/* In a transaction, SIGALRM would wait for the end. */
static void watches(long pid)
{
    sleep(SECONDS_MAX);
    fprintf(stderr, "it does not end\n");
    kill((pid_t)pid, SIGKILL);
}

int main(int argc, char **argv)
{
    start(watches, getpid());
    CHECK(argc == 3 && chdir(argv[2]) == 0, "usage: waiting SCENE DIR");
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED, "mmap");
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->mutex, &attributes);
    pthread_mutex_init(&shared->other, &attributes);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(scenes[i].name, argv[1]) == 0) {
            scenes[i].run();
            return 0;
        }
    fail("there is no scene %s", argv[1]);
}
