/* Logs past a transaction: what was tried is in the log, also if nothing came of it.
 *
 *     cc -o log log.c $(txos config --cflags --libs)
 *     ./log LOG FILE...
 *
 * Removes all of the files, or none. A line of the log says what is tried with each, and stays. Between sys_xpause and
 * sys_xresume it is not part of the transaction. (What syslog() is told never is.) */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <txos.h>

static int file;

static void note(const char *what, const char *name)
{
    long id = sys_xpause(); /* -1: in no transaction */

    dprintf(file, "%s %s\n", what, name);
    if (id != -1 && sys_xresume(id) == -1)
        abort();
}

int main(int argc, char **argv)
{
    file = argc > 2 ? open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    if (file == -1 || sys_xbegin(0) == -1)
        return perror("log"), 2;
    for (int i = 2; i < argc; i++) {
        note("removing", argv[i]);
        if (unlink(argv[i]) == -1) {
            sys_xabort(1);
            return note("nothing is removed, for want of", argv[i]), 1;
        }
    }
    return sys_xend() == 0 ? 0 : (note("nothing is removed:", txos_strerror()), 1);
}
