/* Works in parallel, and commits in order.
 *
 *     cc -o ordered ordered.c $(txos config --cflags --libs)
 *     ./ordered WORD...
 *
 * A process for each word appends it to the file "words". The last one is the first to begin, and yet the words stand
 * there in their order: each transaction waits, at its commit, for the one before it. */
#include <stdio.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <txos.h>

static int append(uint64_t place, const char *word)
{
    int flags = TX_RESTART | TX_ORDERED | (place == 1 ? TX_ORDER_RESET : 0);
    FILE *file;

    if (sys_xbegin(flags, place) == -1)
        return -1;
    file = fopen("words", "a");
    if (!file || fprintf(file, "%s\n", word) < 0 || fclose(file) != 0)
        sys_xabort(1);
    return sys_xend();
}

int main(int argc, char **argv)
{
    int status, failed = 0;

    setpgid(0, 0); /* the order is that of a process group */
    for (int i = argc - 1; i > 0; i--)
        if (fork() == 0)
            _exit(append(i, argv[i]) != 0);
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}
