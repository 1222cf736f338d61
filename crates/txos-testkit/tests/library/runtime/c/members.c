/* members DIR SECONDS SEED
 *
 * Teams of threads. Each transaction of a team has several threads, made in it or joining it, each of which counts
 * in a file of its own; all teams count in the same files. So whenever somebody looks, all files hold one
 * number, and in the end that is how many transactions were committed. What is wrong is said on standard output,
 * a line each; the end is "done".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

#include "raw.h"

enum { TEAMS = 3, MEMBERS = 4, READERS = 2 };

static atomic_bool over;
static atomic_long commits, aborts, losses, looks, joins;
static unsigned seed;

/* Said at the end: in a transaction that is lost, nothing can be. */
enum { WRONG_MAX = 12 };
static char said[WRONG_MAX][512];
static atomic_int wrongs;

static void wrong(const char *format, ...)
{
    atomic_store(&over, true);
    int place = atomic_fetch_add(&wrongs, 1);
    if (place >= WRONG_MAX)
        return;
    va_list list;
    va_start(list, format);
    vsnprintf(said[place], sizeof said[place], format, list);
    va_end(list);
}

static unsigned chance(unsigned *state, unsigned of)
{
    *state = *state * 1103515245 + 12345;
    return (*state >> 16) % of;
}

/* Names and the end of a file are taken in one call each, so that nothing but a lost transaction makes it fail. */
static long number_in(const char *name)
{
    char text[32] = "";
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    int error = errno;
    close(fd);
    errno = error;
    return n < 0 ? -1 : atol(text);
}

static bool put(const char *name, long number)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", number);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return false;
    bool ok = write(fd, text, (size_t)n) == n;
    int error = errno;
    close(fd);
    errno = error;
    return ok;
}

struct member {
    int team, number, shown;
    unsigned state;
    sem_t ready, done;
    bool ends;
};

/* Whether all of it succeeded; it fails only when the transaction is lost. */
static bool count(struct member *m)
{
    char name[32], extra[32], other[32];
    snprintf(name, sizeof name, "count%d", m->number);
    snprintf(extra, sizeof extra, "extra%d-%d", m->team, m->number);
    snprintf(other, sizeof other, "other%d-%d", m->team, m->number);
    errno = 0;
    long number = number_in(name);
    bool ok = number >= 0;
    switch (chance(&m->state, 6)) {
    case 0:
        ok = ok && put(extra, 1) && rename(extra, other) == 0 && unlink(other) == 0;
        break;
    case 1:
        ok = ok && mkdir(extra, 0755) == 0 && rmdir(extra) == 0;
        break;
    case 2:
        ok = ok && sys_xbegin(0) == 0 && put(name, number + 7) && sys_xend() == 0;
        break;
    case 3:
        if (ok) {
            long id = sys_xpause();
            sched_yield();
            ok = id > 0 && sys_xresume(id) == 0;
        }
        break;
    case 4: {
        int ends[2];
        char byte;
        ok = ok && pipe(ends) == 0 && write(ends[1], "x", 1) == 1 && read(ends[0], &byte, 1) == 1 &&
             close(ends[0]) == 0 && close(ends[1]) == 0;
        break;
    }
    }
    ok = ok && put(name, number + 1) && number_in(name) == number + 1;
    if (!ok && errno != ECANCELED)
        wrong("team %d, member %d: %m: %s", m->team, m->number, txos_strerror());
    return ok;
}

static void *made(void *argument)
{
    struct member *m = argument;
    if (!txos_in_transaction()) {
        wrong("a thread that was made inside is outside");
        return NULL;
    }
    bool ok = count(m);
    if (ok && chance(&m->state, 20) == 0)
        sys_xabort(1);
    else if (chance(&m->state, 2) && (sys_xend() == 0) != ok && ok && errno != ECANCELED)
        wrong("team %d, member %d: leaving: %m", m->team, m->number);
    return NULL;
}

/* One that runs already, and enters one transaction of its team after the other. */
static void *joining(void *argument)
{
    struct member *m = argument;
    for (;;) {
        sem_wait(&m->ready);
        if (m->ends)
            return NULL;
        if (sys_xjoin(m->shown) == 0) {
            atomic_fetch_add(&joins, 1);
            count(m);
            /* It may be lost in a nested one. */
            while (txos_in_transaction())
                sys_xend();
        } else if (errno != EINVAL && errno != EBADF) {
            wrong("team %d: sys_xjoin: %m: %s", m->team, txos_strerror());
        }
        sem_post(&m->done);
    }
}

static void *team(void *argument)
{
    int me = (int)(long)argument;
    unsigned state = seed * 31 + (unsigned)me;
    struct member members[MEMBERS];
    memset(members, 0, sizeof members);
    for (int i = 0; i < MEMBERS; i++) {
        members[i] = (struct member){.team = me, .number = i, .state = state + (unsigned)i * 77};
        sem_init(&members[i].ready, 0, 0);
        sem_init(&members[i].done, 0, 0);
    }
    pthread_t runs_already;
    if (pthread_create(&runs_already, NULL, joining, &members[0]) != 0)
        abort();
    while (!atomic_load(&over)) {
        if (sys_xbegin(TX_THREADS) < 0) {
            wrong("sys_xbegin: %m: %s", txos_strerror());
            break;
        }
        pthread_t thread[MEMBERS];
        bool there[MEMBERS] = {false}, lost = false;
        int shown = txos_share();
        if (shown < 0 && errno != ECANCELED)
            wrong("txos_share: %m: %s", txos_strerror());
        members[0].shown = shown;
        if (shown >= 0)
            sem_post(&members[0].ready);
        for (int i = 1; i < MEMBERS; i++) {
            int error = pthread_create(&thread[i], NULL, made, &members[i]);
            there[i] = error == 0;
            lost |= !there[i];
            if (error != 0 && error != ECANCELED)
                wrong("pthread_create: %s", strerror(error));
        }
        for (int i = 1; i < MEMBERS; i++)
            if (there[i])
                pthread_join(thread[i], NULL);
        if (shown >= 0)
            sem_wait(&members[0].done);
        bool aborted = chance(&state, 8) == 0;
        int ended = 0;
        if (aborted)
            sys_xabort(1);
        else
            ended = sys_xend();
        int error = errno;
        if (shown >= 0)
            close(shown);
        errno = error;
        if (aborted) {
            atomic_fetch_add(&aborts, 1);
        } else if (ended == 0) {
            if (lost)
                wrong("a lost transaction was committed");
            atomic_fetch_add(&commits, 1);
        } else {
            struct txos_abort why = {.size = sizeof why};
            txos_abort_reason(&why);
            if (error != ECANCELED || (why.reason != TXOS_ASKED && why.reason != TXOS_CONFLICT))
                wrong("sys_xend: %m: %s", why.what);
            atomic_fetch_add(&losses, 1);
        }
    }
    members[0].ends = true;
    sem_post(&members[0].ready);
    pthread_join(runs_already, NULL);
    return NULL;
}

static void *reads_half(void *argument)
{
    long *numbers = argument;
    for (int i = 0; i < MEMBERS / 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "count%d", i);
        numbers[i] = number_in(name);
    }
    return NULL;
}

static void *reader(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        if (sys_xbegin(TX_THREADS) < 0) {
            wrong("sys_xbegin: %m: %s", txos_strerror());
            break;
        }
        long numbers[MEMBERS] = {0};
        pthread_t half;
        bool there = pthread_create(&half, NULL, reads_half, numbers) == 0;
        for (int i = MEMBERS / 2; i < MEMBERS; i++) {
            char name[32];
            snprintf(name, sizeof name, "count%d", i);
            numbers[i] = number_in(name);
        }
        if (there)
            pthread_join(half, NULL);
        if (sys_xend() != 0) {
            if (errno != ECANCELED)
                wrong("a reader's sys_xend: %m: %s", txos_strerror());
            continue;
        }
        for (int i = 1; i < MEMBERS; i++)
            if (numbers[i] != numbers[0] || numbers[i] < 0)
                wrong("a reader sees %ld and %ld", numbers[0], numbers[i]);
        atomic_fetch_add(&looks, 1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4 || chdir(argv[1]) != 0)
        return 2;
    seed = (unsigned)atol(argv[3]);
    for (int i = 0; i < MEMBERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "count%d", i);
        if (!put(name, 0))
            return 2;
    }
    pthread_t threads[TEAMS + READERS];
    for (long i = 0; i < TEAMS + READERS; i++)
        if (pthread_create(&threads[i], NULL, i < TEAMS ? team : reader, (void *)i) != 0)
            return 2;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        usleep(10000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!atomic_load(&over) && now.tv_sec - start.tv_sec < atol(argv[2]));
    atomic_store(&over, true);
    for (int i = 0; i < TEAMS + READERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < MEMBERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "count%d", i);
        if (number_in(name) != atomic_load(&commits))
            wrong("%s holds %ld, not %ld", name, number_in(name), atomic_load(&commits));
    }
    fprintf(stderr, "commits %ld aborts %ld losses %ld looks %ld joins %ld\n", commits, aborts, losses, looks,
            joins);
    for (int i = 0; i < WRONG_MAX && i < atomic_load(&wrongs); i++)
        printf("%s\n", said[i]);
    printf("done\n");
    return 0;
}
