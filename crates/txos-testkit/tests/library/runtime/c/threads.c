/* threads DIR SECONDS
 *
 * Sixteen threads that share a table of descriptors, some in transactions, others not, over one
 * directory. What nobody may ever see is said on standard output, a line each; the end is "done".
 *
 * A writer's transaction makes a name that it removes again, writes values that it overwrites
 * again, and at its end both of its files hold one new number. Some of its transactions are aborted
 * when they hold numbers that are odd.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

#include "raw.h"

enum { WRITERS = 6, READERS = 3, LOOKERS = 3, LISTERS = 2, LEAVERS = 1, KEEPERS = 1 };

static atomic_bool over;
static atomic_long commits, aborts, reads, looks, lists, left, kept;
static int shared = -1; /* a descriptor that all have */

/* The first few tell enough; then all may go home. */
#define WRONG_MAX 12

static void wrong(const char *format, ...)
{
    static atomic_int count;
    char line[512];
    if (atomic_fetch_add(&count, 1) >= WRONG_MAX) {
        atomic_store(&over, true);
        return;
    }
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    /* What is said in a transaction is part of it, and it may be aborted. */
    long paused = txos_in_transaction() ? sys_xpause() : -1;
    printf("%s\n", line);
    fflush(stdout);
    if (paused != -1)
        sys_xresume(paused);
}

/* Not a function: a restart returns into the frame that called sys_xbegin(). */
#define BEGIN()                                             \
    do {                                                    \
        if (sys_xbegin(TX_RESTART) < 0) {                   \
            wrong("sys_xbegin: %m: %s", txos_strerror());   \
            return NULL;                                    \
        }                                                   \
    } while (0)

static long number_in(const char *name)
{
    char text[32] = "";
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n < 0)
        return -2;
    char *end;
    long number = strtol(text, &end, 10);
    return end == text || *end != '\n' ? -3 : number;
}

static bool put(const char *name, long number)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", number);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    bool ok = fd >= 0 && write(fd, text, (size_t)n) == n;
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Even numbers are committed, odd ones never are. */
static void *writer(void *argument)
{
    long me = (long)argument, number = 0;
    char a[32], b[32], passing[32];
    snprintf(a, sizeof a, "a%ld", me);
    snprintf(b, sizeof b, "b%ld", me);
    snprintf(passing, sizeof passing, "passing%ld", me);
    for (volatile long round = 0; !atomic_load(&over); round++) {
        bool aborted = round % 3 == 2;
        BEGIN();
        bool ok = put(passing, 1) && put(a, number + 1) && put(b, number + 3) &&
                  mkdir("passing-dir", 0755) == 0;
        if (!ok)
            wrong("writer %ld: %m in its own transaction", me);
        if (number_in(a) != number + 1 || number_in(b) != number + 3)
            wrong("writer %ld does not see its own", me);
        if (aborted) {
            sys_xabort(1);
            atomic_fetch_add(&aborts, 1);
            if (number_in(a) != number || number_in(b) != number)
                wrong("writer %ld: %ld %ld after an abort, not %ld", me, number_in(a), number_in(b),
                      number);
            if (access(passing, F_OK) == 0)
                wrong("writer %ld: a name has outlived an abort", me);
            continue;
        }
        ok = unlink(passing) == 0 && rmdir("passing-dir") == 0 && put(a, number + 2) &&
             put(b, number + 2);
        if (!ok)
            wrong("writer %ld: %m in its own transaction", me);
        if (sys_xend() != 0) {
            wrong("writer %ld: sys_xend: %m: %s", me, txos_strerror());
            return NULL;
        }
        number += 2;
        atomic_fetch_add(&commits, 1);
    }
    return NULL;
}

/* In a transaction both files of each writer are of one commit, and stay so. */
static void *reader(void *argument)
{
    (void)argument;
    while (!atomic_load(&over)) {
        long first[WRITERS], second[WRITERS], again[WRITERS];
        BEGIN();
        for (int i = 0; i < WRITERS; i++) {
            char a[32], b[32];
            snprintf(a, sizeof a, "a%d", i);
            snprintf(b, sizeof b, "b%d", i);
            first[i] = number_in(a);
            second[i] = number_in(b);
            again[i] = number_in(a);
        }
        if (sys_xend() != 0) {
            wrong("reader: sys_xend: %m: %s", txos_strerror());
            return NULL;
        }
        for (int i = 0; i < WRITERS; i++)
            if (first[i] != second[i] || first[i] != again[i] || first[i] % 2)
                wrong("a reader saw %ld %ld %ld of writer %d", first[i], second[i], again[i], i);
        atomic_fetch_add(&reads, 1);
    }
    return NULL;
}

/* Without one, each call for itself: what it sees has been committed once, and time goes on. */
static void *looker(void *argument)
{
    long last[WRITERS] = { 0 };
    (void)argument;
    while (!atomic_load(&over)) {
        for (int i = 0; i < WRITERS; i++) {
            char name[32];
            snprintf(name, sizeof name, "%c%d", 'a' + (int)(atomic_load(&looks) % 2), i);
            long number = number_in(name);
            if (number < 0 || number % 2)
                wrong("a look at %s found %ld", name, number);
            snprintf(name, sizeof name, "a%d", i);
            number = number_in(name);
            if (number < last[i])
                wrong("a look at %s found %ld after %ld", name, number, last[i]);
            last[i] = number;
            snprintf(name, sizeof name, "passing%d", i);
            if (access(name, F_OK) == 0 || access("passing-dir", F_OK) == 0)
                wrong("a look found a name that never was");
        }
        atomic_fetch_add(&looks, 1);
    }
    return NULL;
}

static void *lister(void *argument)
{
    (void)argument;
    while (!atomic_load(&over)) {
        DIR *dir = opendir(".");
        if (!dir) {
            wrong("opendir: %m");
            return NULL;
        }
        struct dirent *entry;
        int files = 0;
        while ((entry = readdir(dir))) {
            if (strncmp(entry->d_name, "passing", 7) == 0 || strcmp(entry->d_name, "left") == 0)
                wrong("a list has %s", entry->d_name);
            files += entry->d_name[1] >= '0' && entry->d_name[1] <= '9' && entry->d_name[2] == 0;
        }
        closedir(dir);
        if (files != 2 * WRITERS)
            wrong("a list has %d files of writers", files);
        atomic_fetch_add(&lists, 1);
    }
    return NULL;
}

/* A thread that ends within a transaction has aborted it, and so has one whose transaction lost against another
 * thread's call. */
static void *leaves_at_once(void *argument)
{
    bool calls_exit = argument != NULL;
    if (sys_xbegin(0) != 0)
        return (void *)(long)errno;
    if (!put("left", 1) || close(shared) != 0)
        return errno == ECANCELED ? NULL : (void *)(long)errno;
    if (calls_exit)
        pthread_exit(NULL);
    return NULL;
}

static void *leaver(void *argument)
{
    (void)argument;
    for (long round = 0; !atomic_load(&over); round++) {
        pthread_t thread;
        void *result = NULL;
        if (pthread_create(&thread, NULL, leaves_at_once, (void *)(round % 2)) != 0)
            break;
        pthread_join(thread, &result);
        if (result)
            wrong("one that leaves: %s", strerror((int)(long)result));
        if (access("left", F_OK) == 0)
            wrong("a thread that ended in a transaction has left something");
        if (fcntl(shared, F_GETFD) < 0)
            wrong("a thread that ended in a transaction has closed a descriptor");
        atomic_fetch_add(&left, 1);
    }
    return NULL;
}

/* The shared descriptor, its place and flags, as others see them while one plays with it. */
static void *keeper(void *argument)
{
    (void)argument;
    while (!atomic_load(&over)) {
        BEGIN();
        char bytes[8];
        if (lseek(shared, 0, SEEK_CUR) != 5 || read(shared, bytes, 4) != 4 ||
            lseek(shared, 0, SEEK_CUR) != 9)
            wrong("the place of the shared descriptor is not one's own in a transaction");
        if (fcntl(shared, F_SETFL, O_APPEND) != 0 || close(shared) != 0 ||
            fcntl(shared, F_GETFD) != -1)
            wrong("a descriptor that is closed in a transaction is not");
        sys_xabort(1);
        if (lseek(shared, 0, SEEK_CUR) != 5 || (fcntl(shared, F_GETFL) & O_APPEND))
            wrong("an abort has not put back the shared descriptor");
        atomic_fetch_add(&kept, 1);
    }
    return NULL;
}

/* Without a transaction meanwhile. */
static void *watcher(void *argument)
{
    (void)argument;
    while (!atomic_load(&over)) {
        char bytes[8];
        long at = lseek(shared, 0, SEEK_CUR);
        if (at != 5)
            wrong("the shared descriptor is at %ld (%m)", at);
        if (pread(shared, bytes, 4, 0) != 4 || memcmp(bytes, "0123", 4) != 0)
            wrong("the shared descriptor can't be read: %m");
    }
    return NULL;
}

/* Alone, before the others: which numbers descriptors get. */
static void numbers(void)
{
    int first = open("/dev/null", O_RDONLY), second = open("/dev/null", O_RDONLY);
    close(first);
    if (sys_xbegin(0) != 0)
        wrong("sys_xbegin: %m: %s", txos_strerror());
    int one = open("a0", O_RDONLY), two = open("a0", O_RDONLY), three = dup(second);
    if (one != first || two != second + 1 || three != second + 2)
        wrong("descriptors %d %d %d in a transaction, not %d %d %d", one, two, three, first,
              second + 1, second + 2);
    close(second);
    int four = open("a0", O_RDONLY);
    if (four != second)
        wrong("descriptor %d in a transaction, not %d", four, second);
    sys_xabort(1);
    int five = open("/dev/null", O_RDONLY), six = open("/dev/null", O_RDONLY);
    if (five != first || six != second + 1)
        wrong("descriptors %d %d after an abort, not %d %d", five, six, first, second + 1);
    struct stat stat;
    if (fstat(second, &stat) != 0 || !S_ISCHR(stat.st_mode))
        wrong("a descriptor that was closed in an aborted transaction is not back");
    close(five);
    close(six);
    close(second);
}

int main(int argc, char **argv)
{
    if (argc != 3 || chdir(argv[1]) != 0)
        return 2;
    for (int i = 0; i < WRITERS; i++) {
        char name[32];
        for (const char *letter = "ab"; *letter; letter++) {
            snprintf(name, sizeof name, "%c%d", *letter, i);
            put(name, 0);
        }
    }
    shared = open("shared", O_RDWR | O_CREAT, 0644);
    (void)!write(shared, "0123456789", 10);
    lseek(shared, 5, SEEK_SET);
    numbers();

    static void *(*const roles[])(void *) = { writer, reader, looker, lister, leaver, keeper,
                                              watcher };
    static const int counts[] = { WRITERS, READERS, LOOKERS, LISTERS, LEAVERS, KEEPERS, 1 };
    pthread_t threads[32];
    int n = 0;
    for (unsigned role = 0; role < sizeof roles / sizeof *roles; role++)
        for (long i = 0; i < counts[role]; i++)
            if (pthread_create(&threads[n++], NULL, roles[role], (void *)i) != 0)
                return 2;
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!atomic_load(&over) && now.tv_sec - from.tv_sec < atol(argv[2]));
    atomic_store(&over, true);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    fprintf(stderr, "commits %ld aborts %ld reads %ld looks %ld lists %ld left %ld kept %ld\n",
            atomic_load(&commits), atomic_load(&aborts), atomic_load(&reads), atomic_load(&looks),
            atomic_load(&lists), atomic_load(&left), atomic_load(&kept));
    printf("done\n");
    return 0;
}
