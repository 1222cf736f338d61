/* Counts in a table of SQLite's, in transactions that begin again after a conflict with memory as it was. The
 * connection stays open from the first to the last, with the pages that it has cached and the statement that
 * it has prepared; SQLite, which is loaded as it is, knows nothing of transactions. An abort that left any of
 * that behind would have it work on what has never happened.
 *
 *     checkpoint BASE ROUNDS
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <txos.h>

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            if (txos_in_transaction())                                         \
                fprintf(stderr, "in a transaction: ");                         \
            fprintf(stderr, "%d: %s: %s; %s\n", __LINE__, #what,               \
                    base ? errmsg(base) : "", txos_strerror());                \
            _Exit(1);                                                          \
        }                                                                      \
    } while (0)

static void *base, *library;
static const char *(*errmsg)(void *);
static int (*open_base)(const char *, void **);
static int (*exec)(void *, const char *, int (*)(void *, int, char **, char **), void *, char **);
static int (*prepare)(void *, const char *, int, void **, const char **);
static int (*step)(void *), (*reset)(void *);
static long long (*column)(void *, int);

static void *find(const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        exit(3);
    return found;
}

static long mine, *seen; /* what this process has counted, and what it found */

static void count(void *add, void *look)
{
    long long n;
    CHECK(step(look) == 100);
    n = column(look, 0);
    CHECK(reset(look) == 0);
    CHECK(step(add) == 101 && reset(add) == 0);
    seen = realloc(seen, (mine + 1) * sizeof *seen);
    seen[mine++] = n;
}

static int attempt(void *add, void *look)
{
    int result = sys_xbegin(TX_CHECKPOINT | TX_RESTART);
    CHECK(result >= 0);
    count(add, look);
    return sys_xend();
}

int main(int argc, char **argv)
{
    void *add, *look;
    struct txos_stats stats = {.size = sizeof stats};
    if (argc != 3 || !(library = dlopen("libsqlite3.so.0", RTLD_NOW)))
        return 2;
    errmsg = find("sqlite3_errmsg");
    open_base = find("sqlite3_open");
    exec = find("sqlite3_exec");
    prepare = find("sqlite3_prepare_v2");
    step = find("sqlite3_step");
    reset = find("sqlite3_reset");
    column = find("sqlite3_column_int64");
    CHECK(open_base(argv[1], &base) == 0);
    CHECK(prepare(base, "update t set n = n + 1", -1, &add, NULL) == 0);
    CHECK(prepare(base, "select n from t", -1, &look, NULL) == 0);
    for (long i = 0; i < atol(argv[2]); i++) {
        CHECK(attempt(add, look) == 0);
        CHECK(mine == i + 1);
    }
    CHECK(txos_stats(&stats) == 0);
    for (long i = 0; i < mine; i++)
        printf("%ld\n", seen[i]);
    fprintf(stderr, "restarts %lu\n", (unsigned long)stats.restarted);
    return 0;
}
