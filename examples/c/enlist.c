/* Changes memory with a file, by a transaction that asks the memory whether it can: both change, or neither.
 *
 *     cc -o enlist enlist.c $(txos config --cflags --libs)
 *     ./enlist AMOUNT...
 *
 * Takes each amount from 100, in memory and in the file "left". What there is not enough for changes neither. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <txos.h>

static long left = 100, wanted; /* what there is, and what it is to be */

static int prepare(void *amount) { return (wanted = left - *(long *)amount) < 0 ? EDQUOT : 0; }
static int commit(void *amount) { return left = wanted, (void)amount, 0; }
static void undo(void *amount) { printf("not enough for %ld\n", *(long *)amount); }

static int take(long amount)
{
    struct txos_participant memory = {sizeof memory, 0, "the amount", prepare, commit, undo, &amount};

    if (sys_xbegin(TX_RESTART) == -1 || txos_enlist(&memory) == -1)
        return -1;
    FILE *file = fopen("left", "w");
    if (!file || fprintf(file, "%ld\n", left - amount) < 0 || fclose(file) != 0)
        sys_xabort(1);
    return sys_xend();
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (take(atol(argv[i])) == -1 && errno != EDQUOT)
            return fprintf(stderr, "%s\n", txos_strerror()), 1;
    return printf("%ld left\n", left) < 0;
}
