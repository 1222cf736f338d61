/* signalled listen [turns]
 * signalled queue PID FIRST LAST
 * signalled errors PID GONE
 *
 * "listen" says which signals it gets, one a line: number, code, user of the sender, value; it ends with SIGTERM. With
 * "turns" it becomes root by SIGHUP, for good. "queue" sends SIGRTMIN with each of the values, in order. "errors" says
 * what the kernel answers to calls that are wrong, or only ask; GONE is the number of no process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int listen_to_all(int turns)
{
    sigset_t all;
    siginfo_t info;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, 0);
    puts("ready");
    for (;;) {
        fflush(stdout);
        int number = sigwaitinfo(&all, &info);
        if (number == SIGTERM)
            return 0;
        if (number < 0)
            continue;
        if (turns && number == SIGHUP)
            printf("turned %d\n", setresuid(0, 0, 0));
        else
            printf("%d %d %d %d\n", number, info.si_code == SI_QUEUE, (int)info.si_uid, info.si_value.sival_int);
    }
}

static void says(const char *name, long answer)
{
    printf("%s %d\n", name, answer < 0 ? errno : 0);
}

static int errors(pid_t pid, pid_t gone)
{
    siginfo_t mine = {0};
    mine.si_code = SI_QUEUE;
    siginfo_t kernels = {0};
    int to = (int)syscall(SYS_pidfd_open, pid, 0);
    says("no process", kill(gone, SIGUSR1));
    says("no group", kill(-gone, SIGUSR1));
    says("no signal", kill(pid, 65));
    says("asks", kill(pid, 0));
    says("asks a group", kill(-gone, 0));
    says("no thread", syscall(SYS_tkill, gone, SIGUSR1));
    says("zero", syscall(SYS_tkill, 0, SIGUSR1));
    says("another's thread", syscall(SYS_tgkill, pid, gone, SIGUSR1));
    says("a thread asks", syscall(SYS_tgkill, pid, pid, 0));
    says("the kernel's", syscall(SYS_rt_sigqueueinfo, pid, SIGUSR1, &kernels));
    says("nowhere", syscall(SYS_rt_sigqueueinfo, pid, SIGUSR1, 8));
    says("queued to nobody", syscall(SYS_rt_sigqueueinfo, gone, SIGUSR1, &mine));
    says("queued to no thread", syscall(SYS_rt_tgsigqueueinfo, pid, gone, SIGUSR1, &mine));
    says("no descriptor", syscall(SYS_pidfd_send_signal, 999, SIGUSR1, 0, 0));
    says("of a pipe", syscall(SYS_pidfd_send_signal, 1, SIGUSR1, 0, 0));
    says("wrong flags", syscall(SYS_pidfd_send_signal, to, SIGUSR1, 0, 0x100));
    says("another number", syscall(SYS_pidfd_send_signal, to, SIGUSR1, &mine, 0));
    says("by descriptor", syscall(SYS_pidfd_send_signal, to, 0, 0, 0));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "listen"))
        return listen_to_all(argc > 2);
    if (argc == 4 && !strcmp(argv[1], "errors"))
        return errors(atoi(argv[2]), atoi(argv[3]));
    if (argc == 5 && !strcmp(argv[1], "queue")) {
        for (int value = atoi(argv[3]); value <= atoi(argv[4]); value++)
            if (sigqueue(atoi(argv[2]), SIGRTMIN, (union sigval){.sival_int = value}))
                return 1;
        return 0;
    }
    return 2;
}
