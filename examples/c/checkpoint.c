/* Takes COUNT numbers from a file that other processes take from as well, and prints them. What is done in
 * the transaction knows nothing of it. After a conflict it begins again, with variables, heap and streams as
 * they were: no number is taken twice, none is left out, none is forgotten.
 *
 *     cc -o checkpoint checkpoint.c $(txos config --cflags --libs)
 *     ./checkpoint FILE COUNT
 */
#include <stdio.h>
#include <stdlib.h>
#include <txos.h>

static long *numbers, taken;
static void take(const char *path)
{
    long next = 0;
    FILE *file = fopen(path, "r+");
    if (!file && !(file = fopen(path, "w+")))
        exit(1); /* which aborts */
    (void)!fscanf(file, "%ld", &next);
    rewind(file);
    fprintf(file, "%ld\n", next + 1);
    fclose(file);
    numbers = realloc(numbers, (taken + 1) * sizeof *numbers);
    numbers[taken++] = next;
}

static int attempt(const char *path)
{
    return sys_xbegin(TX_CHECKPOINT | TX_RESTART) == -1 || (take(path), sys_xend()) == -1;
}

int main(int argc, char **argv)
{
    while (argc == 3 && taken < atol(argv[2]))
        if (attempt(argv[1]))
            return fprintf(stderr, "%s\n", txos_strerror()), 1;
    for (long i = 0; i < taken; i++)
        printf("%ld\n", numbers[i]);
    return argc == 3 ? 0 : 2;
}
