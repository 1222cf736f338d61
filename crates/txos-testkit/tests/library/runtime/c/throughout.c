/* Loaded into other programs: the one that THROUGHOUT names is one transaction of its first thread, from before main to its exit.
 * THROUGHOUT_ABORTS: which aborts then. It says on standard error how the transaction has ended. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <txos.h>

static pid_t began;

static void leave(int status) {
    for (;;)
        syscall(SYS_exit_group, status);
}

static void end(void) {
    // A child that runs no other program is not in it.
    if (began != getpid())
        return;
    began = 0;
    fflush(NULL);
    struct txos_abort why = {.size = sizeof why};
    if (getenv("THROUGHOUT_ABORTS")) {
        sys_xabort(1);
        txos_abort_reason(&why);
        fprintf(stderr, "throughout: aborted: %s\n", why.what);
    } else if (sys_xend() == 0) {
        fprintf(stderr, "throughout: committed\n");
    } else {
        int error = errno;
        txos_abort_reason(&why);
        fprintf(stderr, "throughout: not committed: %s: %s\n", strerror(error), why.what);
        leave(99);
    }
}

/* Some programs end so. */
void _exit(int status) {
    end();
    for (;;)
        leave(status);
}

__attribute__((constructor)) static void begin(void) {
    const char *program = getenv("THROUGHOUT");
    if (!program || strcmp(program, program_invocation_short_name) != 0)
        return;
    if (sys_xbegin(0) != 0) {
        perror("throughout: sys_xbegin");
        leave(98);
    }
    began = getpid();
    atexit(end);
}
