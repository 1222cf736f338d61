/* Files each line of its standard input away, as many at a time as there are, or none of them.
 *
 *     cc -o filter filter.c $(txos config --cflags --libs)
 *     printf 'one\ntwo\n' | ./filter DIRECTORY
 *
 * With TX_CHECKPOINT, memory and what was read from a pipe or a terminal are as before when it begins again: the stream
 * has its buffer back, and reads the same lines once more. If one can't be filed, none is.
 */
#include <stdio.h>
#include <string.h>

#include <txos.h>

int main(int argc, char **argv)
{
    static char line[256], path[4096];
    static int number;
    FILE *file;

    if (sys_xbegin(TX_CHECKPOINT | TX_RESTART) == -1) {
        fprintf(stderr, "%s\n", txos_strerror());
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        snprintf(path, sizeof path, "%s/%d", argc > 1 ? argv[1] : ".", ++number);
        if (!(file = fopen(path, "wx")) || fputs(line, file) == EOF || fclose(file) == EOF) {
            perror(path);
            sys_xabort(1);
            return 1;
        }
    }
    if (sys_xend() == -1) {
        fprintf(stderr, "%s\n", txos_strerror());
        return 1;
    }
    printf("%d filed\n", number);
    return 0;
}
