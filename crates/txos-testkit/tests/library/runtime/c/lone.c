/* Transactions whose only call is a change of a name.
 *
 *   lone HOW                  makes the calls on standard input, one a line; HOW: natively, committed, aborted,
 *                             followed by a second call (looked), with all descriptors in use (full), or not at all (nothing)
 *   lone between FLAGS SCRIPT CALL...   makes one call, runs a script outside, and ends
 *   lone identity                       makes a call, becomes another user, and makes a second one
 *   lone killed LENGTH AT TIMES         writes over a file in transactions, again and again, until it is killed; how
 *                                       often what was found after it was neither old nor new
 *
 * What each call answers is printed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "txos.h"

static int call(const char *name, const char *one, const char *two)
{
    if (strcmp(name, "mkdir") == 0)
        return mkdir(one, 0777);
    if (strcmp(name, "unlink") == 0)
        return unlink(one);
    if (strcmp(name, "link") == 0)
        return link(one, two);
    if (strcmp(name, "symlink") == 0)
        return symlink(one, two);
    if (strcmp(name, "chdir") == 0)
        return chdir(one);
    if (strcmp(name, "rmdir") == 0)
        return rmdir(one);
    printf("no call: %s\n", name);
    exit(2);
}

static const char *said(int answer)
{
    return answer < 0 ? strerrorname_np(errno) : "0";
}

static void end(int commits)
{
    if (!commits) {
        sys_xabort(1);
        return;
    }
    if (sys_xend() != 0) {
        printf("sys_xend: %s: %s\n", strerrorname_np(errno), txos_strerror());
        exit(1);
    }
}

/* No further descriptor can be had. */
static void fill(void)
{
    struct rlimit few = {64, 64};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0)
        exit(2);
    while (dup(0) >= 0)
        ;
}

static void one(const char *how, const char *name, const char *first, const char *second)
{
    /* Where a later call works, and what it changes is no business of these. */
    int plain = strcmp(how, "natively") == 0 || strcmp(name, "chdir") == 0 || strcmp(name, "rmdir") == 0;
    if (!plain && strcmp(how, "nothing") == 0)
        return;
    if (!plain && sys_xbegin(0) != 0)
        exit(3);
    int answer = call(name, first, second);
    const char *words = said(answer);
    struct stat stat;
    if (strcmp(how, "looked") == 0)
        (void)!lstat(first, &stat);
    if (!plain)
        end(strcmp(how, "aborted") != 0);
    printf("%s %.40s %.40s: %s\n", name, first, second, words);
}

static pthread_barrier_t meets;

static void *changes(void *script)
{
    pthread_barrier_wait(&meets);
    if (system(script) != 0)
        exit(4);
    pthread_barrier_wait(&meets);
    return NULL;
}

static int between(int flags, char *script, char **words)
{
    static int calls;
    pthread_t thread;
    pthread_barrier_init(&meets, NULL, 2);
    if (pthread_create(&thread, NULL, changes, script) != 0 || sys_xbegin(flags) < 0)
        return 3;
    int answer = call(words[0], words[1], words[2] ? words[2] : "");
    printf("%s\n", said(answer));
    fflush(stdout);
    if (calls++ == 0) {
        pthread_barrier_wait(&meets);
        pthread_barrier_wait(&meets);
    }
    int ended = sys_xend();
    const char *ending = said(ended);
    struct txos_abort why = {.size = sizeof why};
    txos_abort_reason(&why);
    printf("end: %s, reason %d\n", ending, ended < 0 ? (int)why.reason : 0);
    pthread_join(thread, NULL);
    return 0;
}

enum { WHOLE = 64 << 10 };

/* Until it is killed. */
static void write_for_ever(int told, size_t length, off_t at)
{
    static char bytes[WHOLE];
    int fd = open("file", O_RDWR);
    for (int round = 0;; round++) {
        memset(bytes, 'a' + round % 2, length);
        if (sys_xbegin(0) != 0 || pwrite(fd, bytes, length, at) != (ssize_t)length || sys_xend() != 0)
            _exit(3);
        if (round == 2 && write(told, "x", 1) != 1)
            _exit(4);
    }
}

static int is_half(size_t length, off_t at)
{
    static char bytes[WHOLE];
    /* What the dead process was at work on may be finished meanwhile. */
    if (sys_xbegin(TX_RESTART) < 0)
        exit(5);
    int fd = open("file", O_RDONLY);
    if (pread(fd, bytes, length, at) != (ssize_t)length)
        exit(6);
    end(1);
    close(fd);
    for (size_t i = 1; i < length; i++)
        if (bytes[i] != bytes[0])
            return 1;
    return 0;
}

static int killed(size_t length, off_t at, int times)
{
    int halves = 0;
    char bytes[4096];
    memset(bytes, 'a', sizeof bytes);
    /* Page by page, so that the kernel keeps it so. */
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < WHOLE / 4096; i++)
        if (pwrite(fd, bytes, sizeof bytes, i * 4096) != sizeof bytes || fsync(fd) != 0)
            return 7;
    for (int round = 0; round < times; round++) {
        int pair[2];
        if (pipe(pair) != 0)
            return 8;
        pid_t child = fork();
        if (child == 0)
            write_for_ever(pair[1], length, at);
        close(pair[1]);
        char byte;
        if (child < 0 || read(pair[0], &byte, 1) != 1)
            return 9;
        close(pair[0]);
        /* At another instant each time. */
        for (volatile long i = 0; i < round * 7919L % 100000; i++)
            ;
        int status;
        if (kill(child, SIGKILL) != 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
            return 10;
        halves += is_half(length, at);
    }
    printf("%d halves\n", halves);
    return 0;
}

/* What is made is who made the call's. */
static int identity(void)
{
    struct stat made;
    if (sys_xbegin(0) != 0 || mkdir("first", 0777) != 0 || sys_xend() != 0)
        return 3;
    for (int looks = 0; looks < 2; looks++) {
        const char *name = looks ? "looked" : "alone";
        if (sys_xbegin(0) != 0 || mkdir(name, 0755) != 0 || seteuid(64324) != 0)
            return 4;
        if (looks && stat(name, &made) != 0)
            return 5;
        end(1);
        if (seteuid(0) != 0 || stat(name, &made) != 0)
            return 6;
        printf("%s: %u\n", name, made.st_uid);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "identity") == 0)
        return identity();
    if (argc == 5 && strcmp(argv[1], "killed") == 0)
        return killed(strtoul(argv[2], NULL, 10), atol(argv[3]), atoi(argv[4]));
    if (argc > 4 && strcmp(argv[1], "between") == 0)
        return between(atoi(argv[2]), argv[3], argv + 4);
    if (argc != 2)
        return 2;
    char line[16384];
    /* The file system is known, and the library has what it keeps open. */
    if (strcmp(argv[1], "natively") != 0) {
        if (sys_xbegin(0) != 0 || mkdir("first", 0777) != 0 || sys_xend() != 0)
            return 3;
    } else if (mkdir("first", 0777) != 0)
        return 3;
    if (strcmp(argv[1], "full") == 0)
        fill();
    while (fgets(line, sizeof line, stdin)) {
        char *rest = line, *words[3] = {"", "", ""};
        for (int i = 0; i < 3; i++) {
            char *word = strsep(&rest, " \n");
            if (word)
                words[i] = word;
        }
        one(argv[1], words[0], words[1], words[2]);
    }
    return 0;
}
