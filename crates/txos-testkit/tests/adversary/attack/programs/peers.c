/* What a hostile process of another user tries with root's transaction from the other end of a socket or pipe, by signals, by
 * descriptors that it sends, by a name that both want, and by memory of a process that has become that user. One attack for each
 * argument; each exits with 0 if it got nowhere, and says in a line how often it was tried. */
#define _GNU_SOURCE
#include "ends.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum { STRANGER = 64323 };

static struct {
    volatile int stop, ready;
    volatile long tries, got, sent, handled, taken_off, inside, connected;
    volatile long stage, seen_stage;
    volatile double at;
} *shared;

static uint64_t random_ = 1;

static uint64_t below(uint64_t n) {
    uint64_t x = random_ += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (x ^ x >> 31) % n;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void become_stranger(void) {
    CHECK(setgroups(0, NULL) == 0 && setresgid(STRANGER, STRANGER, STRANGER) == 0);
    CHECK(setresuid(STRANGER, STRANGER, STRANGER) == 0);
}

/* A process of the stranger's; it ends with the one that it attacks. */
static pid_t attacker(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        become_stranger();
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
        alarm(100);
        random_ ^= (uint64_t)getpid();
    }
    return child;
}

static void ends_well(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0)
        fprintf(stderr, "the attacker ended with %#x\n", status);
    CHECK(status == 0);
}

static int descriptors(void) {
    int count = 0;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    /* The library's own are from two thirds of the limit on. */
    int most = limit.rlim_cur > 3000 ? 2000 : (int)(limit.rlim_cur / 2);
    for (int fd = 0; fd < most; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static uint64_t counter(void) {
    uint64_t value = 0;
    int fd = open("counter", O_RDONLY);
    CHECK(fd >= 0 && read(fd, &value, sizeof value) == sizeof value && close(fd) == 0);
    return value;
}

static void count_up(uint64_t to) {
    int fd = open("counter", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && pwrite(fd, &to, sizeof to, 0) == sizeof to && close(fd) == 0);
}

/* --- One that goes away ------------------------------------------------------------------------ */

/* It takes a part, looks at it, and is gone at some instant. */
static void closes(void) {
    enum { ROUNDS = 30, PIECES = 3, PIECE = 20000 };
    static char bytes[PIECES * PIECE], in[PIECES * PIECE];
    static const enum kind kinds[] = {PIPE, UNIX_STREAM, UNIX_PACKETS, TCP};
    int told = 0;
    for (int i = 0; i < (int)sizeof bytes; i++)
        bytes[i] = (char)('a' + i % 23);
    count_up(0);
    for (int k = 0; k < 4; k++)
        for (int round = 0; round < ROUNDS; round++) {
            int ends[2];
            make_ends(kinds[k], ends);
            shared->stage = shared->seen_stage = -1;
            uint64_t spins = below(300000), most = below(sizeof bytes), abruptly = below(2);
            pid_t child = attacker();
            if (child == 0) {
                close(ends[1]);
                size_t len = 0;
                if (round % 3 == 0)
                    CHECK(poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, 50000) == 1);
                while (round % 3 == 1 && spins--)
                    __builtin_ia32_pause();
                /* When all is held, and before the commit. */
                while (round % 3 == 2 && shared->stage != round)
                    sched_yield();
                while (len < most && round % 3 != 2) {
                    ssize_t n = read(ends[0], in + len, most - len < PIECE ? PIECE : most - len);
                    if (n <= 0)
                        break;
                    CHECK(memcmp(in + len, bytes + len, (size_t)n) == 0);
                    len += (size_t)n;
                }
                struct linger gone = {1, 0};
                if (abruptly && kinds[k] == TCP)
                    setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &gone, sizeof gone);
                close(ends[0]);
                shared->seen_stage = round;
                _exit(0);
            }
            close(ends[0]);
            uint64_t value = counter();
            CHECK(sys_xbegin(0) == 0);
            count_up(value + 1);
            int refused = 0;
            for (int i = 0; i < PIECES; i++)
                /* It may be known by now that nobody will read it. */
                if (write(ends[1], bytes + i * PIECE, PIECE) != PIECE) {
                    CHECK(errno == EPIPE || errno == ECONNRESET);
                    refused = 1;
                    break;
                }
            shared->stage = round;
            while (round % 3 == 2 && shared->seen_stage != round)
                sched_yield();
            CHECK(sys_xend() == 0);
            if (round % 3 == 2 && kinds[k] != TCP) {
                CHECK(!refused && strstr(txos_strerror(), "could not be sent"));
                told++;
            }
            CHECK(counter() == value + 1);
            close(ends[1]);
            ends_well(child);
        }
    CHECK(counter() == 4 * ROUNDS && told > 0);
    printf("closes: %d commits, %d told\n", 4 * ROUNDS, told);
}

/* It takes nothing. Its victim waits for a time that is bounded, and holds up nobody meanwhile. */
static void never_reads(void) {
    static char bytes[6000000];
    static const enum kind kinds[] = {UNIX_STREAM, TCP, UNIX_PACKETS};
    for (int k = 0; k < 3; k++) {
        int ends[2], stay[2];
        make_ends(kinds[k], ends);
        CHECK(pipe(stay) == 0);
        pid_t child = attacker();
        if (child == 0) {
            char byte;
            close(ends[1]), close(stay[1]);
            CHECK(read(stay[0], &byte, 1) == 0);
            _exit(0);
        }
        close(ends[0]), close(stay[0]);
        count_up(0);
        /* Another transaction that wants the same, and gets it while the first one waits for its reader. */
        pid_t other = fork();
        CHECK(other >= 0);
        if (other == 0) {
            alarm(50);
            close(ends[1]), close(stay[1]);
            while (counter() == 0)
                sched_yield();
            CHECK(sys_xbegin(0) == 0);
            count_up(counter() + 1);
            CHECK(sys_xend() == 0);
            shared->at = now();
            _exit(0);
        }
        CHECK(sys_xbegin(0) == 0);
        count_up(1);
        if (kinds[k] == UNIX_PACKETS)
            for (int i = 0; i < 1000; i++)
                CHECK(send(ends[1], bytes, 1000, 0) == 1000);
        else
            CHECK(write(ends[1], bytes, sizeof bytes) == sizeof bytes);
        double began = now();
        CHECK(sys_xend() == 0);
        double ended = now();
        CHECK(strstr(txos_strerror(), "the transaction has committed") && strstr(txos_strerror(), "socket"));
        ends_well(other);
        CHECK(shared->at < ended && ended - began < 20);
        CHECK(counter() == 2);
        close(ends[1]), close(stay[1]);
        ends_well(child);
    }
    printf("never reads: 3 commits\n");
}

/* --- One that sends all the time --------------------------------------------------------------- */

static void handle(int signal_) {
    if (txos_in_transaction())
        __sync_fetch_and_add(&shared->inside, 1);
    __sync_fetch_and_add(&shared->handled, 1);
    if (signal_ == SIGRTMIN)
        __sync_fetch_and_add(&shared->taken_off, 1);
}

static void handle_by(int signal_) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    CHECK(sigaction(signal_, &action, NULL) == 0);
}

/* Numbers without an end; `urgent`: and urgent bytes between them, of which the kernel tells by SIGURG. (It takes the last one out of
 * the stream, and leaves those before it there: they are skipped.) */
static void sends_while_it_is_looked_at(int urgent) {
    enum { ROUNDS = 150, DIGITS = 8 };
    static const enum kind kinds[] = {TCP, UNIX_STREAM, UNIX_DATAGRAMS, UNIX_PACKETS};
    /* (What the kernel does with urgent bytes of Unix streams looks do not see: docs/runtime.md.) */
    long taken = 0, given_back = 0;
    for (int k = 0; k < (urgent ? 1 : 4); k++) {
        int ends[2];
        make_ends(kinds[k], ends);
        shared->stop = 0;
        handle_by(SIGURG);
        if (urgent)
            CHECK(fcntl(ends[0], F_SETOWN, getpid()) == 0);
        pid_t child = attacker();
        if (child == 0) {
            signal(SIGPIPE, SIG_IGN);
            close(ends[0]);
            for (unsigned n = 1; !shared->stop;) {
                char text[16];
                struct pollfd one = {ends[1], POLLOUT, 0};
                snprintf(text, sizeof text, "%0*u", DIGITS, n);
                if (poll(&one, 1, 10) != 1 || send(ends[1], text, DIGITS, MSG_DONTWAIT) != DIGITS)
                    continue;
                n++;
                if (urgent && below(3) == 0)
                    shared->sent += send(ends[1], "!", 1, MSG_OOB | MSG_DONTWAIT) == 1;
            }
            _exit(0);
        }
        close(ends[1]);
        uint64_t expected = 1;
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t number, want = 1 + below(20), at = expected;
            volatile int attempts = 0;
            int commits = below(3) != 0;
            CHECK(sys_xbegin(TX_RESTART) >= 0);
            at = expected;
            count_up(expected);
            for (uint64_t i = 0; i < want; i++) {
                char text[DIGITS + 1] = "";
                /* A part of a number is what comes before an urgent byte. */
                for (int had = 0; had < DIGITS;) {
                    ssize_t n = recv(ends[0], text + had, (size_t)(DIGITS - had), 0);
                    if (n == -1 && errno == EINTR)
                        continue;
                    CHECK(n > 0);
                    for (int end = had + (int)n, from = had; from < end; from++)
                        if (text[from] != '!')
                            text[had++] = text[from];
                }
                text[DIGITS] = 0;
                number = strtoull(text, NULL, 10);
                if (number != at)
                    fprintf(stderr, "%s: %llu, and not %llu\n", kind_names[kinds[k]], (unsigned long long)number,
                            (unsigned long long)at);
                CHECK(number == at);
                at++;
            }
            if (!commits) {
                sys_xabort(1);
                given_back += (long)want;
                continue;
            }
            int loses = below(4) == 0 && attempts++ == 0;
            if (loses)
                ioctl(-1, LOSE);
            int ended = sys_xend();
            /* Where the kernel has kept the sender waiting for so long that it was taken, it is gone with the one that loses. */
            if (ended != 0 && loses && strstr(txos_strerror(), "taken before that")) {
                expected = at;
                continue;
            }
            CHECK(ended == 0);
            expected = at;
            taken += (long)want;
        }
        shared->stop = 1;
        close(ends[0]);
        ends_well(child);
    }
    CHECK(shared->inside == 0);
    printf("sends: %ld taken, %ld given back, %ld urgent, %ld signals\n", taken, given_back, shared->sent, shared->handled);
}

static void sends(void) {
    sends_while_it_is_looked_at(0);
}

static void urgent(void) {
    sends_while_it_is_looked_at(1);
    CHECK(shared->sent > 0 && shared->handled > 0);
}

/* Signals without a rest to a process that it may signal, because that has become the stranger in its transaction. */
static void signals(void) {
    enum { ROUNDS = 60 };
    handle_by(SIGURG);
    handle_by(SIGUSR1);
    handle_by(SIGRTMIN);
    count_up(0);
    pid_t victim = getpid(), child = attacker();
    if (child == 0) {
        /* One that queues faster than its victim can handle keeps any process from going on. */
        enum { WAITING_MOST = 200 };
        while (!shared->stop) {
            if (shared->sent - shared->taken_off < WAITING_MOST) {
                kill(victim, SIGURG), kill(victim, SIGUSR1);
                shared->sent += sigqueue(victim, SIGRTMIN, (union sigval){0}) == 0;
            } else {
                sched_yield();
            }
            shared->tries++;
        }
        _exit(0);
    }
    int restarts = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        volatile int attempts = 0;
        CHECK(sys_xbegin(TX_RESTART) >= 0);
        restarts += attempts > 0;
        CHECK(setresuid(STRANGER, -1, -1) == 0);
        CHECK(counter() == round);
        count_up(round + 1);
        long tries = shared->tries;
        while (shared->tries < tries + 3)
            sched_yield();
        if (round % 3 == 0 && attempts++ == 0)
            ioctl(-1, LOSE);
        CHECK(sys_xend() == 0);
        CHECK(setresuid(0, -1, -1) == 0);
    }
    shared->stop = 1;
    ends_well(child);
    CHECK(counter() == ROUNDS && shared->inside == 0 && shared->sent > 0);
    printf("signals: %d commits, %d begun again, %ld queued, %ld handled\n", ROUNDS, restarts, shared->sent, shared->handled);
}

/* --- One that sends descriptors ------------------------------------------------------------------ */

enum { ODD = 15 };

static int odd(int which, int own) {
    sigset_t set;
    int ends[2] = {-1, -1};
    sigemptyset(&set);
    switch (which) {
    case 0: return open("theirs/file", O_PATH);
    case 1: return epoll_create1(0);
    case 2: return eventfd(7, EFD_SEMAPHORE);
    case 3: return pipe(ends) == 0 ? ends[0] : -1;
    case 4: return own;
    case 5: return (int)syscall(SYS_memfd_create, "odd", 0);
    case 6: return open("theirs", O_RDONLY | O_DIRECTORY);
    case 7: return open("theirs/file", O_RDWR);
    case 8: return open("/dev/null", O_RDWR);
    case 9: return signalfd(-1, &set, 0);
    case 10: return (int)syscall(SYS_pidfd_open, getpid(), 0);
    case 11: return inotify_init();
    case 12: return timerfd_create(CLOCK_MONOTONIC, 0);
    case 13: return open("/proc/self/mem", O_RDWR);
    default: return open("theirs/fifo", O_RDWR);
    }
}

static void send_odd(int to, int n, int first) {
    char room[CMSG_SPACE(253 * sizeof(int))];
    int fds[253];
    struct iovec bytes = {"odd", 3};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room, .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int))};
    memset(room, 0, sizeof room);
    for (int i = 0; i < n; i++)
        CHECK((fds[i] = odd((first + i) % ODD, to)) >= 0);
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    *part = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN((size_t)n * sizeof(int))};
    memcpy(CMSG_DATA(part), fds, (size_t)n * sizeof(int));
    CHECK(sendmsg(to, &message, 0) == 3);
    for (int i = 0; i < n; i++)
        if (fds[i] != to)
            close(fds[i]);
}

/* How many descriptors came, or -1 for an error, with room for `most`. */
static int receive_odd(int from, int most, int *fds) {
    char room[CMSG_SPACE(253 * sizeof(int))], text[8];
    struct iovec bytes = {text, sizeof text};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room,
                             .msg_controllen = most ? CMSG_SPACE((size_t)most * sizeof(int)) : 0};
    ssize_t n = recvmsg(from, &message, 0);
    if (n == -1)
        return -1;
    CHECK(n == 3 && memcmp(text, "odd", 3) == 0);
    int count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part))
        if (part->cmsg_type == SCM_RIGHTS) {
            int k = (int)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds + count, CMSG_DATA(part), (size_t)k * sizeof(int));
            count += k;
        }
    return count;
}

static void odd_descriptors(void) {
    static const enum kind kinds[] = {UNIX_STREAM, UNIX_DATAGRAMS, UNIX_PACKETS};
    int rounds = 0, fds[253];
    struct rlimit few = {400, 400};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(chown("theirs", STRANGER, STRANGER) == 0);
    count_up(0);
    for (int k = 0; k < 3; k++)
        for (int n = 1; n <= 120; n = n < ODD ? n + 1 : n + 15) {
            int ends[2], go[2];
            char byte;
            make_ends(kinds[k], ends);
            make_ends(UNIX_STREAM, go);
            pid_t child = attacker();
            if (child == 0) {
                close(ends[0]), close(go[0]);
                int made = open("theirs/file", O_CREAT | O_RDWR, 0600);
                CHECK(made >= 0 && close(made) == 0 && (mkfifo("theirs/fifo", 0600) == 0 || errno == EEXIST));
                send_odd(ends[1], n, n);
                CHECK(write(go[1], "x", 1) == 1 && read(go[1], &byte, 1) == 0);
                _exit(0);
            }
            close(ends[1]), close(go[1]);
            CHECK(read(go[0], &byte, 1) == 1);
            int before = descriptors();
            /* Aborted: closed again, and there for the next one. Some are used meanwhile, or closed, or there is no room for them. */
            for (int most = 253; most >= 0; most = most == 253 ? n / 2 : most > 0 ? 0 : -1) {
                CHECK(sys_xbegin(0) == 0);
                count_up((uint64_t)n);
                int count = receive_odd(ends[0], most, fds);
                CHECK(count >= 0 && count <= n);
                CHECK(most != 253 || count == n);
                for (int i = 0; i < count; i++) {
                    struct stat stat_of;
                    struct pollfd one = {fds[i], POLLIN, 0};
                    fstat(fds[i], &stat_of);
                    poll(&one, 1, 0);
                    fcntl(fds[i], F_GETFL);
                    lseek(fds[i], 0, SEEK_SET);
                    if (i % 3 == 0)
                        CHECK(close(fds[i]) == 0);
                    else if (i % 3 == 1)
                        dup(fds[i]);
                }
                sys_xabort(1);
                if (descriptors() != before)
                    fprintf(stderr, "%s, %d descriptors, room for %d: %d before, %d after\n", kind_names[kinds[k]], n, most, before,
                            descriptors());
                CHECK(descriptors() == before);
                rounds++;
            }
            CHECK(counter() == 0);
            /* Committed: they are the program's, once. */
            CHECK(sys_xbegin(0) == 0);
            int count = receive_odd(ends[0], 253, fds);
            CHECK(count == n);
            CHECK(sys_xend() == 0);
            CHECK(descriptors() == before + n);
            for (int i = 0; i < n; i++)
                CHECK(close(fds[i]) == 0);
            CHECK(recv(ends[0], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
            close(ends[0]), close(go[0]);
            ends_well(child);
            rounds++;
        }
    printf("descriptors: %d transactions\n", rounds);
}

/* --- One that wants the same name ----------------------------------------------------------------- */

static int connects(const char *path, int *listener_is_roots) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t len = sizeof peer;
    strcpy(at.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), done = connect(fd, (void *)&at, sizeof at) == 0;
    *listener_is_roots = done && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == 0;
    close(fd);
    return done;
}

static void names(void) {
    double until = now() + 3;
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "pub/sock"};
    CHECK(mkdir("pub", 0755) == 0 && chmod("pub", 01777) == 0 && chown("theirs", STRANGER, STRANGER) == 0);
    pid_t child = attacker();
    if (child == 0) {
        while (!shared->stop) {
            int roots, fd = -1;
            switch (below(4)) {
            case 0: CHECK(symlink("../theirs/elsewhere", "pub/sock") == 0 || errno == EEXIST); break;
            case 1: fd = open("pub/sock", O_CREAT | O_EXCL | O_WRONLY, 0666); break;
            case 2:
                fd = socket(AF_UNIX, SOCK_STREAM, 0);
                if (bind(fd, (void *)&at, sizeof at) == 0)
                    listen(fd, 5);
                break;
            default: mkdir("pub/sock", 0777);
            }
            for (int i = (int)below(30); i > 0; i--) {
                connects("pub/sock", &roots);
                shared->connected += roots;
            }
            unlink("pub/sock"), rmdir("pub/sock");
            if (fd >= 0)
                close(fd);
            for (int i = (int)below(200); i > 0; i--) {
                connects("pub/sock", &roots);
                shared->connected += roots;
            }
            shared->tries++;
        }
        _exit(0);
    }
    int committed = 0, refused = 0, lost = 0;
    while (now() < until || committed < 3) {
        int fd = -1, before = descriptors();
        CHECK(now() < until + 40);
        CHECK(sys_xbegin(0) == 0);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd == -1 || bind(fd, (void *)&at, sizeof at) != 0 || chmod("pub/sock", 0600) != 0 || listen(fd, 5) != 0) {
            CHECK(errno == EADDRINUSE || errno == ECANCELED);
            sys_xabort(1);
            CHECK(descriptors() == before);
            refused++;
            continue;
        }
        if (sys_xend() != 0) {
            CHECK(errno == ECANCELED && descriptors() == before);
            lost++;
            continue;
        }
        /* Nobody but root can take it away: it is root's, and leads to what was bound. */
        struct stat stat_of;
        int roots;
        CHECK(lstat("pub/sock", &stat_of) == 0 && S_ISSOCK(stat_of.st_mode));
        CHECK(stat_of.st_uid == 0 && (stat_of.st_mode & 07777) == 0600);
        CHECK(connects("pub/sock", &roots) && roots);
        int connection = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
        CHECK(connection >= 0 && close(connection) == 0 && unlink("pub/sock") == 0 && close(fd) == 0);
        committed++;
    }
    shared->stop = 1;
    ends_well(child);
    struct stat stat_of;
    CHECK(shared->connected == 0);
    CHECK(lstat("theirs/elsewhere", &stat_of) == -1 && errno == ENOENT);
    printf("names: %d committed, %d refused, %d lost, %ld tries\n", committed, refused, lost, shared->tries);
}

/* --- One that has the user that root's process has become -------------------------------------- */

static volatile uint64_t secret = 0x7365637265743031;

/* In how many ways it reaches into the process. */
static long reaches(pid_t victim, int descriptor) {
    char path[64], found[16];
    long got = 0;
    struct iovec own = {found, 8}, theirs = {(void *)&secret, 8};
    got += process_vm_readv(victim, &own, 1, &theirs, 1, 0) == 8;
    for (int i = 0; i < 5; i++) {
        static const char *const files[] = {"mem", "environ", "maps", "auxv", "fd/%d"};
        char name[32];
        snprintf(name, sizeof name, files[i], descriptor);
        snprintf(path, sizeof path, "/proc/%d/%s", victim, name);
        int fd = open(path, O_RDONLY);
        /* (What is open is judged again when it is read: an empty answer gives nothing.) */
        got += fd >= 0 && (i == 0 ? pread(fd, found, 8, (off_t)(uintptr_t)&secret) : read(fd, found, 8)) == 8;
        if (fd >= 0)
            close(fd);
    }
    if (ptrace(PTRACE_SEIZE, victim, NULL, NULL) == 0) {
        got++;
        ptrace(PTRACE_DETACH, victim, NULL, NULL);
    }
    int pidfd = (int)syscall(SYS_pidfd_open, victim, 0);
    int taken = pidfd >= 0 ? (int)syscall(SYS_pidfd_getfd, pidfd, descriptor, 0) : -1;
    got += taken >= 0;
    close(taken), close(pidfd);
    return got;
}

static void at_stage(long stage) {
    shared->stage = stage;
    while (shared->seen_stage != stage)
        sched_yield();
}

static void becomes(int flags, int way, int commits) {
    int fd = open("secret", O_RDONLY);
    CHECK(fd >= 0);
    CHECK(sys_xbegin(flags) == 0 || (flags & TX_CHECKPOINT && errno == ECANCELED));
    if (!txos_in_transaction()) {
        /* Put back by an abort. */
        at_stage(9);
        _exit(1);
    }
    count_up(5);
    CHECK(setgroups(0, NULL) == 0);
    if (way == 0)
        CHECK(setresgid(STRANGER, STRANGER, STRANGER) == 0 && setresuid(STRANGER, STRANGER, STRANGER) == 0);
    else
        CHECK(setresgid(STRANGER, STRANGER, 0) == 0 && setresuid(STRANGER, STRANGER, 0) == 0);
    at_stage(1);
    int made = open("theirs/made", O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (made == -1 && errno == ECANCELED && way == 0 && !(flags & TX_KEEP_CREDENTIALS)) {
        /* What it has given up for good it lacks for the store as well. */
        CHECK(sys_xend() == -1 && errno == ECANCELED);
        at_stage(9);
        _exit(1);
    }
    CHECK(made >= 0 && write(made, "theirs", 6) == 6 && close(made) == 0);
    CHECK(open("secret", O_RDONLY) == -1 && errno == EACCES);
    at_stage(2);
    if (commits) {
        CHECK(sys_xend() == 0);
    } else {
        sys_xabort(1);
    }
    at_stage(9);
    _exit(commits ? 0 : 1);
}

/* Nothing that the library has made for a process outlives it. */
static void nothing_is_left(void) {
    double until = now() + 10;
    pid_t ended;
    while ((ended = waitpid(-1, NULL, __WALL | WNOHANG)) >= 0 && now() < until)
        sched_yield();
    if (ended >= 0)
        /* Whatever it is, it is not to stay. */
        CHECK(system("kill -9 $(cat /proc/$PPID/task/$PPID/children)") >= 0 && !"a process is left");
    CHECK(errno == ECHILD);
}

static void memory(void) {
    static const int flags[] = {0, TX_KEEP_CREDENTIALS, TX_CHECKPOINT, TX_KEEP_CREDENTIALS | TX_CHECKPOINT};
    int fd = open("secret", O_CREAT | O_WRONLY, 0600), rounds = 0;
    int committed = 0;
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    CHECK(fd >= 0 && write(fd, "secret", 6) == 6 && close(fd) == 0);
    CHECK(chown("theirs", STRANGER, STRANGER) == 0);
    for (int f = 0; f < 4; f++)
        for (int way = 0; way < 2; way++)
            for (int commits = 0; commits < 2; commits++) {
                count_up(0);
                shared->stage = shared->seen_stage = 0;
                pid_t victim = fork();
                CHECK(victim >= 0);
                if (victim == 0)
                    becomes(flags[f], way, commits);
                pid_t child = attacker();
                if (child == 0) {
                    /* The numbers that the victim has, one of which is the secret's. */
                    for (long last = 0; last != 9;) {
                        long stage = shared->stage;
                        for (int number = 3; number < 12; number++) {
                            shared->got += reaches(victim, number);
                            shared->tries++;
                        }
                        if (shared->got && !shared->sent) {
                            shared->sent = 1;
                            fprintf(stderr, "it reaches into the process at stage %ld (%#x, %d, %d)\n", stage, flags[f], way, commits);
                        }
                        shared->seen_stage = last = stage;
                    }
                    _exit(0);
                }
                int status;
                CHECK(waitpid(victim, &status, 0) == victim);
                /* Memory of what has become another user for good can't be put back: then it is ended. */
                int ended = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && flags[f] == TX_CHECKPOINT && way == 0;
                CHECK(ended || (WIFEXITED(status) && WEXITSTATUS(status) <= 1));
                if (ended)
                    shared->stage = 9;
                ends_well(child);
                struct stat stat_of;
                int done = status == 0, there = lstat("theirs/made", &stat_of) == 0;
                CHECK(there == done && counter() == (done ? 5 : 0));
                committed += done;
                nothing_is_left();
                CHECK(!there || (stat_of.st_uid == STRANGER && stat_of.st_gid == STRANGER && (stat_of.st_mode & 0777) == 0600));
                CHECK(!there || unlink("theirs/made") == 0);
                rounds++;
            }
    CHECK(shared->got == 0 && committed >= 6);
    printf("memory: %d transactions, %d committed, %ld tries\n", rounds, committed, shared->tries);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"closes", closes}, {"never-reads", never_reads}, {"sends", sends}, {"urgent", urgent}, {"signals", signals},
    {"descriptors", odd_descriptors}, {"names", names}, {"memory", memory},
};

int main(int argc, char **argv) {
    CHECK(argc == 3);
    random_ = strtoull(argv[2], NULL, 10);
    alarm(100);
    signal(SIGPIPE, SIG_IGN);
    umask(022);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && mkdir("theirs", 0755) == 0);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    return 99;
}
