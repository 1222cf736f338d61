/* Threads that share memory under a mutex, and a file with other programs, in transactions.
 *
 *     cc -pthread -o tally tally.c $(txos config --cflags --libs)
 *     echo 0 > total
 *     ./tally ROUNDS
 *
 * Each round adds one to a number in memory and to that in the file "total". A thread takes the mutex before it begins
 * and gives it back after the end, so none sees the memory of a round that is aborted. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <txos.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long here;

static void *add(void *rounds)
{
    pthread_mutex_lock(&mutex);
    long all = 0, attempt = sys_xbegin(TX_RESTART);
    FILE *file = attempt < 0 ? NULL : fopen("total", "r+");
    if (!file || fscanf(file, "%ld", &all) > 1 || fseek(file, 0, SEEK_SET) != 0 ||
        fprintf(file, "%ld\n", all + 1) < 0 || fclose(file) != 0 || sys_xend() == -1)
        perror("total"), exit(1);
    here++;
    pthread_mutex_unlock(&mutex);
    return --*(long *)rounds > 0 ? add(rounds) : NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[4];
    long rounds[4];

    for (int i = 0; i < 4; i++)
        rounds[i] = argc == 2 ? atol(argv[1]) : 1, pthread_create(&threads[i], NULL, add, &rounds[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return printf("%ld\n", here), 0;
}
