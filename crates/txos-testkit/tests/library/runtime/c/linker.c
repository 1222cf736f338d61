/* What the dynamic linker and the C library's allocator, log and `exit` do in a transaction. Each scenario runs in a process of its own, in a
 * directory with lib/libone.so and, unless it is made there, an empty directory `new`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>

#include "check.h"
#include "files.h"

/* In debug builds of the library: the conflict is lost at the so manieth call for a file from here. The answer is how many are left of the one
 * before. */
#define LOSE_AT (LOSE + 1)
/* What a child ends with whose function makes fewer calls. */
#define OVER 77

static int attempts;

static int one(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    int (*which)(void) = library ? (int (*)(void))dlsym(library, "one") : NULL;
    if (!which)
        fprintf(stderr, "%s\n", dlerror());
    return which ? which() : -1;
}

/* Takes a library away for good, however often it was opened. */
static int unloaded(const char *path) {
    void *library;
    while ((library = dlopen(path, RTLD_NOW | RTLD_NOLOAD)))
        if (dlclose(library) != 0 || dlclose(library) != 0)
            return 0;
    return 1;
}

static void in_another_thread(void *(*work)(void *)) {
    pthread_t other;
    CHECK(pthread_create(&other, NULL, work, NULL) == 0 && pthread_join(other, NULL) == 0);
}

static void copy(const char *from, const char *to) {
    static char all[1 << 20];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    ssize_t size = read(in, all, sizeof all);
    CHECK(in >= 0 && out >= 0 && size > 0 && size < (ssize_t)sizeof all);
    CHECK(write(out, all, size) == size && close(in) == 0 && close(out) == 0);
}

/* What is tried, and at which of its calls the transaction loses a conflict. */
static int (*tried)(void);
static int lost_at;

/* It goes on to its end and works, and the transaction begins again after it. */
static void *trial(void *unused) {
    free(malloc(100));
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    put("changed", ++attempts == 1 ? "1" : "2", O_CREAT | O_TRUNC);
    if (attempts == 1) {
        CHECK(ioctl(-1, LOSE_AT, lost_at) == 0);
        CHECK(tried());
        if (ioctl(-1, LOSE_AT, 0) > 0) {
            sys_xabort(1);
            _exit(OVER);
        }
        access("changed", F_OK);
        _exit(2);
    }
    CHECK(tried());
    CHECK(sys_xend() == 0);
    CHECK(attempts == 2 && holds("changed", "2"));
    return unused;
}

static void *works(void *unused) {
    CHECK(tried());
    return unused;
}

/* A transaction of a second thread that loses at each call in turn that the function makes. Prints how many there are. */
static void never_begins_again_within(int (*work)(void)) {
    int end = 0;
    for (tried = work, lost_at = 1; end == 0; lost_at++) {
        pid_t child = fork();
        if (child == 0) {
            in_another_thread(trial);
            in_another_thread(works);
            _exit(0);
        }
        end = end_of(child);
        CHECK(end == 0 || end == OVER);
    }
    printf("%d\n", lost_at - 2);
}

static int loads(void) {
    return one("lib/libone.so") == 1;
}

static void linker(void) {
    never_begins_again_within(loads);
}

/* Frees so much in an arena of a thread's own that some of it goes back to the kernel, which depends on a setting of the kernel's. */
static int gives_memory_back(void) {
    static char *volatile many[200];
    for (int i = 0; i < 200; i++)
        if (!(many[i] = malloc(8000)))
            return 0;
    for (int i = 0; i < 200; i++)
        free(many[i]);
    return 1;
}

static void allocator(void) {
    never_begins_again_within(gives_memory_back);
}

/* What was put off is found at the end, in a nested transaction, and by a pause, and nothing is sent meanwhile. */
static void ended(void) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    for (int how = 0; how < 3; how++) {
        char byte;
        CHECK(sys_xbegin(0) == 0);
        put("changed", "1", O_CREAT);
        CHECK(send(ends[1], "x", 1, 0) == 1);
        CHECK(ioctl(-1, LOSE_AT, 2) == 0 && one("lib/libone.so") == 1);
        long id = how == 2 ? sys_xpause() : -1;
        CHECK(id == -1 || sys_xresume(id) == 0 || errno == ECANCELED);
        /* What ends in it is decided with it. */
        if (how == 1 && sys_xbegin(0) == 0)
            sys_xend();
        CHECK(sys_xend() == -1 && !txos_in_transaction());
        CHECK(!is_there("changed") && recv(ends[0], &byte, 1, 0) == -1 && errno == EAGAIN);
        CHECK(unloaded("lib/libone.so"));
    }
    /* By the end itself it begins again. */
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    put("changed", "1", O_CREAT);
    if (++attempts == 1)
        CHECK(ioctl(-1, LOSE_AT, 2) == 0 && one("lib/libone.so") == 1);
    CHECK(sys_xend() == 0 && attempts == 2 && is_there("changed"));
}

/* What the transaction has made and changed is loaded. */
static void made(void) {
    CHECK(sys_xbegin(0) == 0);
    copy("lib/libone.so", "new/libone.so");
    CHECK(one("new/libone.so") == 1);
    sys_xabort(1);
    CHECK(!is_there("new/libone.so"));

    CHECK(sys_xbegin(0) == 0);
    copy("lib/libtwo.so", "lib/libthree.so");
    CHECK(one("lib/libthree.so") == 2);
    CHECK(unlink("link") == 0 && one("link/libone.so") == -1);
    CHECK(rename("lib", "away") == 0);
    CHECK(one("away/libfour.so") == 4 && one("lib/libfour.so") == -1);
    CHECK(sys_xend() == 0);
    CHECK(is_there("away/libthree.so"));
}

/* A path begins where the transaction has gone. */
static void elsewhere(void) {
    CHECK(sys_xbegin(0) == 0);
    CHECK(chdir("lib") == 0);
    CHECK(one("./libone.so") == 1);
    sys_xabort(1);
    CHECK(!is_there("libone.so") && is_there("lib/libone.so"));
}

/* A transaction that has failed does not keep a library from being loaded. */
static void failed(void) {
    CHECK(sys_xbegin(0) == 0);
    put("changed", "1", O_CREAT);
    CHECK(ioctl(-1, LOSE, 0) == -1 && errno == ECANCELED);
    CHECK(access("lib", F_OK) == -1 && errno == ECANCELED);
    CHECK(one("lib/libone.so") == 1);
    CHECK(sys_xend() == -1);
    CHECK(!is_there("changed"));
}

/* Numbers that the transaction has closed, and those that the dynamic linker uses meanwhile. */
static void numbers(void) {
    int before = open("lib", O_RDONLY);
    CHECK(before > 2 && sys_xbegin(0) == 0);
    CHECK(close(before) == 0 && one("lib/libone.so") == 1);
    int first = open("lib/libtwo.so", O_RDONLY);
    CHECK(first == before && one("lib/libtwo.so") == 2);
    int second = open("lib/libfour.so", O_RDONLY);
    CHECK(second > first);
    CHECK(sys_xend() == 0);
    char start[4];
    CHECK(read(first, start, 4) == 4 && memcmp(start, "\177ELF", 4) == 0);
    CHECK(read(second, start, 4) == 4 && memcmp(start, "\177ELF", 4) == 0);
    CHECK(close(first) == 0 && close(second) == 0);
    CHECK(open("lib", O_RDONLY) == before);
}

/* Threads of one transaction. */
static void *of_all(void *unused) {
    CHECK(one("lib/libone.so") == 1 && one("new/libnew.so") == 1);
    return unused;
}

static void threads(void) {
    CHECK(sys_xbegin(TX_THREADS) == 0);
    copy("lib/libone.so", "new/libnew.so");
    in_another_thread(of_all);
    CHECK(sys_xend() == 0);
    CHECK(is_there("new/libnew.so"));
}

/* The program ends in the middle, by a return from `main`, and loses a conflict when the C library flushes a stream then. The functions in
 * which the transaction began have returned, unless the stack is put back. */
static void ends(int flags) {
    static int *tries;
    tries = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(tries != MAP_FAILED && sys_xbegin(TX_RESTART | flags) >= 0);
    put("changed", "1", O_CREAT);
    if (++*tries == 1) {
        FILE *stream = fopen("stream", "w");
        CHECK(stream && fputs("text", stream) >= 0 && ioctl(-1, LOSE_AT, 1) == 0);
        return;
    }
    CHECK(flags && sys_xend() == 0);
}

static void left(void) {
    ends(0);
}

static void left_with_memory(void) {
    ends(TX_CHECKPOINT);
}

/* Who has the log, and what it was told last. */
static int logger;

static const char *told(void) {
    static char text[256];
    long id = sys_xpause();
    ssize_t size = recv(logger, text, sizeof text - 1, MSG_DONTWAIT);
    CHECK(id < 0 || sys_xresume(id) == 0);
    text[size < 0 ? 0 : size] = 0;
    return text;
}

static void listens(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, path);
    logger = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(logger, (void *)&at, sizeof at) == 0);
}

/* Each attempt tells the log what it does, by one connection. What the program has opened since is not the C library's to close. */
static void logged(void) {
    listens("/dev/log");
    CHECK(sys_xbegin(TX_RESTART | TX_STRICT) >= 0);
    char expected[20];
    snprintf(expected, sizeof expected, "attempt %d", ++attempts);
    put("changed", "1", O_CREAT | O_TRUNC);
    syslog(LOG_INFO, "attempt %d", attempts);
    CHECK(strstr(told(), expected));
    if (attempts == 1) {
        ioctl(-1, LOSE, 0);
        _exit(2);
    }
    CHECK(attempts == 2 && sys_xend() == 0);
    CHECK(*told() == 0 && is_there("changed"));

    int lowest = open("lib", O_RDONLY);
    CHECK(close(lowest) == 0);
    CHECK(sys_xbegin(0) == 0);
    closelog();
    syslog(LOG_INFO, "another");
    CHECK(strstr(told(), "another"));
    put("changed", "2", O_TRUNC);
    sys_xabort(1);
    int other = open("lib", O_RDONLY);
    syslog(LOG_INFO, "once more");
    CHECK(strstr(told(), "once more"));
    closelog();
    CHECK(fcntl(other, F_GETFD) == 0 && holds("changed", "1"));
}

/* As other libraries do it: messages to the socket's path. */
static void addressed(void) {
    listens("/dev/log");
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    struct iovec text = {"text", 4};
    struct msghdr message = {.msg_name = &at, .msg_namelen = sizeof at, .msg_iov = &text, .msg_iovlen = 1};
    int out = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    put("changed", "1", O_CREAT | O_TRUNC);
    CHECK(sendmsg(out, &message, MSG_NOSIGNAL) == 4 && strcmp(told(), "text") == 0);
    CHECK(sendto(out, "word", 4, 0, (void *)&at, sizeof at) == 4 && strcmp(told(), "word") == 0);
    struct mmsghdr two[] = {{.msg_hdr = message}, {.msg_hdr = message}};
    CHECK(sendmmsg(out, two, 2, 0) == 2 && two[1].msg_len == 4);
    CHECK(strcmp(told(), "text") == 0 && strcmp(told(), "text") == 0);
    if (++attempts == 1) {
        ioctl(-1, LOSE, 0);
        _exit(2);
    }
    CHECK(sys_xend() == 0);
}

/* What an abort leaves open: a connection to the log, by its first number, and none that leads elsewhere by then. */
static void kept(void) {
    listens("/dev/log");
    struct sockaddr_un log = {.sun_family = AF_UNIX, .sun_path = "/dev/log"}, to = {.sun_family = AF_UNIX, .sun_path = "other"};
    int other = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(other, (void *)&to, sizeof to) == 0);
    CHECK(sys_xbegin(0) == 0);
    int one = socket(AF_UNIX, SOCK_DGRAM, 0), two = socket(AF_UNIX, SOCK_DGRAM, 0), three = dup(one);
    CHECK(connect(one, (void *)&log, sizeof log) == 0 && connect(two, (void *)&log, sizeof log) == 0);
    CHECK(write(one, "line", 4) == 4 && strcmp(told(), "line") == 0);
    CHECK(connect(two, (void *)&to, sizeof to) == 0);
    sys_xabort(1);
    CHECK(fcntl(one, F_GETFD) >= 0 && fcntl(two, F_GETFD) == -1 && fcntl(three, F_GETFD) == -1);
    CHECK(send(one, "again", 5, 0) == 5 && strcmp(told(), "again") == 0);
}

/* If the program asks for all output to be held, so are messages to the log. */
static void held(void) {
    listens("/dev/log");
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(0) == 0);
        syslog(LOG_INFO, "message");
        CHECK(*told() == 0);
        if (commits)
            CHECK(sys_xend() == 0);
        else
            sys_xabort(1);
        CHECK(!strstr(told(), "message") == !commits);
        closelog();
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"linker", linker}, {"allocator", allocator}, {"ended", ended}, {"made", made},
    {"elsewhere", elsewhere}, {"failed", failed}, {"numbers", numbers}, {"threads", threads},
    {"left", left}, {"left with memory", left_with_memory}, {"logged", logged}, {"addressed", addressed}, {"kept", kept}, {"held", held},
};

RUN_ONE_OF(scenarios)
