/* signalling PID commit|abort
 *
 * A member of a transaction with TX_PROCESSES, and one that this has made, signal the process PID, which is outside, and each
 * other. When all that is done "done" is said; after a byte from descriptor 5 the transaction ends so.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "txos.h"

static volatile sig_atomic_t got;

static void handler(int number)
{
    got = number;
}

static int member(pid_t pid)
{
    CHECK(kill(pid, SIGUSR2) == 0);
    CHECK(sigqueue(pid, SIGRTMIN, (union sigval){.sival_int = 7}) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(kill(pid, SIGUSR1) == 0);
        CHECK(kill(getppid(), SIGWINCH) == 0);
        pause();
    }
    while (got != SIGWINCH)
        usleep(1000);
    int status, ways[2];
    char byte;
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
    /* One that has left: it is outside, and its parent waits for it. */
    CHECK(pipe(ways) == 0);
    child = fork();
    if (child == 0) {
        CHECK(sys_xend() == 0 && write(ways[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    CHECK(read(ways[0], &byte, 1) == 1);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
    return 0;
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    pid_t pid = atoi(argv[1]);
    int status;
    char byte;
    signal(SIGWINCH, handler);
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(member(pid));
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("done");
    fflush(stdout);
    CHECK(read(5, &byte, 1) == 1);
    if (!strcmp(argv[2], "abort"))
        sys_xabort(1);
    else
        CHECK(sys_xend() == 0);
    return 0;
}
