/* numbers SCENE
 *
 * Threads of one process whose transactions use the same descriptor numbers, in an empty directory. Nobody sleeps: a thread goes on
 * when another one has come to its step, or is seen to wait in the kernel.
 *
 *   close         two close one number: the later one waits, and finds it closed; what gets the number then is not closed by it
 *   close-nonblock   the same, where the later one may not wait: it says at which number it has lost
 *   use           one closes what another one uses, and the other way about
 *   replace       dup2() onto a number that another one uses; the commit shows the new file to it
 *   flag          the close-on-exec flag is of the number
 *   reads         uses of one number are in nobody's way, whatever it leads to
 *   others N      N rounds of opening, duplicating and closing by four threads at once: no transaction is aborted
 *   fresh         a number that another one has opened, and not committed
 *   aborted       what an abort gives back
 *   restart       one that has lost begins again
 *   order         the transaction whose turn comes first wins
 *   born          a thread that is made in a transaction, and has one of its own
 *   paused        a transaction that is paused, and another one of the same thread
 *   aside         what is opened at a number that another one has seen closed gets the next one
 *   dup-over N    N times dup2() onto a number, while others open all around it
 *   agree N       N rounds: what a number leads to and what a file says of it change together
 *   received N    N rounds of four threads whose transactions send themselves descriptors: each has its own, and an abort closes them
 *   killed        a process that is killed holds nothing any more
 *   exit          a thread that ends in its transaction
 *   single N      uses numbers in a process that has had N other threads
 *
 * Exits with 0 if all was well, else says what was not.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "raw.h"

#define CHECK(condition, ...)                                                       \
    do {                                                                            \
        if (!(condition)) {                                                         \
            int error = errno;                                                      \
            if (txos_in_transaction())                                              \
                sys_xabort(1);                                                      \
            fprintf(stderr, "line %d: ", __LINE__);                                 \
            fprintf(stderr, __VA_ARGS__);                                           \
            fprintf(stderr, " (%s; %s)\n", strerrorname_np(error), txos_strerror()); \
            _exit(1);                                                               \
        }                                                                           \
    } while (0)

#define BEGIN(flags) CHECK(sys_xbegin(flags) >= 0, "sys_xbegin")
#define END() CHECK(sys_xend() == 0, "sys_xend")

/* How far the scene has come. */
static atomic_int step;

/* Waits until it has come so far. In a transaction nothing is waited for that another transaction could mistake for a wait. */
static void await(int n)
{
    while (atomic_load(&step) < n)
        sched_yield();
}

static void reach(int n)
{
    atomic_store(&step, n);
}

/* The number that all is about, open before each scene. */
static int number;
static atomic_int partner;

/* Waits until the other thread has come to a step, or waits for somebody in the kernel. Whether it waits. */
static bool waits_before(int n)
{
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", atomic_load(&partner));
    while (atomic_load(&step) < n) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        long got = read(fd, text, sizeof text - 1);
        close(fd);
        text[got > 0 ? got : 0] = 0;
        if (strtol(text, NULL, 10) == SYS_futex && text[0] >= '0' && text[0] <= '9')
            return true;
    }
    return false;
}

static void make(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (long)strlen(text), "making %s", name);
    close(fd);
}

/* The first letter of what a number leads to; 0: it is closed, or the transaction has lost. */
static char letter(int fd)
{
    char text[2] = "";
    return pread(fd, text, 1, 0) == 1 ? text[0] : 0;
}

/* The call before may be one that is looked at by itself. */
static void second(void)
{
    CHECK(access(".", F_OK) == 0, "looking");
}

/* The transaction has lost, at a number, and ends. */
static void lost(int at, const char *by)
{
    struct txos_abort why = {.size = sizeof why};
    char name[32];
    CHECK(sys_xend() == -1 && errno == ECANCELED, "%s: it is committed", by);
    CHECK(txos_abort_reason(&why) == 0 && why.reason == TXOS_CONFLICT, "%s: another reason", by);
    snprintf(name, sizeof name, "descriptor %d", at);
    CHECK(!strcmp(why.path, name) && strstr(why.what, name), "%s: %s: %s", by, why.path, why.what);
    CHECK(why.pid == getpid(), "%s: process %d has won", by, why.pid);
}

static void start(pthread_t *thread, void *(*routine)(void *))
{
    CHECK(pthread_create(thread, NULL, routine, NULL) == 0, "a thread");
}

static void join(pthread_t thread)
{
    CHECK(pthread_join(thread, NULL) == 0, "joining");
}

/* close: the later one. */
static void *closes_later(void *unused)
{
    (void)unused;
    await(1);
    atomic_store(&partner, gettid());
    BEGIN(0);
    second();
    reach(2);
    int closed = close(number), error = errno;
    reach(3);
    await(4);
    CHECK(sys_xend() == 0, "the later one does not commit");
    CHECK(closed == -1 && error == EBADF, "it was closed twice");
    reach(5);
    return NULL;
}

static void scene_close(void)
{
    pthread_t later;
    start(&later, closes_later);
    BEGIN(0);
    second();
    CHECK(close(number) == 0, "closing");
    /* Paused, so that the look at the other one is no part of it. */
    long id = sys_xpause();
    reach(1);
    await(2);
    CHECK(waits_before(3), "the later one does not wait");
    CHECK(sys_xresume(id) == 0, "sys_xresume");
    END();
    CHECK(fcntl(number, F_GETFD) == -1, "it is not closed");
    await(3);
    make("between", "between");
    int fd = open("between", O_RDONLY);
    CHECK(fd >= 0 && fd <= number, "the lowest number");
    if (fd != number)
        CHECK(dup2(fd, number) == number, "dup2");
    reach(4);
    await(5);
    CHECK(letter(number) == 'b', "what was opened in between was closed");
    join(later);
}

static void *closes_at_once(void *unused)
{
    (void)unused;
    int at = number;
    await(1);
    BEGIN(TX_NONBLOCK);
    second();
    close(number);
    lost(at, "closing");
    BEGIN(TX_NONBLOCK);
    close(number);
    lost(at, "closing first");
    reach(2);
    await(3);
    BEGIN(TX_NONBLOCK);
    CHECK(close(number) == -1 && errno == EBADF, "it was closed twice");
    END();
    return NULL;
}

static void scene_close_nonblock(void)
{
    pthread_t later;
    start(&later, closes_at_once);
    BEGIN(0);
    second();
    CHECK(close(number) == 0, "closing");
    reach(1);
    await(2);
    END();
    reach(3);
    join(later);
    CHECK(fcntl(number, F_GETFD) == -1, "it is not closed");
}

static void *uses_at_once(void *unused)
{
    (void)unused;
    int at = number;
    await(1);
    BEGIN(TX_NONBLOCK);
    second();
    CHECK(letter(number) == 0, "it was used, and another one has closed it");
    lost(at, "using");
    BEGIN(TX_NONBLOCK);
    struct stat seen;
    CHECK(fstat(number, &seen) == -1, "it was looked at, and another one has closed it");
    lost(at, "looking");
    reach(2);
    await(3);
    BEGIN(TX_NONBLOCK);
    second();
    CHECK(letter(number) == 0 && errno == EBADF, "it was used, and is closed");
    END();
    /* The other way about. */
    make("second", "second");
    int fd = open("second", O_RDONLY);
    CHECK(fd >= 0 && dup2(fd, number) == number, "opening it again");
    BEGIN(0);
    second();
    CHECK(letter(number) == 's', "using");
    reach(4);
    await(5);
    CHECK(letter(number) == 's', "using it again");
    END();
    return NULL;
}

static void scene_use(void)
{
    pthread_t other;
    int at = number;
    start(&other, uses_at_once);
    BEGIN(0);
    second();
    CHECK(close(number) == 0, "closing");
    reach(1);
    await(2);
    END();
    reach(3);
    await(4);
    BEGIN(TX_NONBLOCK);
    second();
    close(number);
    lost(at, "closing what is used");
    BEGIN(TX_NONBLOCK);
    second();
    CHECK(dup2(1, number) == -1, "it was replaced, and another one uses it");
    lost(at, "replacing what is used");
    BEGIN(TX_NONBLOCK);
    second();
    close_range(number, number, 0);
    lost(at, "closing a range");
    reach(5);
    join(other);
    CHECK(letter(number) == 's', "it is closed");
}

static void *reads_replaced(void *unused)
{
    (void)unused;
    int at = number;
    await(1);
    BEGIN(TX_NONBLOCK);
    second();
    CHECK(letter(number) == 0, "it was used, and another one has replaced it");
    lost(at, "using");
    atomic_store(&partner, gettid());
    BEGIN(0);
    second();
    reach(2);
    char seen = letter(number);
    reach(3);
    END();
    CHECK(seen == 's', "'%c' is there", seen);
    return NULL;
}

static void scene_replace(void)
{
    pthread_t other;
    make("second", "second");
    int fd = open("second", O_RDONLY);
    start(&other, reads_replaced);
    BEGIN(0);
    second();
    CHECK(dup2(fd, number) == number, "dup2");
    CHECK(letter(number) == 's', "what was put there");
    long id = sys_xpause();
    CHECK(letter(number) == 'f', "paused code has the kernel's table");
    reach(1);
    await(2);
    CHECK(waits_before(3), "the other one does not wait");
    CHECK(sys_xresume(id) == 0, "sys_xresume");
    END();
    join(other);
    CHECK(letter(number) == 's', "it was not replaced");
}

static void *changes_flag(void *unused)
{
    (void)unused;
    int at = number;
    await(1);
    BEGIN(TX_NONBLOCK);
    second();
    CHECK(letter(number) == 'f', "using");
    CHECK(fcntl(number, F_SETFD, fcntl(number, F_GETFD)) == 0, "a flag that it has");
    CHECK(fcntl(number, F_SETFD, FD_CLOEXEC) == -1, "another one uses it");
    lost(at, "the flag");
    reach(2);
    return NULL;
}

static void scene_flag(void)
{
    pthread_t other;
    start(&other, changes_flag);
    CHECK(fcntl(number, F_SETFD, 0) == 0, "F_SETFD");
    BEGIN(0);
    second();
    CHECK(letter(number) == 'f', "using");
    reach(1);
    await(2);
    END();
    join(other);
    CHECK(fcntl(number, F_GETFD) == 0, "the flag");
}

static int pair[2];

static void uses_all(void)
{
    struct stat seen;
    CHECK(letter(number) == 'f', "reading");
    CHECK(fstat(pair[0], &seen) == 0 && S_ISSOCK(seen.st_mode), "looking at a socket");
    CHECK(write(1, "", 0) == 0, "writing nothing");
    CHECK(fcntl(2, F_GETFL) >= 0, "asking");
    int copy = dup(number);
    CHECK(copy >= 0 && letter(copy) == 'f' && close(copy) == 0, "a duplicate");
    CHECK(fcntl(200, F_GETFD) == -1 && errno == EBADF, "one that is closed");
}

static void *uses_with_others(void *unused)
{
    (void)unused;
    await(1);
    for (int i = 0; i < 100; i++) {
        BEGIN(TX_NONBLOCK);
        second();
        uses_all();
        END();
    }
    reach(2);
    return NULL;
}

static void scene_reads(void)
{
    pthread_t other;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    start(&other, uses_with_others);
    BEGIN(TX_NONBLOCK);
    second();
    uses_all();
    reach(1);
    await(2);
    uses_all();
    END();
    join(other);
}

static int rounds;

static void *opens_and_closes(void *name)
{
    struct txos_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    char own[16];
    snprintf(own, sizeof own, "own%s", (char *)name);
    make(own, name);
    int kept = open(own, O_RDONLY | O_CLOEXEC);
    CHECK(kept >= 0 && txos_stats(&before) == 0, "opening");
    for (int i = 0; i < rounds; i++) {
        /* Restarted, or lost by a wait that is not allowed, it would be counted. */
        BEGIN(TX_NONBLOCK);
        int fd = open(own, O_RDONLY);
        CHECK(fd >= 0 && letter(fd) == *(char *)name, "opening its own file");
        int ends[2];
        CHECK(pipe(ends) == 0, "pipe");
        CHECK(close(fd) == 0, "closing");
        fd = dup(kept);
        CHECK(fd >= 0 && letter(fd) == *(char *)name, "duplicating");
        CHECK(close(kept) == 0, "closing what was there before");
        CHECK((kept = dup(fd)) >= 0, "opening it anew");
        CHECK(dup2(kept, fd) == fd, "replacing its own");
        CHECK(close(ends[0]) == 0 && close(fd) == 0, "closing");
        if (i % 3 == 0)
            CHECK(close(ends[1]) == 0, "closing");
        END();
        if (i % 3 != 0)
            CHECK(close(ends[1]) == 0, "closing outside");
        CHECK(letter(kept) == *(char *)name, "what was kept");
    }
    CHECK(txos_stats(&after) == 0, "txos_stats");
    CHECK(after.aborted == before.aborted && after.restarted == before.restarted, "aborts");
    CHECK(after.committed - before.committed == (unsigned)rounds, "commits");
    close(kept);
    return NULL;
}

static void scene_others(void)
{
    static char *const names[] = {"1", "2", "3", "4"};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, opens_and_closes, names[i]) == 0, "a thread");
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    /* As few are open as before. */
    int fd = dup(0);
    CHECK(fd < 16, "%d is the lowest number", fd);
}

static atomic_int opened;

static void *guesses(void *unused)
{
    (void)unused;
    for (int i = 0; i < 2; i++) {
        await(4 * i + 1);
        int at = atomic_load(&opened);
        BEGIN(TX_NONBLOCK);
        second();
        CHECK(letter(at) == 0, "what is not committed was read");
        lost(at, "reading");
        BEGIN(TX_NONBLOCK);
        CHECK(letter(at) == 0, "what is not committed was read first");
        lost(at, "reading first");
        BEGIN(TX_NONBLOCK);
        char text[2] = "";
        CHECK(read(at, text, 1) == -1, "what is not committed was read by its offset");
        lost(at, "reading on");
        BEGIN(TX_NONBLOCK);
        CHECK(write(at, "w", 1) == -1, "what is not committed was written");
        lost(at, "writing first");
        BEGIN(TX_NONBLOCK);
        close(at);
        lost(at, "closing");
        reach(4 * i + 2);
        await(4 * i + 3);
        BEGIN(TX_NONBLOCK);
        second();
        CHECK(letter(at) == (i == 0 ? 'n' : 0), "'%c' is there", letter(at));
        END();
        reach(4 * i + 4);
    }
    return NULL;
}

static void scene_fresh(void)
{
    pthread_t other;
    make("new", "new");
    start(&other, guesses);
    /* The only call; then one of several, which is aborted. */
    BEGIN(0);
    int fd = open("new", O_RDWR);
    CHECK(fd >= 0, "opening");
    atomic_store(&opened, fd);
    reach(1);
    await(2);
    END();
    reach(3);
    await(4);
    CHECK(letter(fd) == 'n', "it is not open");
    CHECK(close(fd) == 0, "it was closed");
    BEGIN(0);
    second();
    make("private", "private");
    fd = open("private", O_RDWR);
    CHECK(letter(fd) == 'p', "opening");
    atomic_store(&opened, fd);
    reach(5);
    await(6);
    sys_xabort(1);
    CHECK(letter(fd) == 0, "it is open");
    reach(7);
    await(8);
    join(other);
}

static void *after_the_abort(void *unused)
{
    (void)unused;
    await(1);
    BEGIN(TX_NONBLOCK);
    second();
    CHECK(letter(number) == 'f', "it was not given back");
    CHECK(close(number) == 0, "closing");
    END();
    return NULL;
}

static void scene_aborted(void)
{
    pthread_t other;
    start(&other, after_the_abort);
    BEGIN(0);
    second();
    CHECK(close(number) == 0, "closing");
    int fd = open("first", O_RDONLY);
    CHECK(fd == number, "%d is the lowest number", fd);
    sys_xabort(1);
    reach(1);
    join(other);
    CHECK(letter(number) == 0, "it is open");
}

static void *begins_again(void *unused)
{
    (void)unused;
    static volatile int attempts;
    static char first;
    /* The other one has the higher priority. */
    CHECK(setpriority(PRIO_PROCESS, (id_t)gettid(), 10) == 0, "setpriority");
    BEGIN(TX_RESTART);
    attempts++;
    second();
    char seen = letter(number);
    if (attempts == 1) {
        first = seen;
        reach(1);
        await(2);
        second();
        CHECK(false, "it was not doomed");
    }
    END();
    CHECK(first == 'f' && seen == 0 && attempts == 2, "'%c', '%c', %d", first, seen, attempts);
    return NULL;
}

static void scene_restart(void)
{
    pthread_t other;
    start(&other, begins_again);
    await(1);
    BEGIN(0);
    second();
    CHECK(close(number) == 0, "closing");
    END();
    reach(2);
    join(other);
}

static void *comes_second(void *unused)
{
    (void)unused;
    int at = number;
    CHECK(sys_xbegin(TX_ORDERED, 2) == 0, "sys_xbegin");
    second();
    CHECK(close(number) == 0, "closing");
    reach(1);
    await(2);
    lost(at, "the later turn");
    return NULL;
}

static void scene_order(void)
{
    pthread_t other;
    CHECK(sys_xbegin(TX_ORDER_RESET, 0) == 0, "sys_xbegin");
    END();
    start(&other, comes_second);
    await(1);
    CHECK(sys_xbegin(TX_ORDERED, 1) == 0, "sys_xbegin");
    second();
    CHECK(letter(number) == 'f', "it is closed");
    END();
    reach(2);
    join(other);
    CHECK(letter(number) == 'f', "it is closed");
}

static void *is_born(void *unused)
{
    (void)unused;
    int at = number;
    BEGIN(TX_NONBLOCK);
    second();
    CHECK(letter(number) == 0, "another one has closed it");
    lost(at, "using");
    at = atomic_load(&opened);
    BEGIN(TX_NONBLOCK);
    CHECK(letter(at) == 0, "another one has opened it");
    lost(at, "reading");
    at = pair[0];
    BEGIN(TX_NONBLOCK);
    second();
    close(at);
    lost(at, "closing");
    reach(1);
    return NULL;
}

static void scene_born(void)
{
    pthread_t other;
    struct stat seen;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    BEGIN(0);
    CHECK(fstat(pair[0], &seen) == 0, "using");
    int copy = dup(pair[1]);
    CHECK(copy >= 0, "dup");
    CHECK(close(number) == 0, "closing");
    int fd = open("first", O_RDONLY);
    CHECK(fd == number, "%d is the lowest number", fd);
    fd = open("first", O_RDONLY);
    atomic_store(&opened, fd);
    CHECK(close(number) == 0, "closing");
    start(&other, is_born);
    await(1);
    END();
    join(other);
    CHECK(fcntl(number, F_GETFD) == -1 && letter(fd) == 'f', "the commit");
}

static void scene_paused(void)
{
    int at = number;
    BEGIN(0);
    CHECK(close(number) == 0, "closing");
    int fd = dup(1);
    fd = dup(fd);
    long id = sys_xpause();
    CHECK(letter(number) == 'f', "paused code has the kernel's table");
    BEGIN(TX_NONBLOCK);
    second();
    CHECK(letter(number) == 0, "the paused one has closed it");
    lost(at, "using");
    at = fd;
    BEGIN(TX_NONBLOCK);
    CHECK(fcntl(fd, F_GETFD) == -1, "the paused one has opened it");
    lost(at, "asking");
    CHECK(sys_xresume(id) == 0, "sys_xresume");
    END();
    CHECK(letter(number) == 0 && fcntl(fd, F_GETFD) == 0, "the commit");
}

static void *sees_all_closed(void *unused)
{
    (void)unused;
    await(1);
    BEGIN(0);
    second();
    for (int fd = number + 1; fd < number + 20; fd++)
        CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF, "%d is open", fd);
    reach(2);
    await(3);
    for (int fd = number + 1; fd < number + 20; fd++)
        CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF, "%d is open", fd);
    END();
    return NULL;
}

static void scene_aside(void)
{
    pthread_t other;
    start(&other, sees_all_closed);
    reach(1);
    await(2);
    BEGIN(TX_NONBLOCK);
    second();
    int fd = open("first", O_RDONLY), ends[2];
    CHECK(fd == number + 20 && letter(fd) == 'f', "%d", fd);
    CHECK(pipe2(ends, O_CLOEXEC) == 0 && ends[0] > fd && ends[1] > fd, "%d, %d", ends[0], ends[1]);
    CHECK(fcntl(ends[0], F_GETFD) == FD_CLOEXEC, "the flag");
    int low = fcntl(fd, F_DUPFD, 0);
    CHECK(low > fd, "%d", low);
    END();
    BEGIN(TX_NONBLOCK);
    int only = open("first", O_RDONLY);
    CHECK(only > low, "%d", only);
    END();
    CHECK(letter(fd) == 'f' && letter(only) == 'f' && fcntl(low, F_GETFD) == 0, "the commit");
    reach(3);
    join(other);
}

static void *puts_at(void *unused)
{
    (void)unused;
    int own = open("first", O_RDONLY | O_CLOEXEC), there = open("second", O_RDONLY | O_CLOEXEC);
    for (volatile int i = 0; i < rounds; i++) {
        CHECK(dup2(there, number + 10) == number + 10, "dup2");
        BEGIN(TX_RESTART);
        second();
        CHECK(dup2(own, number + 10) == number + 10, "dup2");
        CHECK(letter(number + 10) == 'f', "it was not put there");
        if (i % 2)
            sys_xabort(1);
        else
            END();
        CHECK(letter(number + 10) == (i % 2 ? 's' : 'f'), "'%c' is there", letter(number + 10));
    }
    reach(1);
    return NULL;
}

static void *opens_many(void *unused)
{
    (void)unused;
    while (atomic_load(&step) < 1) {
        BEGIN(TX_RESTART);
        second();
        int fds[12];
        for (int i = 0; i < 12; i++)
            CHECK((fds[i] = open("second", O_RDONLY)) >= 0, "opening");
        for (int i = 0; i < 12; i++)
            CHECK(letter(fds[i]) == 's', "something else was opened as %d", fds[i]);
        for (int i = 0; i < 12; i++)
            CHECK(close(fds[i]) == 0, "closing");
        END();
    }
    return NULL;
}

static void scene_dup_over(void)
{
    pthread_t one, other;
    make("second", "second");
    /* A number that nobody else is given. */
    CHECK(dup2(number, number + 10) == number + 10, "dup2");
    start(&one, puts_at);
    start(&other, opens_many);
    join(one);
    join(other);
    int fd = dup(0);
    CHECK(fd < 16, "%d is the lowest number", fd);
}

static int open_numbers(void) {
    int count = 0;
    for (int number = 0; number < 1000; number++)
        count += fcntl(number, F_GETFD) >= 0;
    return count;
}

/* Receives what it has sent by a pair of sockets of the transaction: one message, or two at once. */
static void send_and_receive(int several) {
    int ends[2], number;
    char byte, control[2][CMSG_SPACE(sizeof number)];
    struct iovec data = {&byte, 1};
    struct mmsghdr messages[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0, "received");
    for (int i = 0; i < 2; i++) {
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &data, .msg_iovlen = 1, .msg_control = control[i],
                                              .msg_controllen = sizeof control[i]};
        struct cmsghdr *head = CMSG_FIRSTHDR(&messages[i].msg_hdr);
        *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof number), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(head), &ends[i], sizeof number);
        CHECK(sendmsg(ends[0], &messages[i].msg_hdr, 0) == 1, "received");
    }
    if (several)
        CHECK(recvmmsg(ends[1], messages, 2, 0, NULL) == 2, "received");
    else
        CHECK(recvmsg(ends[1], &messages[0].msg_hdr, 0) == 1 && recvmsg(ends[1], &messages[1].msg_hdr, 0) == 1, "received");
    for (int i = 0; i < 2; i++) {
        memcpy(&number, CMSG_DATA(CMSG_FIRSTHDR(&messages[i].msg_hdr)), sizeof number);
        CHECK(fcntl(number, F_GETFD) >= 0 && close(number) == 0, "received");
    }
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0, "received");
}

static void *receives(void *unused) {
    for (int i = 0; i < rounds; i++) {
        CHECK(sys_xbegin(0) == 0, "received");
        send_and_receive(i % 2);
        CHECK(sys_xend() == 0, "received");
    }
    return unused;
}

static void scene_received(void) {
    int ends[2], number, before = open_numbers();
    char byte = 0, control[CMSG_SPACE(sizeof number)];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    CHECK(sys_xbegin(0) == 0, "received");
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0, "received");
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof number), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &ends[0], sizeof number);
    CHECK(sendmsg(ends[0], &message, 0) == 1 && recvmsg(ends[1], &message, 0) == 1, "received");
    sys_xabort(1);
    CHECK(open_numbers() == before, "received");

    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, receives, NULL) == 0, "received");
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0, "received");
}

/* Puts one of two files at the number, and says in a third one which. */
static void *puts_and_says(void *name)
{
    const char *own = name;
    for (volatile int i = 0; i < rounds; i++) {
        BEGIN(TX_RESTART);
        int fd = open(own, O_RDONLY);
        CHECK(fd >= 0 && dup2(fd, number) == number && close(fd) == 0, "putting it there");
        make("said", own);
        END();
    }
    atomic_fetch_add(&step, 1);
    return NULL;
}

static void *compares(void *unused)
{
    (void)unused;
    char said = 0, there = 0;
    for (volatile int i = 0; i < rounds || atomic_load(&step) < 2; i++) {
        BEGIN(TX_RESTART);
        int fd = open("said", O_RDONLY);
        if (i % 2) {
            said = letter(fd);
            there = letter(number);
        } else {
            there = letter(number);
            said = letter(fd);
        }
        CHECK(close(fd) == 0, "closing");
        END();
        CHECK(said == there && said, "'%c' is said, '%c' is there", said, there);
    }
    return NULL;
}

static void scene_agree(void)
{
    static char *const names[] = {"first", "second"};
    pthread_t threads[4];
    make("second", "second");
    make("said", "first");
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, puts_and_says, names[i]) == 0, "a thread");
        start(&threads[2 + i], compares);
    }
    for (int i = 0; i < 4; i++)
        join(threads[i]);
}

static void *holds(void *unused)
{
    (void)unused;
    BEGIN(0);
    second();
    CHECK(close(number) == 0 && open("first", O_RDONLY) >= 0 && dup(1) >= 0, "holding");
    reach(1);
    for (;;)
        sched_yield();
}

static void scene_killed(void)
{
    int status, ends[2];
    char byte;
    CHECK(pipe(ends) == 0, "pipe");
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        pthread_t other;
        start(&other, holds);
        await(1);
        CHECK(write(ends[1], "", 1) == 1, "telling");
        for (;;)
            pause();
    }
    CHECK(read(ends[0], &byte, 1) == 1, "hearing");
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child, "killing");
    /* The process's own are as they were. */
    pthread_t other;
    start(&other, after_the_abort);
    reach(1);
    join(other);
    CHECK(letter(number) == 0, "it is open");
}

static void *ends_within(void *unused)
{
    (void)unused;
    BEGIN(0);
    second();
    CHECK(close(number) == 0, "closing");
    atomic_store(&opened, open("first", O_RDONLY));
    CHECK(atomic_load(&opened) == number, "opening");
    CHECK(dup2(1, 30) == 30, "dup2");
    return NULL;
}

static void scene_exit(void)
{
    pthread_t other;
    start(&other, ends_within);
    join(other);
    BEGIN(TX_NONBLOCK);
    second();
    CHECK(letter(number) == 'f' && close(number) == 0, "it was not given back");
    CHECK(fcntl(30, F_GETFD) == -1 && errno == EBADF, "it is open");
    CHECK(dup2(2, 30) == 30, "dup2");
    END();
    CHECK(letter(number) == 0 && fcntl(30, F_GETFD) == 0, "the commit");
}

static void *does_nothing(void *unused)
{
    return unused;
}

/* Uses six numbers while the test looks at the realm (8 and 9 are its own), in a process that has had as many other threads. */
static void scene_single(void)
{
    char byte;
    int ends[2];
    pthread_t other;
    CHECK(pipe(ends) == 0, "pipe");
    for (int i = 0; i < rounds; i++) {
        start(&other, does_nothing);
        join(other);
    }
    BEGIN(0);
    int copy = dup(ends[0]), next = dup(copy);
    CHECK(copy >= 0 && next >= 0 && close(copy) == 0 && close(ends[0]) == 0, "numbers");
    CHECK(fcntl(ends[1], F_SETFD, FD_CLOEXEC) == 0, "a flag");
    CHECK(fcntl(number, F_GETFD) >= 0, "a file");
    CHECK(write(8, "\n", 1) == 1 && read(9, &byte, 1) == 1, "the test");
    END();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*play)(void);
    } scenes[] = {
        {"close", scene_close},
        {"close-nonblock", scene_close_nonblock},
        {"use", scene_use},
        {"replace", scene_replace},
        {"flag", scene_flag},
        {"reads", scene_reads},
        {"others", scene_others},
        {"fresh", scene_fresh},
        {"aborted", scene_aborted},
        {"restart", scene_restart},
        {"order", scene_order},
        {"born", scene_born},
        {"paused", scene_paused},
        {"aside", scene_aside},
        {"dup-over", scene_dup_over},
        {"agree", scene_agree},
        {"received", scene_received},
        {"killed", scene_killed},
        {"exit", scene_exit},
        {"single", scene_single},
    };
    CHECK(argc > 1, "which scene?");
    rounds = argc > 2 ? atoi(argv[2]) : 0;
    /* What the test's own process has handed down, but for what it means. */
    CHECK(close_range(3, 7, 0) == 0 && close_range(10, 99, 0) == 0, "close_range");
    if (strcmp(argv[1], "single"))
        CHECK(close_range(8, 9, 0) == 0, "close_range");
    make("first", "first");
    number = open("first", O_RDONLY);
    CHECK(number >= 0, "opening");
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (!strcmp(argv[1], scenes[i].name)) {
            scenes[i].play();
            return 0;
        }
    CHECK(false, "there is no scene %s", argv[1]);
}
