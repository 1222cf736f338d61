/* Memory and files in atomic blocks of GCC's transactional memory: threads move money between accounts, each of which is a
 * variable and a file. Nobody sees one without the other.
 *
 *     tm DIR THREADS ROUNDS
 *
 * Begins with what the files say. Says a dot for each committed round, and how many were begun again. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "txos.h"

#define PURE __attribute__((transaction_pure))
PURE extern void _ITM_addUserCommitAction(void (*)(void *), uint64_t, void *);
PURE extern void _ITM_addUserUndoAction(void (*)(void *), void *);

enum { ACCOUNTS = 6, START = 1000 };
static long accounts[ACCOUNTS];
static long rounds, lost, asked;
static pthread_mutex_t says = PTHREAD_MUTEX_INITIALIZER;
static __thread unsigned seed;
static __thread int unequal;

static void fail(const char *what) {
    fprintf(stderr, "%s (errno %d; %s)\n", what, errno, txos_strerror());
    _exit(1);
}

static void end(void *commits) {
    if (commits) {
        if (txos_finish(1) != 0)
            fail("what was prepared was not committed");
        return;
    }
    txos_finish(0);
    sys_xabort(1);
}

PURE static int begin(void) {
    _ITM_addUserUndoAction(end, NULL);
    unequal = 0;
    return sys_xbegin(TX_NONBLOCK) == 0;
}

static long read_file(int account) {
    char name[16], text[32] = "";
    snprintf(name, sizeof name, "%d", account);
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        return -1;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    return length > 0 ? atol(text) : -1;
}

static int write_file(int account, long value) {
    char name[16], text[32];
    snprintf(name, sizeof name, "%d", account);
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    int length = snprintf(text, sizeof text, "%ld\n", value);
    return fd >= 0 && write(fd, text, (size_t)length) == length && close(fd) == 0;
}

/* What is in the file is what is in memory; if not, it can't be committed. */
PURE static void compare(int account, long value) {
    unequal |= read_file(account) != value;
}

PURE static int write_and_prepare(int from, long less, int to, long more) {
    _ITM_addUserCommitAction(end, 1, "commit");
    return write_file(from, less) && write_file(to, more) && txos_prepare() == 0;
}

/* In its serial mode libitm loses what a block has both read and written by itself (docs/runtime.md). */
__attribute__((transaction_safe, noipa)) static void set(long *where, long value) {
    *where = value;
}

static int move(int from, int to, long amount, int changes_its_mind) {
    int done = 0;
    __transaction_atomic {
        if (!begin())
            __transaction_cancel;
        long less = accounts[from], more = accounts[to];
        compare(from, less);
        compare(to, more);
        set(&accounts[from], less - amount);
        set(&accounts[to], more + amount);
        if (!write_and_prepare(from, less - amount, to, more + amount) || changes_its_mind)
            __transaction_cancel;
        done = 1;
    }
    return done;
}

static void *work(void *number) {
    seed = (unsigned)(uintptr_t)number;
    while (__atomic_fetch_sub(&rounds, 1, __ATOMIC_RELAXED) > 0) {
        int from = rand_r(&seed) % ACCOUNTS, to = (from + 1 + rand_r(&seed) % (ACCOUNTS - 1)) % ACCOUNTS;
        long amount = rand_r(&seed) % 20;
        int mind = rand_r(&seed) % 8 == 0;
        if (mind) {
            move(from, to, amount, 1);
            __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
        }
        while (!move(from, to, amount, 0)) {
            __atomic_add_fetch(&lost, 1, __ATOMIC_RELAXED);
            usleep(rand_r(&seed) % 500);
        }
        if (unequal)
            fail("a committed block saw a file without its memory");
        /* Of two writes at once to a file of memfd_create(2) the kernel may keep one. */
        pthread_mutex_lock(&says);
        if (write(1, ".", 1) != 1)
            fail("write");
        pthread_mutex_unlock(&says);
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[16];
    if (count != 4 || chdir(arguments[1]) != 0)
        return 2;
    int all = atoi(arguments[2]);
    rounds = atol(arguments[3]);
    /* What a killed one has left undecided is decided by the first contact. */
    if (sys_xbegin(0) != 0)
        fail("sys_xbegin");
    for (int i = 0; i < ACCOUNTS; i++)
        if ((accounts[i] = read_file(i)) == -1 && !write_file(i, accounts[i] = START))
            fail("no file");
    if (sys_xend() != 0)
        fail("sys_xend");
    long sum = 0;
    for (int i = 0; i < ACCOUNTS; i++)
        sum += accounts[i];
    if (sum != (long)ACCOUNTS * START)
        fail("one of two files was not committed");
    for (int i = 0; i < all; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)((unsigned)getpid() * 16 + (unsigned)i)) != 0)
            fail("pthread_create");
    for (int i = 0; i < all; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < ACCOUNTS; i++)
        if (read_file(i) != accounts[i])
            fail("a file is not as memory is");
    fprintf(stderr, "%ld lost, %ld changed their minds\n", lost, asked);
    return 0;
}
