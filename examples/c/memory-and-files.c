/* Changes memory and a file in one atomic block of GCC's transactional memory: both, or neither.
 *     gcc -fgnu-tm -o memory-and-files memory-and-files.c $(txos config --cflags --libs)
 *     ./memory-and-files FILE
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <txos.h>

#define PURE __attribute__((transaction_pure))
PURE extern void _ITM_addUserCommitAction(void (*)(void *), uint64_t, void *); /* of libitm */
PURE extern void _ITM_addUserUndoAction(void (*)(void *), void *);
static void end(void *commits) { /* nothing is prepared: EINVAL */
    if (txos_finish(commits != NULL) != 0 && commits != NULL)
        fprintf(stderr, "the file is not as memory is: %s\n", txos_strerror());
    sys_xabort(1);
}
PURE static int begin(void) { /* it waits for no thread that may wait for this one */
    _ITM_addUserUndoAction(end, NULL);
    return sys_xbegin(TX_NONBLOCK) == 0;
}
PURE static int write_and_prepare(const char *path, long number) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0666);
    int good = fd >= 0 && dprintf(fd, "%ld\n", number) > 0 && close(fd) == 0;
    _ITM_addUserCommitAction(end, 1, "commit");
    return good && txos_prepare() == 0;
}
int main(int count, char **arguments) {
    static long number;
    int done = 0;
    for (int tries = 0; count == 2 && !done && tries < 100; tries++)
        __transaction_atomic {
            number++;
            if (!begin() || !write_and_prepare(arguments[1], number))
                __transaction_cancel;
            done = 1;
        }
    return done ? printf("%ld in memory\n", number) < 0 : 1;
}
