/* What decides together with a transaction, one scenario for each argument. Each runs in an empty directory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static struct txos_abort reason(void) {
    struct txos_abort a = {.size = sizeof a};
    CHECK(txos_abort_reason(&a) == 0);
    return a;
}

/* What was called: a letter and the participant's number each. */
static char told[64];
/* What the next calls answer. */
static int refusal, failure, refusals;
/* A file that the transaction makes, as it is when it is asked. */
static const char *made_file;
static int was_made, was_inside;
/* A signal that kills the process there. */
static int dies_in;

static void note(char what, void *number) {
    size_t length = strlen(told);
    CHECK(length + 3 < sizeof told);
    told[length] = what;
    told[length + 1] = *(const char *)number;
    if (dies_in == what)
        raise(SIGKILL);
}

static int prepare(void *number) {
    volatile char room[250 << 10];
    for (size_t i = 0; i < sizeof room; i += 4096)
        room[i] = *(const char *)number;
    note('p', number);
    was_inside |= txos_in_transaction();
    if (made_file)
        was_made = access(made_file, F_OK) == 0;
    if (refusals > 0 && *(const char *)number == '2') {
        refusals--;
        return refusal;
    }
    return 0;
}

static int commit(void *number) {
    note('c', number);
    was_inside |= txos_in_transaction();
    return *(const char *)number == '1' ? failure : 0;
}

static void undo(void *number) {
    note('a', number);
    was_inside |= txos_in_transaction();
}

static struct txos_participant participant(char *number) {
    return (struct txos_participant){sizeof(struct txos_participant), 0, "the ledger", prepare, commit, undo, number};
}

static void enlist_both(void) {
    struct txos_participant one = participant("1"), two = participant("2");
    CHECK(txos_enlist(&one) == 0 && txos_enlist(&two) == 0);
    /* It is copied. */
    memset(&one, 0, sizeof one);
}

static int heard(const char *expected) {
    int same = strcmp(told, expected) == 0;
    if (!same)
        fprintf(stderr, "told %s instead of %s\n", told, expected);
    memset(told, 0, sizeof told);
    return same && !was_inside;
}

static void put(const char *name, const char *text) {
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static int holds(const char *name, const char *text) {
    char found[64] = "";
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        return text == NULL;
    ssize_t length = read(fd, found, sizeof found - 1);
    close(fd);
    return text && length == (ssize_t)strlen(text) && memcmp(found, text, (size_t)length) == 0;
}

static void enlisted(void) {
    struct stat info;
    int file, other;
    made_file = "made";
    CHECK(sys_xbegin(0) == 0);
    put("made", "text");
    enlist_both();
    CHECK(told[0] == 0 && sys_xend() == 0 && was_made && heard("p1p2c1c2"));
    CHECK(holds("made", "text") && unlink("made") == 0);
    /* One call, one move, a look, nothing at all, and bytes in place: each decides with them as well. */
    for (int how = 0; how < 7; how++) {
        put("from", "text");
        CHECK((other = open("from", O_RDWR)) >= 0 && sys_xbegin(0) == 0);
        if (how == 6)
            enlist_both();
        if (how == 0)
            CHECK(mkdir("one", 0700) == 0);
        else if (how == 1 || how == 6)
            CHECK(rename("from", "to") == 0);
        else if (how == 2)
            CHECK(stat("from", &info) == 0);
        else if (how == 3)
            CHECK(pwrite(other, "x", 1, 0) == 1);
        else if (how == 4)
            CHECK((file = open("from", O_RDONLY)) >= 0 && close(file) == 0);
        if (how != 6)
            enlist_both();
        refusals = how == 6 ? 1 : 0;
        refusal = ENOSPC;
        if (how == 6)
            CHECK(sys_xend() == -1 && errno == ENOSPC && heard("p1p2a2a1") && holds("from", "text"));
        else
            CHECK(sys_xend() == 0 && heard("p1p2c1c2"));
        CHECK(how != 0 || rmdir("one") == 0);
        CHECK(how != 1 || (holds("to", "text") && rename("to", "from") == 0));
        CHECK(holds("from", how == 3 ? "xext" : "text") && close(other) == 0);
    }
    /* The program's own abort, with and without a begin again. */
    int attempt = sys_xbegin(TX_RESTART);
    CHECK(attempt == 0 || attempt == 1);
    CHECK(attempt == 0 || heard("a2a1"));
    put("made", "text");
    enlist_both();
    sys_xabort(attempt == 1);
    CHECK(heard("a2a1") && holds("made", NULL));
}

static void refused(void) {
    made_file = "made";
    CHECK(sys_xbegin(TX_RESTART) == 0);
    put("made", "text");
    enlist_both();
    refusals = 1, refusal = ENOSPC;
    CHECK(sys_xend() == -1 && errno == ENOSPC && was_made && heard("p1p2a2a1"));
    struct txos_abort why = reason();
    CHECK(why.reason == TXOS_REFUSED && why.error == ENOSPC && strstr(why.what, "the ledger refused"));
    CHECK(holds("made", NULL) && !txos_in_transaction());
    /* As after a conflict. */
    refusals = 1, refusal = EAGAIN;
    int attempt = sys_xbegin(TX_RESTART);
    CHECK(attempt == 0 || attempt == 1);
    CHECK(attempt == 0 || heard("p1p2a2a1"));
    put("made", "text");
    enlist_both();
    CHECK(sys_xend() == 0 && attempt == 1 && heard("p1p2c1c2") && holds("made", "text"));
    /* It fails before they are asked: at once with the program's knowledge, or at the end. */
    for (int how = 0; how < 2; how++) {
        attempt = sys_xbegin(how == 0 ? TX_RESTART : 0);
        CHECK(attempt == 0 || (attempt == 1 && heard("a2a1")));
        enlist_both();
        if (attempt == 0)
            CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
        if (how == 1) {
            struct txos_participant late = participant("3");
            CHECK(txos_enlist(&late) == -1 && errno == ECANCELED);
            CHECK(sys_xend() == -1 && errno == ECANCELED && heard("a2a1"));
        } else
            CHECK(sys_xend() == 0 && heard("p1p2c1c2"));
    }
    /* It is committed, whatever becomes of a participant. */
    failure = EIO;
    CHECK(sys_xbegin(TX_RESTART) == 0);
    put("made", "more");
    enlist_both();
    CHECK(sys_xend() == -1 && errno == EREMOTEIO && heard("p1p2c1c2") && holds("made", "more"));
    why = reason();
    CHECK(why.reason == TXOS_IN_DOUBT && strstr(why.what, "the ledger") && strstr(why.what, "must not be rolled back"));
    CHECK(!txos_in_transaction() && sys_xbegin(0) == 0 && sys_xend() == 0);
    failure = 0;
    /* An outer one decides for an inner one, and one without callbacks agrees. */
    struct txos_participant silent = {.size = sizeof silent};
    CHECK(sys_xbegin(0) == 0 && sys_xbegin(0) == 0);
    enlist_both();
    CHECK(txos_enlist(&silent) == 0 && sys_xend() == 0 && told[0] == 0 && sys_xend() == 0 && heard("p1p2c1c2"));
}

static void *other_thread(void *descriptor) {
    struct txos_participant one = participant("9");
    CHECK(sys_xjoin(*(int *)descriptor) == 0);
    CHECK(txos_enlist(&one) == -1 && errno == EPERM && txos_prepare() == -1 && errno == EPERM);
    put("theirs", "text");
    CHECK(sys_xend() == 0);
    return NULL;
}

static void refusals_of_calls(void) {
    struct txos_participant one = participant("1"), odd = one;
    CHECK(txos_enlist(&one) == -1 && errno == EINVAL);
    CHECK(txos_prepare() == -1 && errno == EINVAL && txos_finish(1) == -1 && errno == EINVAL);
    CHECK(sys_xbegin(0) == 0);
    CHECK(txos_enlist(NULL) == -1 && errno == EINVAL);
    odd.size = 8;
    CHECK(txos_enlist(&odd) == -1 && errno == EINVAL);
    odd.size = sizeof odd, odd.flags = 1;
    CHECK(txos_enlist(&odd) == -1 && errno == EINVAL);
    CHECK(txos_finish(1) == -1 && errno == EINVAL && txos_in_transaction());
    CHECK(sys_xbegin(0) == 0 && txos_prepare() == -1 && errno == EINVAL && sys_xend() == 0 && sys_xend() == 0);
    int flags[] = {TX_CHECKPOINT, TX_PROCESSES};
    for (int i = 0; i < 2; i++) {
        CHECK(sys_xbegin(flags[i]) == 0);
        CHECK(txos_enlist(&one) == -1 && errno == ENOTSUP && txos_prepare() == -1 && errno == ENOTSUP);
        CHECK(sys_xend() == 0);
    }
    /* Other threads take part, and leave before it is decided. */
    pthread_t thread;
    int fd;
    CHECK(sys_xbegin(0) == 0);
    put("ours", "text");
    CHECK(txos_enlist(&one) == 0 && (fd = txos_share()) >= 0);
    long id = sys_xpause();
    CHECK(pthread_create(&thread, NULL, other_thread, &fd) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(sys_xresume(id) == 0 && sys_xend() == 0 && heard("p1c1") && close(fd) == 0);
    CHECK(holds("ours", "text") && holds("theirs", "text"));
    /* A child has none of it. */
    CHECK(sys_xbegin(0) == 0);
    enlist_both();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(txos_in_transaction() || sys_xbegin(0) != 0 || sys_xend() != 0 || told[0] != 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(sys_xend() == 0 && heard("p1p2c1c2"));
}

/* Another transaction, while one is prepared. */
static void *beside(void *wanted) {
    struct txos_participant one = {.size = sizeof one};
    CHECK(sys_xbegin(TX_NONBLOCK) == 0);
    put("beside", "text");
    CHECK(txos_enlist(&one) == 0);
    int ended = sys_xend(), error = errno;
    CHECK(wanted ? ended == 0 : ended == -1 && error == ECANCELED && reason().reason == TXOS_CONFLICT);
    return NULL;
}

static void *left_undecided(void *how) {
    CHECK(sys_xbegin(0) == 0);
    put("left", "text");
    enlist_both();
    if (how)
        CHECK(txos_prepare() == 0);
    return NULL;
}

static void prepared(void) {
    pthread_t thread;
    int fd;
    for (int with = 0; with < 2; with++) {
        /* Committed. */
        CHECK(sys_xbegin(0) == 0);
        put("made", "text");
        CHECK((fd = open("kept", O_CREAT | O_RDWR, 0600)) >= 0);
        if (with)
            enlist_both();
        CHECK(txos_prepare() == 0 && !txos_in_transaction());
        CHECK(heard(with ? "p1p2" : "") && holds("made", "text"));
        CHECK(sys_xbegin(0) == -1 && errno == EBUSY && strstr(txos_strerror(), "txos_finish"));
        CHECK(txos_prepare() == -1 && errno == EINVAL && sys_xend() == -1 && errno == EINVAL);
        CHECK(pthread_create(&thread, NULL, beside, NULL) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(txos_finish(1) == 0 && heard(with ? "c1c2" : "") && holds("made", "text"));
        CHECK(write(fd, "kept", 4) == 4 && close(fd) == 0 && holds("kept", "kept"));
        CHECK(txos_finish(1) == -1 && errno == EINVAL);
        CHECK(pthread_create(&thread, NULL, beside, "") == 0 && pthread_join(thread, NULL) == 0);
        /* Aborted. */
        CHECK(sys_xbegin(0) == 0);
        put("made", "other");
        CHECK(unlink("kept") == 0 && (fd = open("new", O_CREAT | O_RDWR, 0600)) >= 0);
        if (with)
            enlist_both();
        CHECK(txos_prepare() == 0 && txos_finish(0) == 0 && heard(with ? "p1p2a2a1" : ""));
        CHECK(reason().reason == TXOS_ASKED && holds("made", "text") && holds("kept", "kept") && holds("new", NULL));
        CHECK(fcntl(fd, F_GETFD) == -1 && unlink("made") == 0 && unlink("kept") == 0 && unlink("beside") == 0);
        /* Nothing, and a look. */
        struct stat info;
        for (int looks = 0; looks < 2; looks++) {
            CHECK(sys_xbegin(0) == 0 && (!looks || stat(".", &info) == 0));
            if (with)
                enlist_both();
            CHECK(txos_prepare() == 0 && txos_finish(looks) == 0);
            CHECK(heard(!with ? "" : looks ? "p1p2c1c2" : "p1p2a2a1"));
        }
    }
    /* A participant refuses; it is lost before, and begins again. */
    refusals = 1, refusal = EDQUOT;
    CHECK(sys_xbegin(0) == 0);
    put("made", "text");
    enlist_both();
    CHECK(txos_prepare() == -1 && errno == EDQUOT && heard("p1p2a2a1") && holds("made", NULL));
    CHECK(reason().reason == TXOS_REFUSED && txos_finish(1) == -1 && errno == EINVAL);
    int attempt = sys_xbegin(TX_RESTART);
    CHECK(attempt == 0 || (attempt == 1 && heard("a2a1")));
    put("made", "text");
    enlist_both();
    if (attempt == 0)
        CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
    CHECK(txos_prepare() == 0 && txos_finish(1) == 0 && attempt == 1 && heard("p1p2c1c2") && holds("made", "text"));
    failure = EIO;
    CHECK(sys_xbegin(0) == 0);
    enlist_both();
    CHECK(txos_prepare() == 0 && txos_finish(1) == -1 && errno == EREMOTEIO && heard("p1p2c1c2"));
    CHECK(reason().reason == TXOS_IN_DOUBT);
    failure = 0;
    /* The thread ends. */
    for (int how = 0; how < 2; how++) {
        CHECK(pthread_create(&thread, NULL, left_undecided, how ? "" : NULL) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(heard(how ? "p1p2a2a1" : "a2a1") && holds("left", NULL));
    }
    /* A child has nothing to decide. */
    CHECK(sys_xbegin(0) == 0);
    put("made", "child");
    CHECK(txos_prepare() == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(!(txos_finish(1) == -1 && errno == EINVAL));
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(txos_finish(1) == 0 && holds("made", "child"));
}

/* The process is killed while it prepares, when it has prepared, and when it commits. */
static void killed(void) {
    static const struct {
        char in;
        int prepares, finishes, committed;
    } ways[] = {{'p', 0, 0, 0}, {'c', 0, 0, 1}, {'p', 1, 0, 0}, {0, 1, 0, 0}, {'c', 1, 1, 1}, {'a', 1, 0, 0}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        put("one", "old");
        put("two", "old");
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            dies_in = ways[i].in;
            CHECK(sys_xbegin(0) == 0);
            put("one", "new");
            put("two", "new");
            put("three", "new");
            enlist_both();
            if (ways[i].prepares) {
                CHECK(txos_prepare() == 0);
                if (ways[i].in)
                    txos_finish(ways[i].finishes);
            } else
                sys_xend();
            raise(SIGKILL);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        /* The next contact finds out. */
        CHECK(sys_xbegin(0) == 0);
        const char *text = ways[i].committed ? "new" : "old";
        CHECK(holds("one", text) && holds("two", text) && holds("three", ways[i].committed ? text : NULL));
        CHECK(sys_xend() == 0);
        CHECK(holds("one", text) && holds("two", text) && holds("three", ways[i].committed ? text : NULL));
        unlink("three");
    }
}

/* A process that takes a signal of these again and again, and says of each what came with it. */
static pid_t target;
static int target_says;

static void start_target(int signal) {
    int ready[2];
    sigset_t all, taken, before;
    sigfillset(&all);
    sigemptyset(&taken);
    sigaddset(&taken, signal);
    CHECK(pipe(ready) == 0 && sigprocmask(SIG_SETMASK, &all, &before) == 0);
    target = fork();
    if (target == 0)
        for (siginfo_t info;;)
            if (sigwaitinfo(&taken, &info) == signal
                && write(ready[1], &info.si_value.sival_int, sizeof(int)) != sizeof(int))
                _exit(1);
    target_says = ready[0];
    CHECK(target > 0 && close(ready[1]) == 0 && sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

static void end_target(void) {
    int status;
    CHECK(kill(target, SIGKILL) == 0 && waitpid(target, &status, 0) == target && close(target_says) == 0);
}

static void send_to_target(int signal, int value) {
    union sigval with = {.sival_int = value};
    CHECK(sigqueue(target, signal, with) == 0);
}

static int comes_from_target(int expected) {
    int value = 0;
    return read(target_says, &value, sizeof value) == sizeof value && value == expected;
}

/* Whether the target says something within so many milliseconds. */
static int says_within(int milliseconds) {
    struct pollfd says = {.fd = target_says, .events = POLLIN};
    return poll(&says, 1, milliseconds) == 1;
}

static uid_t asked_as;
static int said_before;

static int looks_who(void *nothing) {
    (void)nothing;
    asked_as = geteuid();
    return 0;
}

static int looks_first(void *nothing) {
    (void)nothing;
    said_before = says_within(100);
    return failure;
}

static struct txos_participant looks = {sizeof looks, 0, "the ledger", looks_who, looks_first, NULL, NULL};

/* Signals to others that were held are sent last: the participants have committed before. */
static void held(void) {
    start_target(SIGRTMIN);
    for (failure = 0; failure <= EIO; failure += EIO) {
        CHECK(sys_xbegin(0) == 0);
        send_to_target(SIGRTMIN, 1);
        CHECK(seteuid(1000) == 0 && txos_enlist(&looks) == 0);
        if (failure)
            CHECK(sys_xend() == -1 && errno == EREMOTEIO);
        else
            CHECK(sys_xend() == 0);
        CHECK(asked_as == 1000 && geteuid() == 1000 && !said_before && comes_from_target(1));
        CHECK(seteuid(0) == 0);
    }
    failure = 0;
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(0) == 0);
        send_to_target(SIGRTMIN, 2);
        CHECK(txos_enlist(&looks) == 0);
        CHECK(seteuid(1000) == 0);
        CHECK(txos_prepare() == -1 && errno == ENOTSUP && txos_in_transaction());
        CHECK(seteuid(0) == 0 && txos_prepare() == 0);
        CHECK(txos_finish(commits) == 0 && !said_before);
        CHECK(commits ? comes_from_target(2) : !says_within(100));
    }
    end_target();
}

static int waits_for_second(void *nothing) {
    (void)nothing;
    while (access("second", F_OK) == -1)
        usleep(1000);
    said_before = says_within(300);
    return 0;
}

/* What ordered transactions have held is sent in their order, even if the first has not sent it when the second has
 * committed. */
static void ordered(void) {
    struct txos_participant slow = {sizeof slow, 0, "the ledger", NULL, waits_for_second, NULL, NULL};
    int status;
    start_target(SIGRTMIN);
    CHECK(sys_xbegin(TX_ORDERED | TX_ORDER_RESET, (uint64_t)7) == 0 && sys_xend() == 0);
    pid_t second = fork();
    if (second == 0) {
        CHECK(sys_xbegin(TX_ORDERED, (uint64_t)9) == 0);
        send_to_target(SIGRTMIN, 9);
        CHECK(mkdir("second", 0700) == 0 && sys_xend() == 0);
        _exit(0);
    }
    CHECK(second > 0 && sys_xbegin(TX_ORDERED, (uint64_t)8) == 0);
    send_to_target(SIGRTMIN, 8);
    CHECK(mkdir("first", 0700) == 0 && txos_enlist(&slow) == 0 && sys_xend() == 0);
    CHECK(!said_before && comes_from_target(8) && comes_from_target(9));
    CHECK(waitpid(second, &status, 0) == second && status == 0);
    end_target();
}

#define SCENARIO(name) {#name, name}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {
        SCENARIO(enlisted), SCENARIO(refused), SCENARIO(refusals_of_calls), SCENARIO(prepared), SCENARIO(killed),
        SCENARIO(held), SCENARIO(ordered),
    };
    char dir[] = "/var/tmp/txos-joint-XXXXXX";
    CHECK(count == 2 && mkdtemp(dir) && chdir(dir) == 0);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(scenarios[i].name, arguments[1]) == 0) {
            scenarios[i].run();
            char remove[64];
            snprintf(remove, sizeof remove, "rm -rf %s", dir);
            return chdir("/") != 0 || system(remove) != 0;
        }
    return 2;
}
