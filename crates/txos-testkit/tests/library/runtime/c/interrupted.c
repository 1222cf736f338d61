/* interrupted ROUNDS
 *
 * In a command's transaction: waits in every way, with a signal that comes at any instant around the beginning of the wait. Its
 * handler runs, and the wait ends with EINTR, or with a part of the bytes. What need not wait does not end so.
 *
 * A signal that comes before the call goes unnoticed by it, natively as well: the timer sends another one, later, and
 * that round counts as missed. Prints how many of all rounds were. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The first signal comes within so many µs, the next one so many µs later. */
enum { WITHIN = 1500, AGAIN = 400000 };

static volatile sig_atomic_t handled;
static int empty[2], full[2], pair[2], listening, epoll, ready[2], file, others_lock;
static pid_t child;
static char bytes[1 << 20];

static void handler(int signal)
{
    (void)signal;
    handled++;
}

static ssize_t reads(void) { return read(empty[0], bytes, 1); }
static ssize_t reads_pieces(void) { return readv(empty[0], &(struct iovec){bytes, 1}, 1); }
static ssize_t receives(void) { return recv(pair[0], bytes, 1, 0); }
static ssize_t reads_socket(void) { return read(pair[0], bytes, 1); }
static ssize_t writes(void) { return write(full[1], bytes, 1); }
static ssize_t sends(void) { return send(pair[1], bytes, sizeof bytes, 0) == sizeof bytes ? 0 : -1; }
static ssize_t accepts(void) { return accept(listening, NULL, NULL); }
static ssize_t polls(void) { return poll(&(struct pollfd){empty[0], POLLIN, 0}, 1, -1); }
static ssize_t polls_events(void) { return epoll_wait(epoll, &(struct epoll_event){0}, 1, -1); }
static ssize_t waits(void) { return waitpid(child, NULL, 0); }

static ssize_t selects(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(empty[0], &set);
    return select(empty[0] + 1, &set, NULL, NULL, NULL);
}

static ssize_t sleeps(void)
{
    struct timespec left = {0};
    int slept = nanosleep(&(struct timespec){100, 0}, &left);
    return slept == -1 && left.tv_sec < 90 ? 1 : slept;
}

static ssize_t pauses(void) { return pause(); }
static ssize_t locks(void) { return flock(others_lock, LOCK_EX); }

/* These have something at once. */
static ssize_t has_bytes(void)
{
    return read(ready[0], bytes, 1) == 1 && write(ready[1], bytes, 1) == 1 ? -1 : 0;
}

static ssize_t has_event(void) { return poll(&(struct pollfd){ready[0], POLLIN, 0}, 1, -1) == 1 ? -1 : 0; }

static ssize_t has_file(void) { return pread(file, bytes, 1, 0) == 1 && read(file, bytes, sizeof bytes) >= 0 ? -1 : 0; }

static const struct { const char *name; ssize_t (*wait)(void); } WAYS[] = {
    {"read", reads}, {"readv", reads_pieces}, {"recv", receives}, {"read of a socket", reads_socket},
    {"write", writes}, {"send", sends}, {"accept", accepts}, {"poll", polls}, {"select", selects},
    {"epoll_wait", polls_events}, {"nanosleep", sleeps}, {"waitpid", waits}, {"pause", pauses}, {"flock", locks},
    {"read of what is there", has_bytes}, {"poll of what is there", has_event}, {"read of a file", has_file},
};

static void timer(long first, long next)
{
    struct itimerval time = {{0, next}, {0, first}};
    setitimer(ITIMER_REAL, &time, NULL);
}

int main(int count, char **words)
{
    int rounds = count == 2 ? atoi(words[1]) : 1, missed = 0, all = 0, bad = 0;
    struct sigaction action = {.sa_handler = handler};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint64_t chance = 42;

    sigaction(SIGALRM, &action, NULL);
    listening = socket(AF_INET, SOCK_STREAM, 0);
    if (pipe(empty) || pipe(full) || pipe(ready) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
        bind(listening, (struct sockaddr *)&at, sizeof at) || listen(listening, 1) || write(ready[1], bytes, 1) != 1 ||
        write(full[1], bytes, 1 << 16) != 1 << 16)
        return perror("prepared"), 1;
    epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, empty[0], &(struct epoll_event){.events = EPOLLIN});
    file = open("/proc/self/exe", O_RDONLY);
    others_lock = open("/dev/null", O_RDONLY);
    if ((child = fork()) == 0) {
        flock(open("/dev/null", O_RDONLY), LOCK_EX);
        if (write(empty[1], bytes, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    if (read(empty[0], bytes, 1) != 1)
        return 1;
    for (size_t way = 0; way < sizeof WAYS / sizeof *WAYS; way++) {
        /* Some are ended by every handler. */
        int always = WAYS[way].wait == polls || WAYS[way].wait == sleeps || WAYS[way].wait == pauses;
        action.sa_flags = always ? SA_RESTART : 0;
        sigaction(SIGALRM, &action, NULL);
        for (int round = 0; round < rounds; round++) {
            int ends = way < sizeof WAYS / sizeof *WAYS - 3, error;

            handled = 0;
            chance = chance * 6364136223846793005 + 1442695040888963407;
            timer(1 + (long)(chance >> 33) % WITHIN, AGAIN);
            if (handled > 0)
                continue; /* It came before the call. */
            errno = 0;
            ssize_t answer = WAYS[way].wait();
            error = errno;
            timer(0, 0);
            all++;
            if (ends && handled > 1)
                missed++;
            if (answer != -1 || (ends && WAYS[way].wait != sends && error != EINTR))
                bad++, fprintf(stderr, "%s: %zd (%s)\n", WAYS[way].name, answer, strerrorname_np(error));
            while (WAYS[way].wait == sends && recv(pair[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
                ;
        }
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("missed %d of %d\n", missed, all);
    return bad != 0;
}
