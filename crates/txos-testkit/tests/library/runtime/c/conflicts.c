/* conflicts ROLE DIR [ARGUMENT...]
 *
 * Processes that meet in DIR, each in a role:
 *
 *   count N            adds one to "counter", N times
 *   move N ACCOUNTS    moves amounts between accounts, files "0", "1", ..., N times; makes and
 *                      removes accounts' receipts
 *   audit N ACCOUNTS TOTAL   sums all accounts, N times: always TOTAL
 *   send N             natively: puts N letters into "in", one by one
 *   forward N          moves letters from "in" to "out" and counts them in "counter", N letters
 *   shift N FILES      moves files between "in" and "out", by link() and unlink()
 *   shift-plain N FILES   the same by rename(), or puts others in their places, without transactions
 *   roll-call N FILES  counts the files in "in" and "out"
 *   append N BYTE      adds N times BYTE to "log"
 *   append-plain N BYTE   the same without transactions
 *   order N            N processes append the numbers of their turns to "log", ten turns each
 *   order-looks        turns of one call each
 *   nonblock           two processes: one holds "counter", the other may not wait
 *   doomed             an outsider changes what was read
 *   passing            an outsider's name comes between two listings, and goes
 *   named              another one wins, and what this has lost by is said
 *   errors             what functions answer outside of transactions
 *   strict             TX_STRICT, and a call that can't be undone
 *   pause              what is done between sys_xpause and sys_xresume is not part of it
 *   nested             one within another is part of it
 *
 * Exits with 0 if all was well, else says what was not.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "raw.h"

static void fail(const char *format, ...)
{
    int error = errno;
    char why[1024] = "";
    if (txos_strerror)
        snprintf(why, sizeof why, "%s", txos_strerror());
    /* What is said in a transaction is part of it. */
    bool within = txos_in_transaction && txos_in_transaction();
    if (within)
        sys_xabort(1);
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "%s (%s; %s)\n", within ? " within a transaction" : "", strerrorname_np(error),
            why);
    exit(1);
}

#define CHECK(condition, ...) \
    do {                      \
        if (!(condition))     \
            fail(__VA_ARGS__); \
    } while (0)

static long number_in(const char *name)
{
    char text[32] = "";
    int fd = open(name, O_RDONLY);
    CHECK(fd >= 0, "opening %s", name);
    CHECK(read(fd, text, sizeof text - 1) > 0, "reading %s", name);
    close(fd);
    return strtol(text, NULL, 10);
}

static void put(const char *name, long number)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", number);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0, "opening %s", name);
    CHECK(write(fd, text, (size_t)n) == n, "writing %s", name);
    close(fd);
}

/* Not a function: a restart returns into the frame that called sys_xbegin(). */
#define BEGIN(flags) CHECK(sys_xbegin(flags) >= 0, "sys_xbegin")

static void end(void)
{
    CHECK(sys_xend() == 0, "sys_xend");
}

static uint64_t random_state;

static unsigned below(unsigned n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state % n);
}

static void count(long n)
{
    /* Written between sys_xbegin() and a restart, so not in a register. */
    for (volatile long i = 0; i < n; i++) {
        BEGIN(TX_RESTART);
        put("counter", number_in("counter") + 1);
        end();
    }
}

static void move(long n, long accounts)
{
    for (volatile long i = 0; i < n; i++) {
        char from[32], to[32], receipt[64];
        unsigned a = below((unsigned)accounts), b = below((unsigned)accounts);
        long amount = (long)below(100);
        snprintf(from, sizeof from, "%u", a);
        snprintf(to, sizeof to, "%u", b);
        snprintf(receipt, sizeof receipt, "receipt-%d-%ld", getpid(), i % 4);
        if (a == b)
            continue;
        BEGIN(TX_RESTART);
        put(from, number_in(from) - amount);
        put(to, number_in(to) + amount);
        if (access(receipt, F_OK) == 0)
            CHECK(unlink(receipt) == 0, "removing %s", receipt);
        else
            put(receipt, amount);
        end();
    }
}

static void audit(long n, long accounts, long total)
{
    for (volatile long i = 0; i < n; i++) {
        BEGIN(TX_RESTART);
        long sum = 0;
        for (long a = 0; a < accounts; a++) {
            char name[32];
            snprintf(name, sizeof name, "%ld", a);
            sum += number_in(name);
        }
        end();
        CHECK(sum == total, "the sum was %ld, not %ld", sum, total);
    }
}

static const char *const rooms[] = {"in", "out"};

static void shift(long n, long files)
{
    for (volatile long i = 0; i < n; i++) {
        char here[64], there[64];
        unsigned file = below((unsigned)files), room = below(2);
        snprintf(here, sizeof here, "%s/%u", rooms[room], file);
        snprintf(there, sizeof there, "%s/%u", rooms[!room], file);
        volatile int refused = 0;
        BEGIN(TX_RESTART);
        refused = 0;
        /* Where it is not, there is nothing to move. */
        if (link(here, there) != 0)
            refused = errno;
        else if (unlink(here) != 0)
            refused = errno;
        end();
        /* In both places it can't have been, but for one who does not commit. */
        CHECK(!refused || refused == ENOENT, "moving %s: %s", here, strerror(refused));
    }
}

static void shift_plain(long n, long files)
{
    for (long i = 0; i < n; i++) {
        char here[64], there[64], made[64];
        unsigned file = below((unsigned)files), room = below(2);
        snprintf(here, sizeof here, "%s/%u", rooms[room], file);
        snprintf(there, sizeof there, "%s/%u", rooms[!room], file);
        snprintf(made, sizeof made, "made-%d", getpid());
        if (below(2)) {
            CHECK(rename(here, there) == 0 || errno == ENOENT, "moving %s", here);
            continue;
        }
        /* Another one with this name, where it is now. */
        put(made, file);
        if (syscall(SYS_renameat2, AT_FDCWD, made, AT_FDCWD, here, 2 /* RENAME_EXCHANGE */) != 0)
            CHECK(errno == ENOENT, "exchanging %s", here);
        CHECK(unlink(made) == 0, "removing %s", made);
    }
}

static void roll_call(long n, long files)
{
    for (volatile long i = 0; i < n; i++) {
        volatile long found = 0;
        BEGIN(TX_RESTART);
        found = 0;
        for (int room = 0; room < 2; room++) {
            DIR *dir = opendir(rooms[room]);
            CHECK(dir, "opening %s", rooms[room]);
            for (struct dirent *entry; (entry = readdir(dir));)
                found += entry->d_name[0] != '.';
            closedir(dir);
        }
        end();
        CHECK(found == files, "%ld files, not %ld", found, files);
    }
}

static void send_letters(long n)
{
    for (long i = 0; i < n; i++) {
        char made[64], letter[64];
        snprintf(made, sizeof made, "made-%ld", i);
        snprintf(letter, sizeof letter, "in/%ld", i);
        put(made, i);
        CHECK(rename(made, letter) == 0, "sending %s", letter);
    }
}

static void forward(long n)
{
    volatile long done = 0;
    while (done < n) {
        volatile long these = 0;
        BEGIN(TX_RESTART);
        these = 0;
        DIR *dir = opendir("in");
        CHECK(dir, "opening in");
        struct dirent *entry;
        while ((entry = readdir(dir)) && these < 5) {
            char from[300], to[300];
            if (entry->d_name[0] == '.')
                continue;
            snprintf(from, sizeof from, "in/%s", entry->d_name);
            snprintf(to, sizeof to, "out/%s", entry->d_name);
            CHECK(number_in(from) == atol(entry->d_name), "letter %s", entry->d_name);
            CHECK(rename(from, to) == 0, "moving %s", from);
            these++;
        }
        closedir(dir);
        put("counter", number_in("counter") + these);
        end();
        done += these;
    }
}

static void append(long n, char byte, bool transaction)
{
    for (volatile long i = 0; i < n; i++) {
        if (transaction)
            BEGIN(TX_RESTART);
        int fd = open("log", O_WRONLY | O_APPEND);
        CHECK(fd >= 0, "opening log");
        CHECK(write(fd, &byte, 1) == 1, "writing log");
        close(fd);
        if (transaction)
            end();
    }
}

/* --- In order --------------------------------------------------------------------------------- */

static void order(long processes)
{
    /* Started in the wrong order, in one process group, which the sequence belongs to. */
    setpgid(0, 0);
    CHECK(sys_xbegin(TX_ORDERED | TX_ORDER_RESET, (uint64_t)1000) >= 0, "sys_xbegin");
    end();
    for (long p = processes - 1; p >= 0; p--) {
        pid_t pid = fork();
        CHECK(pid >= 0, "fork");
        if (pid > 0)
            continue;
        for (volatile long turn = 0; turn < 10; turn++) {
            char line[32];
            uint64_t number = (uint64_t)(1001 + turn * processes + p);
            int n = snprintf(line, sizeof line, "%lu\n", (unsigned long)number);
            CHECK(sys_xbegin(TX_ORDERED | TX_RESTART, number) >= 0, "sys_xbegin %s", line);
            int fd = open("log", O_WRONLY | O_APPEND | O_CREAT, 0644);
            CHECK(write(fd, line, (size_t)n) == n, "writing log");
            close(fd);
            end();
        }
        exit(0);
    }
    int status;
    while (wait(&status) > 0)
        CHECK(status == 0, "a child ended with %x", status);
}

static void order_looks(void)
{
    struct stat seen;
    char text[8];
    CHECK(sys_xbegin(TX_ORDER_RESET, (uint64_t)2000) >= 0, "sys_xbegin");
    end();
    int before = open("counter", O_RDONLY);
    for (uint64_t turn = 2001; turn <= 2004; turn++) {
        /* The turn before is over, or this one would have to wait. */
        CHECK(sys_xbegin(TX_ORDERED | TX_NONBLOCK, turn) >= 0, "sys_xbegin %lu", turn);
        if (turn == 2001)
            CHECK(stat("counter", &seen) == 0, "looking");
        if (turn == 2002)
            CHECK(pread(before, text, sizeof text, 0) > 0, "reading");
        if (turn == 2003)
            CHECK(open("counter", O_RDONLY) >= 0, "opening");
        end();
    }
}

/* --- Two that meet ---------------------------------------------------------------------------- */

static atomic_int *stage;

static void reach(int n)
{
    atomic_store(stage, n);
}

/* Without a system call that could be part of a transaction. */
static void await(int n)
{
    while (atomic_load(stage) < n)
        ;
}

static pid_t other(void (*run)(void))
{
    stage = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    CHECK(pid >= 0 && stage != MAP_FAILED, "fork");
    if (pid == 0) {
        run();
        exit(0);
    }
    return pid;
}

static void joined(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the other one: %x", status);
}

static void expect_abort(unsigned reason, pid_t winner, const char *path)
{
    struct txos_abort why = { .size = sizeof why };
    CHECK(txos_abort_reason(&why) == 0, "txos_abort_reason");
    CHECK(why.reason == reason, "reason %u, not %u: %s", why.reason, reason, why.what);
    CHECK(why.what[0] != 0, "no words");
    CHECK(why.error != 0, "no error");
    CHECK(!winner || why.pid == winner, "%d won, not %d: %s", why.pid, winner, why.what);
    size_t n = strlen(why.path), m = strlen(path);
    CHECK(n >= m && strcmp(why.path + n - m, path) == 0, "path \"%s\", not %s: %s", why.path, path,
          why.what);
}

static void holder(void)
{
    BEGIN(0);
    put("counter", 77);
    reach(1);
    await(2);
    end();
}

static void nonblock(void)
{
    pid_t pid = other(holder);
    await(1);
    BEGIN(TX_NONBLOCK);
    int fd = open("counter", O_RDONLY);
    char byte;
    if (fd >= 0) {
        (void)!read(fd, &byte, 1);
        close(fd);
    }
    CHECK(sys_xend() == -1, "it may not wait, and yet it got through");
    expect_abort(TXOS_CONFLICT, pid, "counter");
    reach(2);
    joined(pid);
    CHECK(number_in("counter") == 77, "the holder has not committed");
}

/* In a transaction: opens the counter, and waits for the other one. */
static int opens_and_waits(void)
{
    BEGIN(0);
    /* A transaction of one call is not in anybody's way yet. */
    CHECK(access("counter", F_OK) == 0 && access("none", F_OK) == -1, "access");
    int fd = open("counter", O_RDONLY);
    CHECK(fd >= 0, "open");
    reach(1);
    await(2);
    return fd;
}

/* It has opened the counter, and reads it when the other one has lost. */
static void holds_what_it_opened(void)
{
    int fd = opens_and_waits();
    char byte;
    CHECK(read(fd, &byte, 1) == 1 && byte == '1', "it reads %c", byte);
    close(fd);
    end();
}

static void opened(void)
{
    pid_t pid = other(holds_what_it_opened);
    await(1);
    BEGIN(TX_NONBLOCK);
    int fd = open("counter", O_WRONLY);
    if (fd >= 0) {
        (void)!pwrite(fd, "9", 1, 0);
        close(fd);
    }
    CHECK(sys_xend() == -1, "it changes what another transaction has opened to read");
    expect_abort(TXOS_CONFLICT, pid, "counter");
    reach(2);
    joined(pid);
    CHECK(number_in("counter") == 1, "the one that lost has changed it");
}

/* A native process: what it runs is not linked with the library. */
static void natively(const char *script)
{
    int status = system(script);
    CHECK(status == 0, "%s: %x", script, status);
}

/* The same when the other one has come to its first stage. */
static void in_turn(const char *script)
{
    await(1);
    natively(script);
    reach(2);
}

static void outsider_writes(void)
{
    in_turn("LD_PRELOAD= ; echo 500 > counter");
}

/* An outsider writes to the very file between its opening and its first read. */
static void opened_before(void)
{
    pid_t pid = other(outsider_writes);
    int fd = opens_and_waits();
    char byte;
    (void)!read(fd, &byte, 1);
    close(fd);
    CHECK(sys_xend() == -1, "it has read another version than it opened, and is committed");
    expect_abort(TXOS_CONFLICT, 0, "counter");
    joined(pid);
    CHECK(number_in("counter") == 500, "the outsider's number is gone");
}

static void outsider_changes(void)
{
    in_turn("LD_PRELOAD= ; echo 500 > new; mv new counter");
}

static void doomed(void)
{
    pid_t pid = other(outsider_changes);
    BEGIN(0);
    long number = number_in("counter");
    reach(1);
    await(2);
    /* Either it is told at once, or it goes on seeing what it saw. */
    int fd = open("counter", O_RDONLY);
    CHECK(fd >= 0 || errno == ECANCELED, "opening what an outsider has replaced");
    if (fd >= 0)
        CHECK(number_in("counter") == number, "a read was not repeated");
    fd = open("result", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 || errno == ECANCELED, "a call in a doomed transaction");
    errno = 0;
    CHECK(sys_xend() == -1 && errno == ECANCELED, "sys_xend after an outsider's change");
    expect_abort(TXOS_CONFLICT, 0, "counter");
    CHECK(access("result", F_OK) != 0, "an aborted transaction has left something");
    CHECK(number_in("counter") == 500, "the outsider's change is gone");
    joined(pid);
}

/* How many names there are in "hall"; -1 with errno. */
static int names_in_hall(void)
{
    DIR *dir = opendir("hall");
    if (!dir)
        return -1;
    int count = 0;
    for (errno = 0; readdir(dir); errno = 0)
        count++;
    int error = errno;
    closedir(dir);
    errno = error;
    return error ? -1 : count;
}

static void outsider_passes(void)
{
    await(1);
    natively("LD_PRELOAD= ; : > hall/somebody");
    reach(2);
    await(3);
    natively("LD_PRELOAD= ; rm hall/somebody");
    reach(4);
}

/* When it commits, nobody is there whom the second listing could have shown. */
static void passing(void)
{
    pid_t pid = other(outsider_passes);
    BEGIN(0);
    int first = names_in_hall();
    CHECK(first > 0, "the first listing");
    reach(1);
    await(2);
    int second = names_in_hall();
    CHECK(second == first || (second == -1 && errno == ECANCELED), "%d names, then %d: %s", first,
          second, strerror(errno));
    int fd = open("result", O_WRONLY | O_CREAT, 0644);
    if (fd >= 0)
        close(fd);
    reach(3);
    await(4);
    int ended = sys_xend();
    CHECK((ended == 0) == (second == first), "sys_xend gave %d after listings of %d and %d", ended,
          first, second);
    if (ended != 0)
        expect_abort(TXOS_CONFLICT, 0, "hall");
    CHECK((access("result", F_OK) == 0) == (ended == 0), "half an end");
    joined(pid);
}

/* Another one, of higher priority, wants what this has looked at, and nothing else. */
static void takes_counter(void)
{
    await(1);
    BEGIN(0);
    put("counter", 77);
    end();
    reach(2);
}

/* What it has lost by is named, not what it wanted next. */
static void named(void)
{
    for (volatile int way = 0; way < 2; way++) {
        pid_t pid = other(takes_counter);
        /* The other one has the priority that this one had before. */
        CHECK(setpriority(PRIO_PROCESS, 0, 5 * (way + 1)) == 0, "setpriority");
        BEGIN(0);
        if (way == 0)
            CHECK(number_in("counter") >= 0, "reading");
        else
            put("counter", 5);
        reach(1);
        await(2);
        int fd = open("result", O_WRONLY | O_CREAT, 0644);
        CHECK(fd == -1 && errno == ECANCELED, "a call of one that has lost (%d)", way);
        CHECK(sys_xend() == -1 && errno == ECANCELED, "sys_xend of one that has lost");
        struct txos_abort why = { .size = sizeof why };
        CHECK(txos_abort_reason(&why) == 0 && !strstr(why.what, "result"), "%s", why.what);
        expect_abort(TXOS_CONFLICT, pid, "counter");
        joined(pid);
        CHECK(number_in("counter") == 77, "the winner's is gone");
    }
}

static void errors(void)
{
    struct txos_abort why = { .size = 8 };
    struct txos_stats stats = { .size = sizeof stats };
    errno = 0;
    CHECK(sys_xend() == -1 && errno != 0, "sys_xend without a transaction");
    CHECK(txos_strerror()[0] != 0, "no words");
    errno = 0;
    CHECK(sys_xpause() == -1 && errno != 0, "sys_xpause without a transaction");
    errno = 0;
    CHECK(sys_xresume(12345) == -1 && errno != 0, "sys_xresume of nothing");
    errno = 0;
    CHECK(sys_xbegin(1 << 20) == -1 && errno == EINVAL, "an unknown flag");
    errno = 0;
    CHECK(sys_xbegin(TX_CHECKPOINT | TX_MANAGED) == -1 && errno == EINVAL, "TX_CHECKPOINT");
    errno = 0;
    CHECK(txos_abort_reason(&why) == -1 && errno == EINVAL, "a size that is too small");
    CHECK(txos_abort_reason(NULL) == -1 && errno == EINVAL, "no place");
    CHECK(!txos_in_transaction(), "in a transaction");
    sys_xabort(1);
    BEGIN(0);
    CHECK(txos_in_transaction(), "not in a transaction");
    sys_xabort(1);
    CHECK(!txos_in_transaction(), "in a transaction after its abort");
    expect_abort(TXOS_ASKED, 0, "");
    CHECK(txos_stats(&stats) == 0, "txos_stats");
    CHECK(stats.version == 1 && stats.begun == 1 && stats.aborted == 1 && stats.committed == 0,
          "begun %lu aborted %lu", (unsigned long)stats.begun, (unsigned long)stats.aborted);
    BEGIN(TX_RESTART);
    put("counter", 3);
    end();
    CHECK(txos_stats(&stats) == 0 && stats.committed == 1 && stats.calls >= 3, "statistics");
    /* With TX_RESTART an abort begins it again, unless it is told not to. */
    volatile int attempts = 0;
    int attempt = sys_xbegin(TX_RESTART);
    CHECK(attempt == attempts, "attempt %d is told as %d", attempts, attempt);
    put("counter", 4 + attempt);
    attempts++;
    if (attempts < 4)
        sys_xabort(0);
    end();
    CHECK(attempts == 4 && number_in("counter") == 7, "%d attempts", attempts);
}

static void strict(void)
{
    BEGIN(TX_STRICT);
    put("counter", 9);
    errno = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK(pid == -1, "fork in a strict transaction gave %d", pid);
    CHECK(sys_xend() == -1, "a strict transaction with a fork was committed");
    expect_abort(TXOS_UNSUPPORTED, 0, "");
    CHECK(number_in("counter") != 9, "an aborted transaction has left something");
    CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD, "there is a child");
}

static void pauses(void)
{
    BEGIN(0);
    put("counter", 10);
    long id = sys_xpause();
    CHECK(id != -1, "sys_xpause");
    CHECK(number_in("counter") != 10, "paused, it sees what is not committed");
    put("outside", 1);
    CHECK(sys_xresume(id) == 0, "sys_xresume");
    CHECK(number_in("counter") == 10, "resumed, it does not see its own");
    sys_xabort(1);
    CHECK(number_in("outside") == 1, "what was done in a pause is gone");
    CHECK(number_in("counter") != 10, "aborted, and yet there");

    BEGIN(0);
    put("counter", 11);
    id = sys_xpause();
    CHECK(id != -1, "sys_xpause");
    CHECK(sys_xresume(id) == 0, "sys_xresume");
    end();
    CHECK(number_in("counter") == 11, "committed after a pause");
}

static void nested(void)
{
    BEGIN(0);
    put("counter", 20);
    BEGIN(0);
    put("result", 21);
    end();
    long id = sys_xpause();
    CHECK(access("result", F_OK) != 0, "the inner one was committed alone");
    CHECK(sys_xresume(id) == 0, "sys_xresume");
    end();
    CHECK(number_in("counter") == 20 && number_in("result") == 21, "committed with the outer one");
    BEGIN(0);
    BEGIN(0);
    put("counter", 22);
    sys_xabort(1);
    CHECK(!txos_in_transaction(), "an abort within a nested one leaves the outer one");
    CHECK(number_in("counter") == 20, "an aborted one has left something");
}

int main(int argc, char **argv)
{
    if (argc < 3 || chdir(argv[2]) != 0)
        return 2;
    const char *role = argv[1];
    long n = argc > 3 ? atol(argv[3]) : 0, second = argc > 4 ? atol(argv[4]) : 0;
    random_state = 88172645463325252u * (uint64_t)getpid() + 1;
    if (strcmp(role, "count") == 0)
        count(n);
    else if (strcmp(role, "move") == 0)
        move(n, second);
    else if (strcmp(role, "audit") == 0 && argc > 5)
        audit(n, second, atol(argv[5]));
    else if (strcmp(role, "shift") == 0)
        shift(n, second);
    else if (strcmp(role, "shift-plain") == 0)
        shift_plain(n, second);
    else if (strcmp(role, "roll-call") == 0)
        roll_call(n, second);
    else if (strcmp(role, "send") == 0)
        send_letters(n);
    else if (strcmp(role, "forward") == 0)
        forward(n);
    else if (strcmp(role, "append") == 0 && argc > 4)
        append(n, argv[4][0], true);
    else if (strcmp(role, "append-plain") == 0 && argc > 4)
        append(n, argv[4][0], false);
    else if (strcmp(role, "order") == 0)
        order(n);
    else if (strcmp(role, "order-looks") == 0)
        order_looks();
    else if (strcmp(role, "nonblock") == 0)
        nonblock();
    else if (strcmp(role, "opened") == 0)
        opened();
    else if (strcmp(role, "opened-before") == 0)
        opened_before();
    else if (strcmp(role, "passing") == 0)
        passing();
    else if (strcmp(role, "doomed") == 0)
        doomed();
    else if (strcmp(role, "named") == 0)
        named();
    else if (strcmp(role, "errors") == 0)
        errors();
    else if (strcmp(role, "strict") == 0)
        strict();
    else if (strcmp(role, "pause") == 0)
        pauses();
    else if (strcmp(role, "nested") == 0)
        nested();
    else
        return 2;
    return 0;
}
