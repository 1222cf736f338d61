/* Two attacks on handlers of signals, and what a transaction in the handler makes of them.
 *
 *     cc -o handler-attack handler-attack.c $(txos config --cflags --libs)
 *     ./handler-attack double-free|privilege plain|wrapped TRIES [MS]
 *
 * The victim gets a signal, and another one while its handler still runs: what the handler of the second finds is
 * half done. Both are after M. Zalewski, "Delivering signals for fun and profit" (2001).
 *
 * double-free: one handler for two signals frees a block, and only then forgets it; sendmail was like that.
 * privilege (as root): one handler is root for a moment, the other writes for the user; screen was like that.
 *
 * "wrapped" has the body of each handler in a transaction, in which signals wait. Between its steps a handler waits for MS
 * milliseconds (10), or for the next signal. Says in how many tries the attacker has won, and how many signals the victim has
 * handled a second. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <txos.h>

enum { USER = 1000 };

static volatile struct { int ready, handled, won; } *seen; /* by victim and attacker */
static volatile int frees, *volatile block;
static int wrapped, wait_us = 10000;

static void begin(void)
{
    if (wrapped && sys_xbegin(0) == -1)
        _exit(3);
}

static void end(void)
{
    if (wrapped && sys_xend() == -1)
        _exit(4);
    seen->handled++;
}

static void note(void)
{
    int log = open("log", O_CREAT | O_WRONLY | O_TRUNC, 0600);

    if (log == -1 || write(log, "a signal\n", 9) != 9 || close(log) == -1)
        _exit(5);
    usleep(wait_us); /* as if a name were looked up */
}

static void free_block(int signal)
{
    (void)signal;
    begin();
    if (block) {
        if ((*block)++)
            seen->won = seen->ready; /* it is free already */
        else
            note();
        block = NULL;
    }
    end();
}

static void work_as_root(int signal)
{
    (void)signal;
    begin();
    if (seteuid(0) == -1)
        _exit(6);
    note();
    if (seteuid(USER) == -1)
        _exit(6);
    end();
}

static void write_for_user(int signal)
{
    struct stat made;
    int file;

    (void)signal;
    begin();
    file = open("users", O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (file == -1 || fstat(file, &made) == -1 || close(file) == -1 || unlink("users") == -1)
        _exit(7);
    if (made.st_uid != USER)
        seen->won = seen->ready; /* it is root's */
    end();
}

static void victim(int privilege, int tries)
{
    sigset_t none, both;

    sigemptyset(&none);
    sigemptyset(&both);
    sigaddset(&both, SIGHUP);
    sigaddset(&both, SIGTERM);
    sigprocmask(SIG_BLOCK, &both, NULL);
    signal(SIGHUP, privilege ? work_as_root : free_block);
    signal(SIGTERM, privilege ? write_for_user : free_block);
    if (privilege && seteuid(USER) == -1)
        _exit(6);
    for (int i = 1; i <= tries; i++) {
        frees = 0;
        block = &frees;
        seen->handled = 0;
        seen->ready = i;
        while (seen->handled < 2)
            sigsuspend(&none);
    }
    for (;;)
        pause();
}

/* The victim does not end by itself: if it does, no try counts. */
static int runs(pid_t process)
{
    int status;

    if (waitpid(process, &status, WNOHANG) == 0)
        return 1;
    fprintf(stderr, "the victim ended with %#x\n", status);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    int tries = argc == 4 || argc == 5 ? atoi(argv[3]) : 0, won = 0;

    if (argc == 5)
        wait_us = 1000 * atoi(argv[4]);
    if (tries < 1 || wait_us < 1000 || wait_us > 900000)
        return 2;
    wrapped = !strcmp(argv[2], "wrapped");
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t process = fork();
    if (process == 0)
        victim(!strcmp(argv[1], "privilege"), tries);
    double began = now();
    for (int i = 1; i <= tries; i++) {
        struct stat log;
        while (seen->ready != i && runs(process))
            usleep(10);
        unlink("log");
        kill(process, SIGHUP);
        /* The handler is half way when there is its log; of a transaction nothing is to be seen, so it is guessed. */
        for (double sent = now(); stat("log", &log) == -1 && now() - sent < (wrapped ? .001 : 1);)
            usleep(10);
        kill(process, SIGTERM);
        while (seen->handled < 2 && seen->ready == i && runs(process))
            usleep(10);
        won += seen->won == i;
    }
    printf("%s, %s: won %d of %d, %.0f signals/s\n", argv[1], argv[2], won, tries, 2 * tries / (now() - began));
    kill(process, SIGKILL);
    return waitpid(process, NULL, 0) == process ? 0 : 1;
}
