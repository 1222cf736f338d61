/* struck kill MODE EVERY EVERY-EFFECT | struck fail MODE ERRNO
 *
 * A transaction that changes files, receives from sockets and a pipe, sends, and signals. It is killed at each system call that it makes
 * ("kill": before and after it; at one of EVERY, and of those by which it sends at one of EVERY-EFFECT), or fails with an error at each step of
 * its private copies and its commit ("fail"). After each, this process, which has the other ends, looks at what was sent, what
 * is still there to be received, and the files: what docs/runtime.md says of `kill -9` and of an abort. It says in a line how often
 * what happened.
 */
#define _GNU_SOURCE
#include "ends.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/reg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { STRANGER = 64321, SENT = 8, INS = 5, OUTS = 3 };

struct mode {
    const char *name;
    int flags;
    int patches, names, tree, identity;
};

static const struct mode modes[] = {
    {"nothing", 0, 0, 0, 0, 0},      {"light", 0, 1, 0, 0, 0},
    {"names", 0, 1, 1, 0, 0},        {"full", 0, 1, 1, 1, 0},
    {"durable", TX_DURABLE, 1, 1, 1, 0}, {"identity", 0, 1, 1, 1, 1},
};

static const enum kind in_kinds[INS] = {UNIX_STREAM, UNIX_DATAGRAMS, UNIX_PACKETS, TCP, PIPE};
static const enum kind out_kinds[OUTS] = {PIPE, UNIX_PACKETS, TCP};

/* What is there to be received, and what of it the transaction takes. */
static const char *const messages[] = {"first", "second", "third"};
#define TAKEN 2
#define ALL_BYTES "firstsecondthird"

static struct {
    volatile int armed;
} *shared;

static struct {
    int in[INS][2];   /* [0]: the transaction's; [1]: where it comes from */
    int out[OUTS][2]; /* [1]: the transaction's; [0]: where it arrives */
    int counter;
} ends;

static int faults;

/* --- The transaction --------------------------------------------------------------------------- */

_Noreturn static void give_up(const char *what) {
    int error = errno;
    if (txos_in_transaction())
        sys_xabort(1);
    if (!faults)
        fprintf(stderr, "in the transaction: %s (errno %d; %s)\n", what, error, txos_strerror());
    _exit(faults ? 3 : 1);
}

#define TRY(what) \
    if (!(what)) \
    give_up(#what)

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640);
    TRY(fd >= 0);
    TRY(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    TRY(close(fd) == 0);
}

static void receive(void) {
    char text[64];
    for (int i = 0; i < INS; i++)
        for (int n = 0; n < TAKEN; n++) {
            size_t len = strlen(messages[n]);
            TRY(read(ends.in[i][0], text, has_messages(in_kinds[i]) ? sizeof text : len) == (ssize_t)len);
            TRY(memcmp(text, messages[n], len) == 0);
        }
}

static void send_descriptor(int to, const char *text, int fd) {
    char room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec bytes = {(void *)text, strlen(text)};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    *part = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(part), &fd, sizeof fd);
    TRY(sendmsg(to, &message, 0) == (ssize_t)strlen(text));
}

static void transaction(const struct mode *mode) {
    pid_t outside = getppid();
    uint64_t seven = 7;
    TRY(sys_xbegin(mode->flags) == 0);
    receive();
    TRY(write(ends.out[0][1], "one", 3) == 3);
    TRY(send(ends.out[1][1], "two", 3, 0) == 3);
    TRY(sigqueue(outside, SIGRTMIN, (union sigval){.sival_int = 3}) == 0);
    if (mode->patches) {
        int fd = open("cell", O_RDWR);
        TRY(fd >= 0);
        TRY(pwrite(fd, "new", 3, 0) == 3);
        TRY(close(fd) == 0);
    }
    if (mode->names) {
        put("temporary", "new");
        TRY(rename("temporary", "named") == 0);
        TRY(unlink("removed") == 0);
    }
    TRY(send(ends.out[2][1], "four", 4, 0) == 4);
    TRY(sigqueue(outside, SIGRTMIN, (union sigval){.sival_int = 5}) == 0);
    if (mode->tree) {
        TRY(mkdir("made", 0750) == 0);
        put("made/file", "new");
    }
    if (mode->identity) {
        TRY(setegid(STRANGER) == 0);
        TRY(seteuid(STRANGER) == 0);
        put("theirs/made", "new");
        TRY(open("secret", O_RDONLY) == -1 && errno != 0);
    }
    TRY(write(ends.out[0][1], "six", 3) == 3);
    TRY(write(ends.counter, &seven, sizeof seven) == sizeof seven);
    send_descriptor(ends.out[1][1], "eight", ends.in[0][1]);
    shared->armed = 1;
    if (sys_xend() == 0)
        _exit(0);
    if (errno != ECANCELED && !faults)
        give_up("sys_xend");
    _exit(errno == EINPROGRESS ? 4 : 3);
}

/* --- The files ---------------------------------------------------------------------------------- */

static void is_plainly(const char *path, const char *text, int expected) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK((fd >= 0) == expected);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static void prepare_files(void) {
    /* Another file: who writes back into one what a light commit has found there is taken for that commit's (docs/light-log-format.md). */
    unlink("cell");
    unlink("named");
    unlink("made/file");
    unlink("theirs/made");
    CHECK(rmdir("made") == 0 || errno == ENOENT);
    is_plainly("cell", "old", 1);
    is_plainly("named", "old", 1);
    is_plainly("removed", "old", 1);
}

static int has_text(const char *path, const char *text) {
    char found[16] = "";
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, found, sizeof found - 1);
    return close(fd) == 0 && n >= 0 && strcmp(found, text) == 0;
}

/* 0: as before; 1: as after the transaction; 2: a mix; 3: it has lost. */
static int look_at_files(const struct mode *mode) {
    int old = has_text("cell", "old"), new_ = !mode->patches || has_text("cell", "new");
    old = old && has_text("named", "old") && has_text("removed", "old");
    new_ = new_ && (!mode->names || (has_text("named", "new") && access("removed", F_OK) == -1));
    old = old && access("made", F_OK) == -1 && access("theirs/made", F_OK) == -1;
    new_ = new_ && (!mode->tree || has_text("made/file", "new"));
    new_ = new_ && (!mode->identity || has_text("theirs/made", "new"));
    return old ? 0 : new_ ? 1 : 2;
}

/* By another process, in a transaction, which sees to what was left. */
static int files_are(const struct mode *mode) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        unsetenv("TXOS_FAULT");
        unsetenv("TXOS_FAULT_COUNT");
        for (int attempt = 0; attempt < 3; attempt++) {
            if (sys_xbegin(0) != 0)
                _exit(10);
            int found = look_at_files(mode);
            if (sys_xend() == 0)
                _exit(found);
            if (errno != ECANCELED)
                _exit(11);
        }
        _exit(12);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    int found = WEXITSTATUS(status);
    if (found > 1)
        fprintf(stderr, "looking at the files: %d\n", found);
    CHECK(found <= 1);
    /* Outsiders see the same by then. */
    CHECK(look_at_files(mode) == found);
    return found;
}

/* What was made as another is nobody else's at any instant. */
static void check_owner(void) {
    struct stat made;
    if (lstat("theirs/made", &made) == 0)
        CHECK(made.st_uid == STRANGER && made.st_gid == STRANGER && (made.st_mode & 07777) == 0640);
    else
        CHECK(errno == ENOENT);
}

/* --- What is outside ------------------------------------------------------------------------- */

static void prepare_ends(void) {
    for (int i = 0; i < INS; i++) {
        make_ends(in_kinds[i], ends.in[i]);
        for (int n = 0; n < 3; n++)
            CHECK(write(ends.in[i][1], messages[n], strlen(messages[n])) == (ssize_t)strlen(messages[n]));
    }
    for (int i = 0; i < OUTS; i++)
        make_ends(out_kinds[i], ends.out[i]);
    CHECK((ends.counter = eventfd(0, EFD_NONBLOCK)) >= 0);
}

static void close_ends(void) {
    for (int i = 0; i < INS; i++)
        close(ends.in[i][0]), close(ends.in[i][1]);
    for (int i = 0; i < OUTS; i++)
        close(ends.out[i][0]);
    close(ends.counter);
}

/* All that arrived at a descriptor: nobody has the other end any more. */
static void arrived_at(int fd, char *text, size_t room) {
    size_t len = 0;
    ssize_t n;
    while ((n = read(fd, text + len, room - 1 - len)) > 0)
        len += n;
    CHECK(n == 0 || errno == ECONNRESET);
    text[len] = 0;
}

static int begins(const char *whole, const char *beginning) {
    return strncmp(whole, beginning, strlen(beginning)) == 0;
}

/* How many of the effects have arrived, which are the first ones in the order of the calls. */
static int effects_arrived(void) {
    char pipe_[64], packets[64], tcp[64];
    int there[SENT] = {0};
    uint64_t count = 0;
    siginfo_t info;
    sigset_t set;
    struct timespec none = {0, 0};
    arrived_at(ends.out[0][0], pipe_, sizeof pipe_);
    arrived_at(ends.out[1][0], packets, sizeof packets);
    arrived_at(ends.out[2][0], tcp, sizeof tcp);
    CHECK(begins("onesix", pipe_) && strlen(pipe_) % 3 == 0);
    CHECK(strcmp(packets, "") == 0 || strcmp(packets, "two") == 0 || strcmp(packets, "twoeight") == 0);
    CHECK(begins("four", tcp));
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    for (int expected = 3; sigtimedwait(&set, &info, &none) == SIGRTMIN; expected += 2) {
        CHECK(info.si_value.sival_int == expected && expected <= 5);
        there[expected == 3 ? 2 : 4] = 1;
    }
    CHECK(read(ends.counter, &count, sizeof count) == sizeof count || errno == EAGAIN);
    CHECK(count == 0 || count == 7);
    there[0] = *pipe_ != 0, there[5] = strlen(pipe_) == 6;
    there[1] = *packets != 0, there[7] = strlen(packets) == 8;
    there[3] = *tcp != 0, there[6] = count == 7;
    int first = 0;
    while (first < SENT && there[first])
        first++;
    for (int i = first; i < SENT; i++)
        CHECK(!there[i]);
    return first;
}

/* How many of the sockets and pipes have lost what the transaction has received there. What it has not is there in any case. */
static int ins_taken(int all_or_nothing) {
    int taken = 0;
    for (int i = 0; i < INS; i++) {
        char text[64];
        size_t len = 0;
        ssize_t n;
        CHECK(fcntl(ends.in[i][0], F_SETFL, O_NONBLOCK) == 0);
        while ((n = read(ends.in[i][0], text + len, sizeof text - 1 - len)) > 0)
            len += n;
        CHECK(n == -1 && errno == EAGAIN);
        text[len] = 0;
        size_t whole = strlen(ALL_BYTES), rest = strlen("third");
        CHECK(len >= rest && len <= whole && strcmp(text, ALL_BYTES + whole - len) == 0);
        CHECK(!has_messages(in_kinds[i]) || len == whole || len == rest || len == rest + strlen("second"));
        CHECK(!all_or_nothing || len == whole || len == rest);
        taken += len < whole;
    }
    return taken;
}

/* --- All of it ----------------------------------------------------------------------------------- */

/* Parts of a transaction: before `sys_xend`, until it takes what was received, until it sends, and from then on. */
enum phase { WORK, COMMIT, TAKES, SENDS, PHASES, TO_ITS_END };

/* The part that a call belongs to which is made in the end of the transaction. */
static enum phase phase_of(long call) {
    switch (call) {
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_splice: return TAKES;
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_pwritev2:
    case SYS_pidfd_send_signal: return SENDS;
    default: return COMMIT;
    }
}

/* Runs it; kills it at a stop of a phase, of which there are two for each call: before and after it. How it ended; how many stops
 * each phase had. */
static int run(const struct mode *mode, enum phase in, int at, int *stops) {
    shared->armed = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < INS; i++)
            close(ends.in[i][1]);
        for (int i = 0; i < OUTS; i++)
            close(ends.out[i][0]);
        /* A descriptor of its own, which it hands over. */
        CHECK((ends.in[0][1] = eventfd(0, 0)) >= 0);
        if (stops)
            CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 && raise(SIGSTOP) == 0);
        transaction(mode);
    }
    for (int i = 0; i < OUTS; i++)
        close(ends.out[i][1]);
    int status, signal_ = 0, first = 1;
    enum phase phase = WORK;
    if (stops)
        memset(stops, 0, PHASES * sizeof *stops);
    for (;;) {
        CHECK(waitpid(child, &status, 0) == child);
        if (!WIFSTOPPED(status))
            return status;
        if (first) {
            CHECK(WSTOPSIG(status) == SIGSTOP);
            CHECK(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
        } else if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            if (shared->armed) {
                enum phase by_call = phase_of(ptrace(PTRACE_PEEKUSER, child, sizeof(long) * ORIG_RAX, NULL));
                phase = by_call > phase ? by_call : phase;
            }
            if (stops[phase]++ == at && phase == in)
                CHECK(kill(child, SIGKILL) == 0);
        } else {
            signal_ = WSTOPSIG(status);
        }
        CHECK(ptrace(PTRACE_SYSCALL, child, NULL, signal_) == 0 || errno == ESRCH);
        first = signal_ = 0;
    }
}

/* What became of it, by how it ended. */
static struct {
    int runs, old, new_, none_sent, partly_sent, all_sent, not_taken;
} sums;

static void check(const struct mode *mode, int status) {
    int killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    CHECK(killed || WIFEXITED(status));
    int code = killed ? -1 : WEXITSTATUS(status);
    CHECK(killed || code == 0 || (faults && (code == 3 || code == 4)));
    check_owner();
    int sent = effects_arrived(), new_ = files_are(mode), taken = ins_taken(!killed);
    check_owner();
    if (strcmp(mode->name, "nothing") == 0)
        new_ = code == 0 || sent > 0 || taken > 0;
    sums.runs++;
    sums.old += !new_, sums.new_ += new_;
    if (new_) {
        sums.none_sent += sent == 0, sums.all_sent += sent == SENT;
        sums.partly_sent += sent > 0 && sent < SENT, sums.not_taken += taken < INS;
    }
    if (code == 3 && (new_ || sent || taken))
        fprintf(stderr, "refused with %s: files %d, sent %d, taken %d\n", getenv("TXOS_FAULT"), new_, sent, taken);
    if (code == 0)
        CHECK(new_ && sent == SENT && taken == INS);
    else if (code == 3)
        CHECK(!new_ && sent == 0 && taken == 0);
    else if (code == 4)
        CHECK(sent == 0);
    else if (!new_)
        CHECK(sent == 0 && taken == 0);
    close_ends();
}

static void prepare(void) {
    prepare_files();
    prepare_ends();
}

/* At one of `every` stops, but at one of `every_effect` of those by which it sends. */
static void kill_at_each(const struct mode *mode, int every, int every_effect) {
    int stops[PHASES], had[PHASES], status;
    /* The first one opens what is kept. */
    for (int i = 0; i < 2; i++) {
        prepare();
        status = run(mode, TO_ITS_END, 0, stops);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        check(mode, status);
    }
    memset(&sums, 0, sizeof sums);
    memcpy(had, stops, sizeof had);
    for (int phase = WORK; phase < PHASES; phase++) {
        int step = phase == TAKES ? (every < 8 ? every : 8) : phase == SENDS ? every_effect : every;
        /* How many calls there are is not the same each time. */
        for (int at = 0; at < had[phase]; at += step) {
            prepare();
            check(mode, run(mode, phase, at, stops));
        }
    }
    printf("%s: %d stops before sys_xend, %d in the commit, %d until it sends, %d from there on; ", mode->name, had[WORK],
           had[COMMIT], had[TAKES], had[SENDS]);
}

static void fail_at_each(const struct mode *mode, const char *error) {
    char fault[64];
    struct stat fired;
    faults = 1;
    for (int n = 1;; n++) {
        prepare();
        unlink("../count");
        snprintf(fault, sizeof fault, "%s@%d", error, n);
        setenv("TXOS_FAULT", fault, 1);
        setenv("TXOS_FAULT_COUNT", "../count", 1);
        int status = run(mode, TO_ITS_END, 0, NULL);
        check(mode, status);
        char text[1 << 14] = "";
        int fd = open("../count", O_RDONLY);
        CHECK(fd >= 0 && fstat(fd, &fired) == 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
        if (!strstr(text, "fired ")) {
            printf("%s, %s: %d steps; ", mode->name, error, n - 1);
            break;
        }
    }
}

int main(int argc, char **argv) {
    sigset_t set;
    CHECK(argc >= 4);
    alarm(1800);
    signal(SIGPIPE, SIG_IGN);
    umask(027);
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    CHECK(mkdir("theirs", 0755) == 0 && chown("theirs", STRANGER, STRANGER) == 0);
    is_plainly("secret", "secret", 1);
    CHECK(chmod("secret", 0600) == 0);
    const struct mode *mode = NULL;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, argv[2]) == 0)
            mode = &modes[i];
    CHECK(mode);
    if (strcmp(argv[1], "kill") == 0)
        kill_at_each(mode, atoi(argv[3]), atoi(argv[argc - 1]));
    else
        fail_at_each(mode, argv[3]);
    printf("%d runs, %d old, %d new: of these sent nothing %d, a part %d, all %d, still there to be received %d\n", sums.runs,
           sums.old, sums.new_, sums.none_sent, sums.partly_sent, sums.all_sent, sums.not_taken);
    return 0;
}
