/* Says what it has done only if it has done it.
 *
 *     cc -o held-output held-output.c $(txos config --cflags --libs)
 *     ./held-output NAME... | cat
 *
 * Makes the directories and says so for each. If one can't be made, none is, and nothing is said of the others: what
 * was written to the pipe is held until the commit. With TXOS_HOLD_OUTPUT=0 the pipe has it at once.
 */
#include <stdio.h>
#include <sys/stat.h>

#include <txos.h>

int main(int argc, char **argv)
{
    int i;

    if (sys_xbegin(0) == -1) {
        fprintf(stderr, "%s\n", txos_strerror());
        return 1;
    }
    for (i = 1; i < argc; i++) {
        if (mkdir(argv[i], 0777) == -1) {
            perror(argv[i]);
            sys_xabort(1);
            return 1;
        }
        printf("made %s\n", argv[i]);
        fflush(stdout); /* a buffer is memory, which an abort does not put back */
    }
    if (sys_xend() == -1) {
        fprintf(stderr, "%s\n", txos_strerror());
        return 1;
    }
    return 0;
}
