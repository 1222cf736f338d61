/* A debugger that starts its program by vfork: it waits until the program runs, which the first stop of that would keep from it.
 *
 * Prints whether the child could be traced.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    pid_t child = vfork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) == -1)
            _exit(errno == EPERM ? 7 : 8);
        execl("/bin/true", "true", (char *)NULL);
        _exit(9);
    }
    int status;
    if (waitpid(child, &status, 0) != child)
        return 1;
    /* Natively it stops where it runs the program. */
    printf("%s\n", WIFSTOPPED(status) ? "traced" : WEXITSTATUS(status) == 7 ? "refused" : "?");
    if (WIFSTOPPED(status))
        ptrace(PTRACE_KILL, child, 0, 0);
    return 0;
}
