/* A consumer that starts with its producer, and commits after it.
 *
 *     cc -o after after.c $(txos config --cflags --libs)
 *     ./after & ./after NUMBER
 *
 * The producer writes numbers into a file; the consumer adds them up. Where it looks at them, it waits for the commit. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <txos.h>

static int produce(int last)
{
    if (txos_name("producer") == -1 || sys_xbegin(TX_RESTART) == -1)
        return -1;
    FILE *file = fopen("numbers", "w");
    for (int i = 1; file && i <= last; i++)
        fprintf(file, "%d\n", i);
    if (!file || fclose(file) != 0 || sleep(1) != 0)
        sys_xabort(1);
    return sys_xend();
}

static int consume(void)
{
    long attempt, number, sum;
    while ((attempt = sys_xbegin(TX_RESTART | TX_AFTER, "producer")) == -1)
        usleep(1000); /* it has not begun */
    FILE *in = fopen("numbers", "r"), *out = fopen("sum", "w");
    for (sum = 0; in && fscanf(in, "%ld", &number) == 1;)
        sum += number;
    if (!in || !out || fprintf(out, "%ld\n", sum) < 0 || fclose(in) != 0 || fclose(out) != 0)
        sys_xabort(attempt > 0); /* if it came too early: once more, after the producer */
    return sys_xend();
}

int main(int argc, char **argv)
{
    return (argc > 1 ? produce(atoi(argv[1])) : consume()) != 0;
}
