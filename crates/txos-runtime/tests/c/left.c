/* What an abort leaves as the transaction has made it, and what others see of names and numbers: the parts of the
 * documentation that say what is not put back. Each scenario runs in a directory and a process of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* A timer ends no transaction that waits: the signal comes after the commit. */
static void alarm_without_a_handler(void) {
    int status, process = fork();
    if (process == 0) {
        struct itimerval soon = {.it_value = {0, 1000}};
        struct timespec while_ = {0, 20000000};
        CHECK(sys_xbegin(0) == 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
        CHECK(mkdir("made", 0755) == 0 && nanosleep(&while_, NULL) == 0);
        sys_xend();
        _exit(0);
    }
    CHECK(waitpid(process, &status, 0) == process && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
    CHECK(access("made", F_OK) == 0);
}

static struct sockaddr_un at(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", name);
    return address;
}

/* The name that a socket, or its peer, is told to have. */
static struct sockaddr_un told(int socket, int of_peer) {
    struct sockaddr_un address = {0};
    socklen_t size = sizeof address;
    CHECK((of_peer ? getpeername : getsockname)(socket, (void *)&address, &size) == 0);
    return address;
}

/* Whether others are shown a Unix socket with this name. */
static int is_shown(const char *name) {
    char line[512];
    int found = 0;
    FILE *sockets = fopen("/proc/net/unix", "r");
    CHECK(sockets);
    while (fgets(line, sizeof line, sockets))
        found |= strstr(line, name) != NULL;
    fclose(sockets);
    return found;
}

/* A name comes with the commit; the kernel has the socket's address from its place in the store, and keeps it. */
static void names_of_sockets(void) {
    struct sockaddr_un stream = at("stream"), client = at("client"), sender;
    socklen_t size = sizeof sender;
    int receiver = socket(AF_UNIX, SOCK_DGRAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un receives = at("receiver");
    char byte;

    CHECK(bind(receiver, (void *)&receives, sizeof receives) == 0);
    CHECK(sys_xbegin(0) == 0);
    int listens = socket(AF_UNIX, SOCK_STREAM, 0), asks = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(listens, (void *)&stream, sizeof stream) == 0 && listen(listens, 1) == 0);
    CHECK(bind(asks, (void *)&client, sizeof client) == 0);
    CHECK(strcmp(told(listens, 0).sun_path, "stream") == 0);
    long id = sys_xpause();
    CHECK(connect(other, (void *)&stream, sizeof stream) == -1 && errno == ENOENT);
    struct sockaddr_un place = told(listens, 0);
    CHECK(place.sun_path[0] == '/' && is_shown(place.sun_path));
    CHECK(sys_xresume(id) == 0 && sys_xend() == 0);

    CHECK(connect(other, (void *)&stream, sizeof stream) == 0);
    CHECK(strcmp(told(listens, 0).sun_path, place.sun_path) == 0 && access(place.sun_path, F_OK) == -1);
    CHECK(strcmp(told(other, 1).sun_path, place.sun_path) == 0 && is_shown(place.sun_path));

    CHECK(sendto(asks, "?", 1, 0, (void *)&receives, sizeof receives) == 1);
    CHECK(recvfrom(receiver, &byte, 1, 0, (void *)&sender, &size) == 1 && sender.sun_path[0] == '/');
    CHECK(sendto(receiver, "!", 1, 0, (void *)&sender, size) == -1);
    CHECK(sendto(receiver, "!", 1, 0, (void *)&client, sizeof client) == 1 && read(asks, &byte, 1) == 1);
}

/* A process that is killed before the commit leaves no name; killed after it, a name at which nobody listens. */
static void names_of_the_killed(void) {
    struct sockaddr_un name = at("name");
    for (int commits = 0; commits < 2; commits++) {
        int status, process = fork();
        if (process == 0) {
            CHECK(sys_xbegin(0) == 0);
            int listens = socket(AF_UNIX, SOCK_STREAM, 0);
            CHECK(bind(listens, (void *)&name, sizeof name) == 0 && listen(listens, 1) == 0);
            CHECK(!commits || sys_xend() == 0);
            raise(SIGKILL);
        }
        CHECK(waitpid(process, &status, 0) == process && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, sizeof name) == -1);
        CHECK(errno == (commits ? ECONNREFUSED : ENOENT));
    }
}

/* Sockets from before are after an abort what the transaction has made of them. */
static void sockets_from_before(void) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}, peer;
    socklen_t size = sizeof peer;
    int on, listens = socket(AF_INET, SOCK_STREAM, 0), bound = socket(AF_INET, SOCK_STREAM, 0);
    int connected = socket(AF_INET, SOCK_STREAM, 0), named = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = at("name");

    CHECK(bind(listens, (void *)&any, sizeof any) == 0);
    CHECK(getsockname(listens, (void *)&peer, &size) == 0);
    CHECK(sys_xbegin(0) == 0 && listen(listens, 1) == 0 && bind(bound, (void *)&any, sizeof any) == 0);
    CHECK(connect(connected, (void *)&peer, size) == 0);
    CHECK(bind(named, (void *)&name, sizeof name) == 0 && access("name", F_OK) == 0);
    sys_xabort(1);
    size = sizeof on;
    CHECK(getsockopt(listens, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) == 0 && on == 1);
    size = sizeof peer;
    CHECK(getpeername(connected, (void *)&peer, &size) == 0);
    CHECK(getsockname(bound, (void *)&peer, &size) == 0 && peer.sin_port != 0);
    CHECK(access("name", F_OK) == -1 && errno == ENOENT);
    CHECK(bind(named, (void *)&name, sizeof name) == -1 && errno == EINVAL);
    CHECK(access(told(named, 0).sun_path, F_OK) == -1);
}

/* Flags, owners and sizes of what is no file are set at once, and put back; the kernel's signals by them come at once. */
static void flags_and_owners(void) {
    int file = open("file", O_CREAT | O_RDWR, 0644), pair[2], ends[2], ready[2], status;
    char byte;

    CHECK(file >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(ends) == 0 && pipe(ready) == 0);
    int owner = fork();
    if (owner == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGIO);
        CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && write(ready[1], "", 1) == 1);
        CHECK(sigwaitinfo(&set, NULL) == SIGIO);
        _exit(0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(sys_xbegin(0) == 0);
    CHECK(fcntl(file, F_SETFL, O_APPEND | O_NONBLOCK) == 0 && fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
    CHECK(fcntl(pair[0], F_SETOWN, getpid()) == 0);
    CHECK(fcntl(ends[0], F_SETPIPE_SZ, 1 << 17) == 1 << 17 && fcntl(ends[0], F_SETOWN, owner) == 0);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK | O_ASYNC) == 0 && fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0);
    long id = sys_xpause();
    CHECK(write(ends[1], "x", 1) == 1 && waitpid(owner, &status, 0) == owner && status == 0);
    CHECK(sys_xresume(id) == 0 && read(ends[0], &byte, 1) == 1);
    sys_xabort(1);
    CHECK((fcntl(file, F_GETFL) & (O_APPEND | O_NONBLOCK)) == 0 && fcntl(ends[0], F_GETFD) == 0);
    CHECK((fcntl(pair[0], F_GETFL) & O_NONBLOCK) == 0 && (fcntl(ends[0], F_GETFL) & O_ASYNC) == 0);
    CHECK(fcntl(ends[0], F_GETPIPE_SZ) == 1 << 16 && fcntl(pair[0], F_GETOWN) == 0);
    CHECK(poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, 0) == 0); /* What was read is gone. */
}

/* Without TX_CHECKPOINT, mappings are as the transaction has left them. */
static void mappings(void) {
    long page = sysconf(_SC_PAGESIZE);
    unsigned char resident;
    int status;
    char *kept = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *gone = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *heap, *copy;

    CHECK(kept != MAP_FAILED && gone != MAP_FAILED);
    CHECK(sys_xbegin(0) == 0);
    int fd = open("file", O_CREAT | O_RDWR, 0644);
    CHECK(write(fd, "mine", 4) == 4);
    copy = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(copy != MAP_FAILED && (heap = sbrk(page)) != (void *)-1);
    CHECK(mprotect(kept, page, PROT_READ) == 0 && munmap(gone, page) == 0);
    sys_xabort(1);
    CHECK((char *)sbrk(0) >= heap + page && memcmp(copy, "mine", 4) == 0 && access("file", F_OK) == -1);
    CHECK(mincore(gone, page, &resident) == -1 && errno == ENOMEM);
    int process = fork();
    if (process == 0) {
        *(volatile char *)kept = 1;
        _exit(0);
    }
    CHECK(waitpid(process, &status, 0) == process && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* A lock of flock(2) is in force at once, and is the open file's. */
static void locks(void) {
    int file = open("file", O_CREAT | O_RDWR, 0644), other = open("file", O_RDWR);
    CHECK(file >= 0 && other >= 0);
    CHECK(sys_xbegin(0) == 0 && flock(file, LOCK_EX) == 0);
    sys_xabort(1);
    CHECK(flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    CHECK(sys_xbegin(0) == 0 && flock(file, LOCK_UN) == 0);
    sys_xabort(1);
    CHECK(flock(other, LOCK_EX | LOCK_NB) == 0 && flock(other, LOCK_UN) == 0);
    CHECK(sys_xbegin(0) == 0 && flock(open("file", O_RDWR), LOCK_EX) == 0);
    sys_xabort(1);
    CHECK(flock(other, LOCK_EX | LOCK_NB) == 0);
}

static pthread_barrier_t turn;
static int number;

static void wait_for_the_other(void) {
    pthread_barrier_wait(&turn);
}

static int shows(const char *text) {
    char found[8] = "";
    return pread(number, found, sizeof found - 1, 0) == (ssize_t)strlen(text) && strcmp(found, text) == 0;
}

static void *replaces(void *argument) {
    (void)argument;
    for (int round = 0; round < 2; round++) {
        wait_for_the_other();
        CHECK(sys_xbegin(0) == 0 && close(number) == 0 && open("one", O_RDONLY) == number && shows("one"));
        wait_for_the_other();
        wait_for_the_other();
        CHECK(sys_xend() == 0 && shows("one"));
        wait_for_the_other();
    }
    return NULL;
}

/* Threads have one table of descriptors. What a transaction puts at a number is its own until the commit; of two that want one
 * number only one commits, and that is the other one where one waits for it. */
static void numbers_of_threads(void) {
    const char *names[] = {"none", "one", "two"};
    for (int i = 0; i < 3; i++) {
        int fd = open(names[i], O_CREAT | O_WRONLY, 0644);
        CHECK(write(fd, names[i], strlen(names[i])) > 0 && close(fd) == 0);
    }
    pthread_t thread;
    CHECK(pthread_barrier_init(&turn, NULL, 2) == 0);
    number = open("none", O_RDONLY);
    CHECK(pthread_create(&thread, NULL, replaces, NULL) == 0);

    /* This one is in no transaction. */
    wait_for_the_other();
    wait_for_the_other();
    CHECK(shows("none"));
    wait_for_the_other();
    wait_for_the_other();
    CHECK(shows("one") && close(number) == 0 && open("none", O_RDONLY) == number);

    /* This one puts something there as well, and then waits. */
    CHECK(sys_xbegin(0) == 0 && close(number) == 0 && open("two", O_RDONLY) == number);
    wait_for_the_other();
    wait_for_the_other();
    CHECK(!shows("two") && errno == ECANCELED && sys_xend() == -1 && shows("none"));
    wait_for_the_other();
    wait_for_the_other();
    CHECK(shows("one"));
    CHECK(pthread_join(thread, NULL) == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
#define SCENARIO(name) {#name, name}
    SCENARIO(alarm_without_a_handler),
    SCENARIO(names_of_sockets),
    SCENARIO(names_of_the_killed),
    SCENARIO(sockets_from_before),
    SCENARIO(flags_and_owners),
    SCENARIO(mappings),
    SCENARIO(locks),
    SCENARIO(numbers_of_threads),
};

RUN_ONE_OF(scenarios)
