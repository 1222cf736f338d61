/* Changes memory and a file in one atomic block of GCC's transactional memory: both, or neither.
 *     gcc -fgnu-tm -o memory-and-files memory-and-files.c $(txos config --cflags --libs) && ./memory-and-files FILE
 * With -O1 and more a cancelled block keeps what it has itself both read and written (a defect of libitm up to GCC 12 at
 * least), so set() writes. With several threads also set ITM_DEFAULT_METHOD=ml_wt. */
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
__attribute__((transaction_safe, noipa)) static void set(long *where, long number) { *where = number; }
int main(int count, char **arguments) {
    static long number, done, tries;
    for (; count == 2 && !done && tries < 100; tries++)
        __transaction_atomic {
            set(&number, number + 1);
            if (!begin() || !write_and_prepare(arguments[1], number))
                __transaction_cancel;
            done = 1;
        }
    return printf("%s, %ld in memory\n", done ? "done" : "not done", number) < 0 || !done;
}
