/* messages SEED COMMITS KILLS SECONDS
 *
 * Threads of several processes make transactions that take messages from outside, count in files, and send messages and signals
 * outside that say what they have counted. This process is the outside: it feeds them, reads what they send, kills some of them, and
 * puts others in their place. What must hold:
 *
 * - A transaction counts a cell up: no two committed ones make the same number of it. So a number that two messages of
 *   different transactions tell, or that the cell has not reached, is a message of one that was aborted.
 * - The messages of a thread are numbered in a file that the transaction writes: each one that committed arrives once, in
 *   order. Killed, those of its last transaction may be missing from any on.
 * - What comes from outside is numbered as well, and how far it was taken is in the same file: nothing is lost, and nothing comes
 *   twice, but for what a process that was killed right after its commit had not taken yet.
 * - A signal comes after the first message of its transaction, once, and never without it.
 * - Signals to the processes themselves are handled outside of transactions, each once.
 * - Some transactions take another group for their work. What they make is of that group, and no thread has it outside of them.
 *
 * Ends with 0 if all of that held, with 1 if not, and says which.
 */
#define _GNU_SOURCE
#include "ends.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

enum {
    WORKERS = 3, /* processes: the first has one thread, the others two */
    LINES = 5,   /* threads, each with a line to the outside and one from there */
    CELLS = 3,
    MOST = 1 << 15,
    MESSAGES_MAX = 3,
    GROUP = 64997, /* nobody's */
    AHEAD = 24, /* so many messages are underway to a thread, at most */
};

static const int worker_of[LINES] = {0, 1, 1, 2, 2};

/* What goes outside. */
struct message {
    uint64_t number;
    uint32_t line, cell;
    uint64_t value;
    uint8_t i, of, signals, big;
    uint32_t seen; /* how many were taken from outside by then */
};

/* What the file of a line has. */
struct record {
    uint64_t taken, sent, transactions;
};

struct line {
    int number;
    enum kind in_kind, out_kind;
    int in[2], out[2];
    uint64_t random;
};

static struct line lines[LINES];
static pid_t outside;

/* Memory that nothing puts back. */
static struct {
    volatile int stop;
    volatile uint64_t taken[LINES], commits[LINES], aborts[LINES], again[LINES], attempts[LINES], restarts[LINES], grouped[LINES];
    volatile int killed[WORKERS], ready[WORKERS], handled[WORKERS], inside[WORKERS];
} *shared;

static uint64_t next(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static uint64_t below(uint64_t *state, uint64_t n) {
    return next(state) % n;
}

/* --- The transactions -------------------------------------------------------------------------- */

/* What fails because the transaction has lost is no error. */
#define TRY(what)                                                                                  \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            int error = errno;                                                                     \
            if (error == ECANCELED)                                                                \
                return 0;                                                                          \
            fprintf(stderr, "line %d: %s (errno %d; %s)\n", line->number, #what, error, txos_strerror()); \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void path_of(char *path, const char *what, int n) {
    sprintf(path, "%s-%d", what, n);
}

/* The thread's own, past the C library, which would change those of all threads. */
static gid_t group(void) {
    return (gid_t)syscall(SYS_getegid);
}

static int take_group(gid_t group) {
    return syscall(SYS_setresgid, -1, group, -1) == 0;
}

/* In place, or a new file instead of the old one. */
static int put(struct line *line, const char *path, int instead, const void *bytes, size_t size) {
    char other[64];
    sprintf(other, "temporary-%d", line->number);
    int fd = instead ? open(other, O_WRONLY | O_CREAT | O_EXCL, 0600) : open(path, O_WRONLY);
    TRY(fd >= 0);
    if (instead) {
        struct stat made;
        TRY(fstat(fd, &made) == 0);
        if (made.st_gid != group()) {
            fprintf(stderr, "line %d: a file of group %u was made by group %u\n", line->number, made.st_gid, group());
            _exit(1);
        }
    }
    TRY(pwrite(fd, bytes, size, 0) == (ssize_t)size);
    TRY(close(fd) == 0);
    TRY(!instead || rename(other, path) == 0);
    return 1;
}

static int get(struct line *line, const char *path, void *bytes, size_t size) {
    int fd = open(path, O_RDONLY);
    TRY(fd >= 0);
    TRY(pread(fd, bytes, size, 0) == (ssize_t)size);
    TRY(close(fd) == 0);
    return 1;
}

static char padding[70000];

static int say(struct line *line, const struct message *message) {
    if (!message->big) {
        TRY(write(line->out[1], message, sizeof *message) == sizeof *message);
        return 1;
    }
    struct iovec parts[2] = {{(void *)message, sizeof *message}, {padding, sizeof padding}};
    struct msghdr all = {.msg_iov = parts, .msg_iovlen = 2};
    TRY(sendmsg(line->out[1], &all, 0) == (ssize_t)(sizeof *message + sizeof padding));
    return 1;
}

static int in_group(uint64_t dice) {
    return (dice >> 44 & 7) == 0;
}

/* Within the transaction. 1: all is done; 0: it has lost. */
static int work(struct line *line, uint64_t dice) {
    char own[32], cell[32];
    struct record record;
    uint64_t number, value;
    int c = (int)(dice % CELLS), messages = 1 + (int)(dice / 8 % MESSAGES_MAX), takes = (int)(dice / 64 % 3);
    path_of(own, "line", line->number);
    path_of(cell, "cell", c);
    TRY(get(line, own, &record, sizeof record));
    TRY(!in_group(dice) || take_group(GROUP));
    for (int i = 0; i < takes; i++) {
        ssize_t n = recv(line->in[0], &number, sizeof number, MSG_DONTWAIT);
        if (n == -1 && errno == EAGAIN)
            break;
        TRY(n == sizeof number);
        if (number <= record.taken && shared->killed[worker_of[line->number]]) {
            shared->again[line->number]++;
            continue;
        }
        if (number != record.taken + 1) {
            fprintf(stderr, "line %d (%s): %llu came after %llu\n", line->number, kind_names[line->in_kind],
                    (unsigned long long)number, (unsigned long long)record.taken);
            _exit(1);
        }
        record.taken = number;
    }
    if (!get(line, cell, &value, sizeof value))
        return 0;
    value++;
    struct message message = {.line = (uint32_t)line->number, .cell = (uint32_t)c, .value = value, .of = (uint8_t)messages,
                              .signals = dice / 512 % 4 == 0, .seen = (uint32_t)record.taken};
    for (int i = 0; i < messages; i++) {
        message.i = (uint8_t)i;
        message.number = ++record.sent;
        message.big = dice / 4096 % 32 == 0 && i == 1 && (line->out_kind == UNIX_STREAM || line->out_kind == TCP);
        if (!say(line, &message))
            return 0;
        if (i == 0 && message.signals) {
            int told = line->number << 24 | (int)(message.number & 0xffffff);
            TRY(sigqueue(outside, SIGRTMIN, (union sigval){.sival_int = told}) == 0);
        }
        if (i == 0 && !put(line, cell, dice / (1 << 18) % 4 == 0, &value, sizeof value))
            return 0;
    }
    record.transactions++;
    return put(line, own, dice / (1 << 20) % 4 == 0, &record, sizeof record);
}

/* At the begin and at the end. */
static void is_no_group(int number) {
    int error = errno;
    if (group() != 0) {
        fprintf(stderr, "line %d: a thread has group %u outside of its transaction\n", number, group());
        _exit(1);
    }
    errno = error;
}

static void attempt(struct line *line, int alone) {
    static const int flags_of[] = {0, 0, TX_RESTART, TX_RESTART, TX_NONBLOCK, TX_RESTART | TX_NONBLOCK, TX_DURABLE, TX_RESTART};
    int number = line->number;
    uint64_t dice = next(&line->random);
    int flags = flags_of[dice >> 32 & 7], fate = (int)(dice >> 36 & 15);
    if (alone && dice >> 41 & 1)
        flags |= TX_CHECKPOINT;
    shared->attempts[number] = 0;
    int begun = sys_xbegin(flags);
    if (begun == -1 && errno == ECANCELED && flags & TX_CHECKPOINT) {
        is_no_group(number);
        shared->aborts[number]++;
        return;
    }
    CHECK(begun >= 0);
    if (shared->attempts[number]++)
        shared->restarts[number]++;
    is_no_group(number);
    int done = work(line, dice);
    if (done && fate == 0) {
        shared->aborts[number]++;
        sys_xabort(1);
        is_no_group(number);
        return;
    }
    if (done && fate <= 3 && shared->attempts[number] == 1)
        ioctl(-1, LOSE);
    if (done && in_group(dice) && take_group(0))
        shared->grouped[number]++;
    int ended = sys_xend();
    is_no_group(number);
    if (ended == 0) {
        shared->commits[number]++;
        struct record record;
        /* What was taken by now; another one's commits in between only add to it. */
        char own[32];
        path_of(own, "line", number);
        int fd = open(own, O_RDONLY);
        if (fd >= 0 && pread(fd, &record, sizeof record, 0) == sizeof record)
            shared->taken[number] = record.taken;
        close(fd);
    } else {
        CHECK(errno == ECANCELED);
        shared->aborts[number]++;
    }
}

static int own_worker;

static void handle(int signal_, siginfo_t *info, void *context) {
    (void)signal_, (void)info, (void)context;
    if (txos_in_transaction())
        __sync_fetch_and_add(&shared->inside[own_worker], 1);
    __sync_fetch_and_add(&shared->handled[own_worker], 1);
}

static int threads_of(int worker) {
    return worker == 0 ? 1 : 2;
}

static void *lead(void *line_) {
    struct line *line = line_;
    while (!shared->stop)
        attempt(line, threads_of(own_worker) == 1);
    return NULL;
}

_Noreturn static void be_worker(int worker) {
    alarm(200);
    own_worker = worker;
    for (int i = 0; i < LINES; i++) {
        close(lines[i].in[1]), close(lines[i].out[0]);
        if (worker_of[i] != worker)
            close(lines[i].in[0]), close(lines[i].out[1]);
        else
            /* Who was killed may have left it: docs/runtime.md, "What is received from sockets". */
            CHECK(setsockopt(lines[i].in[0], SOL_SOCKET, SO_PEEK_OFF, &(int){-1}, sizeof(int)) == 0);
    }
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGRTMIN + 1, &action, NULL) == 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
    shared->ready[worker] = 1;
    pthread_t other;
    struct line *first = NULL, *second = NULL;
    for (int i = LINES - 1; i >= 0; i--)
        if (worker_of[i] == worker)
            second = first, first = &lines[i];
    if (second)
        CHECK(pthread_create(&other, NULL, lead, second) == 0);
    lead(first);
    if (second)
        CHECK(pthread_join(other, NULL) == 0);
    exit(0);
}

/* --- The outside ----------------------------------------------------------------------------------- */

static struct outside_line {
    uint64_t fed, had; /* the number of the last message, each way */
    uint64_t last_signal;
    struct message last;
    uint64_t gaps, missing;
    size_t len; /* what has come of the next message */
    char part[sizeof(struct message) + sizeof padding];
} out[LINES];

static struct {
    int line; /* and 1; 0: nobody */
    uint64_t first;
} tellers[CELLS][MOST];

static uint8_t signaled[LINES][MOST * MESSAGES_MAX], told[LINES][MOST * MESSAGES_MAX];
static uint64_t messages, signals_;
static int violations;

#define HOLDS(what, ...)                                                                           \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            if (violations++ < 10) {                                                               \
                fprintf(stderr, "violation: ");                                                    \
                fprintf(stderr, __VA_ARGS__);                                                      \
                fprintf(stderr, "\n");                                                             \
            }                                                                                      \
        }                                                                                          \
    } while (0)

typedef unsigned long long ull;

static int killed_of(int line) {
    return shared->killed[worker_of[line]];
}

static void take_message(int i, const struct message *m) {
    struct outside_line *l = &out[i];
    messages++;
    HOLDS(m->line == (uint32_t)i && m->cell < CELLS && m->value < MOST && m->number < MOST * MESSAGES_MAX && m->i < m->of,
          "line %d: nonsense", i);
    if (violations)
        return;
    HOLDS(m->number > l->had, "line %d (%s): message %llu arrived after %llu", i, kind_names[lines[i].out_kind],
          (ull)m->number, (ull)l->had);
    if (m->number > l->had + 1) {
        l->gaps++;
        l->missing += m->number - l->had - 1;
        HOLDS(l->gaps <= (uint64_t)killed_of(i) && m->number - l->had - 1 <= MESSAGES_MAX,
              "line %d (%s): %llu messages are missing before message %llu, after %d kills", i, kind_names[lines[i].out_kind],
              (ull)(m->number - l->had - 1), (ull)m->number, killed_of(i));
        HOLDS(m->i == 0, "line %d: the middle of a transaction is missing before message %llu", i, (ull)m->number);
    } else if (m->i > 0) {
        HOLDS(m->i == l->last.i + 1 && m->value == l->last.value && m->cell == l->last.cell && m->of == l->last.of,
              "line %d: message %llu is of another transaction than the one before", i, (ull)m->number);
    } else if (l->had > 0 && l->last.i + 1 != l->last.of) {
        HOLDS(0, "line %d: message %llu came before the transaction before it was complete", i, (ull)m->number);
    }
    if (m->i == 0) {
        HOLDS(!tellers[m->cell][m->value].line, "cell %u: lines %d and %d both tell of %llu: one of them was aborted", m->cell,
              tellers[m->cell][m->value].line - 1, i, (ull)m->value);
        tellers[m->cell][m->value].line = i + 1;
        tellers[m->cell][m->value].first = m->number;
        told[i][m->number] = m->signals ? 2 : 1;
    }
    l->had = m->number;
    l->last = *m;
}

/* Reads what there is at a line; whether there was anything. */
static int read_line(int i) {
    struct outside_line *l = &out[i];
    size_t want = sizeof(struct message);
    if (l->len >= want && ((struct message *)l->part)->big)
        want += sizeof padding;
    ssize_t n = read(lines[i].out[0], l->part + l->len, want - l->len);
    if (n <= 0) {
        CHECK(n == 0 || errno == EAGAIN || errno == ECONNRESET);
        return 0;
    }
    l->len += (size_t)n;
    if (l->len < want || (want == sizeof(struct message) && ((struct message *)l->part)->big))
        return 1;
    struct message whole;
    memcpy(&whole, l->part, sizeof whole);
    l->len = 0;
    take_message(i, &whole);
    return 1;
}

static void read_signals(int fd) {
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof info) == sizeof info) {
        int i = info.ssi_int >> 24;
        uint64_t number = (uint64_t)info.ssi_int & 0xffffff;
        signals_++;
        HOLDS(i >= 0 && i < LINES && number < MOST * MESSAGES_MAX, "a signal with nonsense");
        if (violations)
            return;
        HOLDS(number > out[i].last_signal, "line %d: signal %llu came after %llu", i, (ull)number, (ull)out[i].last_signal);
        out[i].last_signal = number;
        signaled[i][number] = 1;
    }
}

static void feed(int i) {
    struct outside_line *l = &out[i];
    while (l->fed < shared->taken[i] + AHEAD) {
        uint64_t number = l->fed + 1;
        ssize_t n = send(lines[i].in[1], &number, sizeof number, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n == -1 && errno == EAGAIN)
            return;
        CHECK(n == sizeof number);
        l->fed = number;
    }
}

static pid_t start(int worker) {
    shared->ready[worker] = shared->handled[worker] = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        be_worker(worker);
    return child;
}

/* A process was killed: reads all that it has sent. Of a message that was cut the beginning is of no use. */
static void read_to_the_cut(int i) {
    int under_way = 0;
    for (;;) {
        if (lines[i].out_kind == TCP)
            CHECK(ioctl(lines[i].out[1], TIOCOUTQ, &under_way) == 0);
        int any = 0;
        while (!violations && read_line(i))
            any = 1;
        if (!any && !under_way)
            break;
    }
    out[i].len = 0;
}

static uint64_t total(const volatile uint64_t *of) {
    uint64_t sum = 0;
    for (int i = 0; i < LINES; i++)
        sum += of[i];
    return sum;
}

/* All files as they are at the end, by a transaction, which sees to what was left. */
static void final_look(struct record *records, uint64_t *cells) {
    for (int attempt_ = 0;; attempt_++) {
        struct line reader = {.number = -1};
        CHECK(attempt_ < 3 && sys_xbegin(0) == 0);
        int done = 1;
        for (int i = 0; done && i < LINES; i++) {
            char path[32];
            path_of(path, "line", i);
            done = get(&reader, path, &records[i], sizeof records[i]);
        }
        for (int c = 0; done && c < CELLS; c++) {
            char path[32];
            path_of(path, "cell", c);
            done = get(&reader, path, &cells[c], sizeof cells[c]);
        }
        if (sys_xend() == 0 && done)
            return;
        CHECK(errno == ECANCELED);
    }
}

/* What is still there of what was fed, after the last that was taken. */
static void check_input(int i, const struct record *record) {
    uint64_t number, expected = 0;
    for (;;) {
        /* What was sent by TCP may still be on its way: the other side waits for room. */
        struct pollfd there = {.fd = lines[i].in[0], .events = POLLIN};
        uint64_t next = expected ? expected : record->taken + 1;
        poll(&there, 1, next <= out[i].fed ? 5000 : 0);
        if (recv(lines[i].in[0], &number, sizeof number, MSG_DONTWAIT) != sizeof number)
            break;
        if (!expected) {
            HOLDS(number == record->taken + 1 || (killed_of(i) && number <= record->taken),
                  "line %d (%s): %llu is still there, and %llu was the last that was taken", i, kind_names[lines[i].in_kind],
                  (ull)number, (ull)record->taken);
        } else {
            HOLDS(number == expected, "line %d: %llu is there, and not %llu", i, (ull)number, (ull)expected);
        }
        expected = number + 1;
    }
    HOLDS(expected == out[i].fed + 1 || (!expected && record->taken == out[i].fed),
          "line %d (%s): %llu were sent, %llu taken, and the last that is there is %llu", i, kind_names[lines[i].in_kind],
          (ull)out[i].fed, (ull)record->taken, (ull)expected - 1);
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    alarm(250);
    signal(SIGPIPE, SIG_IGN);
    uint64_t seed = strtoull(argv[1], NULL, 10), wanted = strtoull(argv[2], NULL, 10), kills = strtoull(argv[3], NULL, 10);
    time_t until = time(NULL) + atoi(argv[4]);
    uint64_t random_ = seed;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    sigaddset(&set, SIGRTMIN);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    sigdelset(&set, SIGRTMIN + 1);
    int signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK(signals >= 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    outside = getpid();
    static const enum kind ins[] = {UNIX_STREAM, UNIX_DATAGRAMS, TCP, UNIX_PACKETS};
    static const enum kind outs[] = {PIPE, UNIX_STREAM, UNIX_DATAGRAMS, TCP, UNIX_PACKETS};
    uint64_t from = next(&random_);
    for (int i = 0; i < LINES; i++) {
        struct line *line = &lines[i];
        *line = (struct line){.number = i, .in_kind = ins[(from + i) % 4], .out_kind = outs[(from / 4 + i) % 5]};
        make_ends(line->in_kind, line->in);
        make_ends(line->out_kind, line->out);
        CHECK(fcntl(line->out[0], F_SETFL, O_NONBLOCK) == 0);
        char path[32];
        struct record none = {0};
        path_of(path, "line", i);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && write(fd, &none, sizeof none) == sizeof none && close(fd) == 0);
    }
    for (int c = 0; c < CELLS; c++) {
        char path[32];
        uint64_t none = 0;
        path_of(path, "cell", c);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && write(fd, &none, sizeof none) == sizeof none && close(fd) == 0);
    }
    pid_t workers[WORKERS];
    int queued[WORKERS] = {0}, killed = 0;
    for (int w = 0; w < WORKERS; w++) {
        for (int i = 0; i < LINES; i++)
            lines[i].random = next(&random_);
        workers[w] = start(w);
    }
    uint64_t progress = 0;
    struct timespec since, now;
    clock_gettime(CLOCK_MONOTONIC, &since);
    while (!violations && total(shared->commits) < wanted && time(NULL) < until) {
        struct pollfd fds[LINES + 1];
        for (int i = 0; i < LINES; i++) {
            feed(i);
            fds[i] = (struct pollfd){lines[i].out[0], POLLIN, 0};
        }
        fds[LINES] = (struct pollfd){signals, POLLIN, 0};
        CHECK(poll(fds, LINES + 1, 20) >= 0);
        for (int i = 0; i < LINES; i++)
            while (fds[i].revents && !violations && read_line(i))
                ;
        read_signals(signals);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (total(shared->commits) != progress)
            progress = total(shared->commits), since = now;
        HOLDS(now.tv_sec - since.tv_sec < 60, "no progress beyond %llu commits", (ull)progress);
        int w = (int)below(&random_, WORKERS), status;
        if (shared->ready[w] && below(&random_, 8) == 0)
            if (sigqueue(workers[w], SIGRTMIN + 1, (union sigval){0}) == 0)
                queued[w]++;
        /* One that ends by itself has found something. */
        if (waitpid(workers[w], &status, WNOHANG) == workers[w]) {
            HOLDS(0, "a process has ended: %#x", status);
            workers[w] = 0;
        } else if ((uint64_t)killed < kills && total(shared->commits) * (kills + 1) > wanted * (uint64_t)(killed + 1)) {
            CHECK(kill(workers[w], SIGKILL) == 0 && waitpid(workers[w], &status, 0) == workers[w]);
            HOLDS(WIFSIGNALED(status), "a process has ended: %#x", status);
            killed++;
            shared->killed[w]++;
            queued[w] = 0;
            for (int i = 0; i < LINES; i++) {
                lines[i].random = next(&random_);
                if (worker_of[i] == w)
                    read_to_the_cut(i);
            }
            workers[w] = start(w);
        }
    }
    shared->stop = 1;
    for (int w = 0; w < WORKERS; w++) {
        int status = 0, busy = workers[w] != 0;
        while (busy) {
            /* They may be waiting for room. */
            for (int i = 0; i < LINES; i++)
                while (!violations && read_line(i))
                    ;
            read_signals(signals);
            pid_t ended = waitpid(workers[w], &status, WNOHANG);
            CHECK(ended >= 0);
            busy = ended == 0;
            struct timespec moment = {0, 1000000};
            if (busy && violations)
                kill(workers[w], SIGKILL);
            if (busy)
                nanosleep(&moment, NULL);
        }
        HOLDS(!workers[w] || status == 0 || violations, "a process has ended: %#x", status);
        HOLDS(shared->inside[w] == 0, "%d signals were handled in a transaction", shared->inside[w]);
        HOLDS(shared->handled[w] == queued[w] || violations, "process %d: %d signals were sent, %d handled", w, queued[w],
              shared->handled[w]);
    }
    for (int i = 0; i < LINES; i++) {
        /* The other end is nobody's then: all that was sent is there, and the end after it. */
        close(lines[i].out[1]);
        if (lines[i].out_kind == TCP)
            CHECK(fcntl(lines[i].out[0], F_SETFL, 0) == 0);
        while (!violations && read_line(i))
            ;
        HOLDS(out[i].len == 0 || killed_of(i), "line %d: half a message", i);
    }
    read_signals(signals);
    struct record records[LINES];
    uint64_t cells[CELLS], transactions = 0, counted = 0, told_of = 0, missing_signals = 0, gaps = 0;
    final_look(records, cells);
    for (int i = 0; i < LINES; i++) {
        transactions += records[i].transactions;
        uint64_t end = records[i].sent - out[i].had;
        HOLDS(out[i].had <= records[i].sent, "line %d: %llu messages arrived, %llu were committed", i, (ull)out[i].had,
              (ull)records[i].sent);
        if (end > 0)
            out[i].gaps++;
        gaps += out[i].gaps;
        HOLDS(out[i].gaps <= (uint64_t)killed_of(i) && end <= MESSAGES_MAX, "line %d (%s): %llu messages are missing at the end", i,
              kind_names[lines[i].out_kind], (ull)end);
        HOLDS(records[i].transactions >= shared->commits[i], "line %d: %llu commits, of which %llu are in the file", i,
              (ull)shared->commits[i], (ull)records[i].transactions);
        check_input(i, &records[i]);
        uint64_t none = 0;
        for (uint64_t n = 0; n < MOST * MESSAGES_MAX; n++) {
            HOLDS(!signaled[i][n] || told[i][n] == 2, "line %d: signal %llu came without its message", i, (ull)n);
            none += told[i][n] == 2 && !signaled[i][n];
        }
        missing_signals += none;
        HOLDS(none <= (uint64_t)killed_of(i), "line %d: %llu signals are missing", i, (ull)none);
    }
    for (int c = 0; c < CELLS; c++) {
        counted += cells[c];
        for (uint64_t v = 0; v < MOST; v++) {
            HOLDS(!tellers[c][v].line || v <= cells[c], "cell %d: a message tells of %llu, and it is at %llu", c, (ull)v,
                  (ull)cells[c]);
            told_of += tellers[c][v].line != 0;
        }
    }
    HOLDS(counted == transactions, "the cells were counted up %llu times, by %llu transactions", (ull)counted, (ull)transactions);
    HOLDS(told_of + gaps >= counted && (killed || told_of == counted), "messages tell of %llu transactions of %llu", (ull)told_of,
          (ull)counted);
    printf("%llu commits (%llu aborted, %llu begun again), %llu messages and %llu signals out, %llu in (%llu again), %d killed: "
           "missing after it messages in %llu places, %llu signals; %llu as another group; %d violations\n",
           (ull)transactions, (ull)total(shared->aborts), (ull)total(shared->restarts), (ull)messages, (ull)signals_,
           (ull)(records[0].taken + records[1].taken + records[2].taken + records[3].taken + records[4].taken),
           (ull)total(shared->again), killed, (ull)gaps, (ull)missing_signals, (ull)total(shared->grouped),
           violations);
    return violations != 0;
}
