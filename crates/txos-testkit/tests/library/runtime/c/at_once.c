/* What handlers of signals do to the rest of a program that computes: one scenario for each argument. It knows nothing of transactions, and
 * says the same in one. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t first, second;

static void say_blocked(const char *when) {
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    printf("%s:", when);
    for (int signal = 1; signal < 32; signal++)
        if (sigismember(&now, signal) == 1)
            printf(" %d", signal);
    puts("");
    fflush(stdout);
}

static void after(int milliseconds) {
    struct itimerval once = {.it_value.tv_usec = milliseconds * 1000};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void count_second(int signal) {
    (void)signal;
    second++;
}

static void installs_alarm(int number) {
    (void)number;
    first++;
    signal(SIGALRM, count_second);
    after(20);
}

static void installs_other(int number) {
    (void)number;
    first++;
    signal(SIGUSR2, count_second);
}

static void forks(int number) {
    (void)number;
    first++;
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
}

static void raises(int number) {
    (void)number;
    first++;
    raise(SIGUSR2);
}

static void computes_until(volatile sig_atomic_t *told) {
    while (!*told)
        ;
}

/* The mask of who waits is as before when a handler has done this. */
static void with(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGUSR1, &action, NULL);
    say_blocked("before");
    raise(SIGUSR1);
    computes_until(&first);
    say_blocked("after");
    raise(SIGUSR2);
    printf("%d %d\n", (int)first, (int)second);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGTERM, SIG_DFL);
        pause();
        _exit(0);
    }
    int status;
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    printf("child %d\n", WTERMSIG(status));
}

int main(int argc, char **argv) {
    const char *scenario = argc == 2 ? argv[1] : "";
    if (strcmp(scenario, "alarm") == 0) {
        signal(SIGINT, installs_alarm);
        struct itimerval once = {.it_value.tv_usec = 1000};
        signal(SIGVTALRM, installs_alarm);
        setitimer(ITIMER_VIRTUAL, &once, NULL);
        computes_until(&first);
        computes_until(&second);
        say_blocked("after");
        return 3;
    }
    if (strcmp(scenario, "other") == 0) {
        with(installs_other);
        return 0;
    }
    if (strcmp(scenario, "forks") == 0) {
        signal(SIGUSR2, count_second);
        with(forks);
        return 0;
    }
    if (strcmp(scenario, "raises") == 0) {
        signal(SIGUSR2, count_second);
        with(raises);
        return 0;
    }
    if (strcmp(scenario, "taken") == 0) {
        int p[2];
        char byte;
        signal(SIGALRM, count_second);
        signal(SIGALRM, SIG_DFL);
        after(50);
        return pipe(p) == 0 && read(p[0], &byte, 1) == 0 ? 0 : 1;
    }
    return 2;
}
