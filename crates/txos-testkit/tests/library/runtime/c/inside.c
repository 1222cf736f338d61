/* A transaction that loses a conflict while its thread is inside of the C library, at each call in turn that the function makes there. It
 * begins again, and what the C library or the dynamic linker had locked is free: for this thread and for another one. The first argument
 * names the function, the second one what the program does next. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <iconv.h>
#include <locale.h>
#include <malloc.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "files.h"

/* In debug builds of the library: the conflict is lost at the so manieth call for a file from here. The answer is how many are left of the one
 * before. */
#define LOSE_AT (LOSE + 1)

/* What a trial ends with that has come to no conflict: there are no more such calls. */
#define OVER 77
/* For what waits for ever, in seconds. */
#define PATIENCE 20

static const char *how;
static volatile pid_t child;
/* How often it has begun: in memory that is not put back. */
static volatile int *tries;
static DIR *before;

static int loads(void) {
    void *library = dlopen("lib/libone.so", RTLD_NOW);
    int (*one)(void) = library ? (int (*)(void))dlsym(library, "one") : NULL;
    return one && one() == 1 && dlclose(library) == 0;
}

static int looks_up_a_user(void) {
    struct passwd *root = getpwnam("root");
    return root && root->pw_uid == 0;
}

static int looks_up_a_group(void) {
    struct group *root = getgrnam("root");
    return root && root->gr_gid == 0;
}

static int tells_time(void) {
    time_t then = 86400;
    struct tm *here = localtime(&then);
    return here && here->tm_gmtoff == 5400 && strcmp(here->tm_zone, "XYZ") == 0;
}

static int sets_a_locale(void) {
    return setlocale(LC_ALL, "C.UTF-8") && setlocale(LC_ALL, "C");
}

static int converts(void) {
    char in[] = "\xe4", out[8], *from = in, *to = out;
    size_t left = 1, room = sizeof out;
    iconv_t made = iconv_open("UTF-16LE", "ISO-8859-15");
    return made != (iconv_t)-1 && iconv(made, &from, &left, &to, &room) == 0 && room == 6 && iconv_close(made) == 0;
}

static int lists(void) {
    int count = 0;
    rewinddir(before);
    while (readdir(before))
        count++;
    return count == 5;
}

static int opens_and_lists(void) {
    int count = 0;
    DIR *dir = opendir("few");
    while (dir && readdir(dir))
        count++;
    return dir && closedir(dir) == 0 && count == 5;
}

static int trims(void) {
    void *some = malloc(1 << 16);
    free(some);
    malloc_trim(0);
    return some != NULL;
}

/* Frees so much in an arena of a thread's own that the C library gives some of it back: it looks at a file for that. */
static int gives_memory_back(void) {
    static char *volatile many[200];
    for (int i = 0; i < 200; i++)
        if (!(many[i] = malloc(8000)))
            return 0;
    for (int i = 0; i < 200; i++)
        free(many[i]);
    return 1;
}

static const struct function {
    const char *name;
    int (*work)(void);
} functions[] = {
    {"dlopen", loads}, {"getpwnam", looks_up_a_user},
    {"getgrnam", looks_up_a_group}, {"localtime", tells_time}, {"setlocale", sets_a_locale}, {"iconv", converts},
    {"readdir", lists}, {"opendir", opens_and_lists}, {"trim", trims}, {"arena", gives_memory_back},
};
static const struct function *function;

static int is(const char *what) {
    return strcmp(how, what) == 0;
}

/* What the program makes of the error. */
static void reacts(void) {
    if (is("exits"))
        exit(3);
    if (is("aborts"))
        abort();
    if (is("xaborts"))
        sys_xabort(1);
    if (is("ends"))
        sys_xend();
    if (is("pauses"))
        sys_xpause();
    if (is("begins"))
        sys_xbegin(0);
    if (is("exits at once"))
        _exit(3);
    if (is("kills itself"))
        kill(getpid(), SIGTERM);
    if (is("waits"))
        pause();
    if (is("makes a thread")) {
        pthread_t other;
        pthread_create(&other, NULL, (void *(*)(void *))(void *)looks_up_a_user, NULL);
    }
    if (is("looks again"))
        for (;;)
            function->work();
    getppid();
}

static void *works(void *unused) {
    CHECK(function->work());
    return unused;
}

/* Another process that has a transaction of higher priority. */
static struct {
    atomic_int has_read, has_won;
} *rivals;

static void makes_a_rival(void) {
    rivals = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(rivals != MAP_FAILED);
    if (fork() == 0) {
        while (!rivals->has_read)
            sched_yield();
        CHECK(sys_xbegin(TX_RESTART) >= 0);
        put("few/a", "a", O_TRUNC);
        CHECK(sys_xend() == 0);
        rivals->has_won = 1;
        _exit(0);
    }
    CHECK(setpriority(PRIO_PROCESS, 0, 10) == 0);
}

/* The transaction loses at that call. */
static void *trial(void *at) {
    int flags = TX_RESTART | (is("kept") ? TX_CHECKPOINT : 0);
    void *own = malloc(100);
    int begun = sys_xbegin(flags);
    /* With memory put back this is where an abort leads to. */
    if (begun == -1 && is("kept") && *tries == 1)
        _exit(OVER);
    CHECK(begun >= 0);
    int attempt = ++*tries;
    char text[] = {(char)('0' + attempt), 0};
    put("changed", text, O_CREAT | O_TRUNC);
    if (attempt == 1 && is("is beaten")) {
        CHECK(holds("few/a", "a"));
        rivals->has_read = 1;
        while (!rivals->has_won)
            ;
    } else if (attempt == 1) {
        CHECK(ioctl(-1, LOSE_AT, *(int *)at) == 0);
    }
    int worked = function->work();
    if (attempt == 1) {
        if (!is("goes on") && !is("kept"))
            reacts();
        int left = ioctl(-1, LOSE_AT, 0);
        CHECK(left > 0 && worked);
        sys_xabort(1);
        _exit(OVER);
    }
    CHECK(worked);
    CHECK(sys_xend() == 0);
    CHECK(holds("changed", "2") && unlink("changed") == 0);
    CHECK(function->work());
    free(own);
    return NULL;
}

/* It waits for ever; signals reach it after its transaction only. */
static void is_late(int signal) {
    (void)signal;
    kill(child, SIGKILL);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    how = argv[2];
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(argv[1], functions[i].name) == 0)
            function = &functions[i];
    CHECK(function != NULL);
    signal(SIGALRM, is_late);
    for (int at = 1;; at++) {
        child = fork();
        if (child == 0) {
            pthread_t other;
            tries = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            CHECK(tries != MAP_FAILED);
            if (is("is beaten"))
                makes_a_rival();
            before = opendir("few");
            CHECK(before != NULL);
            if (strcmp(function->name, "arena") == 0)
                CHECK(pthread_create(&other, NULL, trial, &at) == 0 && pthread_join(other, NULL) == 0);
            else
                trial(&at);
            CHECK(pthread_create(&other, NULL, works, NULL) == 0 && pthread_join(other, NULL) == 0);
            _exit(0);
        }
        alarm(PATIENCE);
        int end = end_of(child);
        alarm(0);
        if (end == OVER) {
            printf("%d\n", at - 1);
            return 0;
        }
        if (end != 0) {
            fprintf(stderr, "%s, %s, lost at call %d: ended with %d\n", function->name, how, at, end);
            return 1;
        }
        CHECK(access("changed", F_OK) == -1);
        /* What the program does next is tried at some of them. */
        if (!is("goes on") && !is("kept") && (at == 3 || is("is beaten")))
            return 0;
    }
}
