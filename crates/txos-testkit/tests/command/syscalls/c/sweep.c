/* sweep plain|inside|strict [NUMBER...]
 *
 * Makes every system call (or those of these numbers) with arguments that are nothing: no descriptor, no
 * address, no flag that there is. Each is made in a child of its own: "inside" in a transaction that is
 * aborted, "strict" in one with TX_STRICT that has made the file made-NUMBER and is to be committed.
 *
 * Says on standard output, for each, "NUMBER ANSWER", the answer as the kernel's, or "signal N"; with
 * "strict", "NUMBER committed|ERRNO". What the library says of it is on standard error, after "== NUMBER".
 */
#include "cases.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

enum { LAST = 469 };

/* What can't be made so: these take no arguments that they could refuse, and end, wait for ever, start
 * something, or write all of the machine's caches out. */
static bool made_elsewhere(long number, bool natively)
{
    switch (number) {
    case SYS_fork: case SYS_vfork: case SYS_exit: case SYS_exit_group: case SYS_pause: case SYS_rt_sigreturn:
        return true;
    case SYS_sync: case NR_uretprobe: case NR_uprobe: /* of the kernel's own code: it kills others that try */
        return natively;
    }
    return number > 334 && number < 424 && number != NR_uretprobe && number != NR_uprobe;
}

static long make(long number)
{
    if (number == -80) { /* getpid of 32-bit programs */
        long answer;
        __asm__ volatile("int $0x80" : "=a"(answer) : "0"(20) : "memory");
        return answer;
    }
    long none = -1, first = -1;
    if (number == SYS_kill) /* -1 are all processes */
        first = 0x3fffffff;
    long answer = raw6(number, first, none, none, none, none, none);
    return answer == -1 ? -errno : answer;
}

static void one(long number, const char *mode)
{
    fprintf(stderr, "== %ld\n", number);
    int said_at[2];
    if (pipe(said_at) != 0)
        exit(3);
    pid_t pid = fork();
    if (pid == 0) {
        char line[64], name[32];
        bool strict = !strcmp(mode, "strict");
        setsid();
        snprintf(name, sizeof name, "made-%ld", number);
        if (strcmp(mode, "plain") && sys_xbegin(strict ? TX_STRICT : 0) != 0)
            _exit(4);
        if (strict)
            close(open(name, O_CREAT | O_WRONLY, 0644));
        long answer = make(number);
        if (!strcmp(mode, "inside"))
            sys_xabort(1);
        if (!strict)
            snprintf(line, sizeof line, "%ld", answer);
        else if (sys_xend() == 0)
            snprintf(line, sizeof line, "committed");
        else
            snprintf(line, sizeof line, "%d", errno);
        if (write(said_at[1], line, strlen(line)) < 0)
            _exit(5);
        _exit(0);
    }
    close(said_at[1]);
    char line[64] = "";
    int status = 0;
    ssize_t n = read(said_at[0], line, sizeof line - 1);
    close(said_at[0]);
    if (n < 0 || waitpid(pid, &status, 0) != pid)
        exit(3);
    if (WIFSIGNALED(status))
        printf("%ld signal %d\n", number, WTERMSIG(status));
    else
        printf("%ld %s\n", number, line);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* What is made here nevertheless is nobody else's. */
    if (argc < 2 || unshare(CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET) != 0)
        return 2;
    for (int i = 2; i < argc; i++)
        one(strtol(argv[i], NULL, 0), argv[1]);
    for (long number = 0; argc == 2 && number <= LAST; number++)
        if (!made_elsewhere(number, !strcmp(argv[1], "plain")))
            one(number, argv[1]);
    return 0;
}
