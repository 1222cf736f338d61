/* Changes a server's configuration and has the server read it: the signal comes with the new file, or not at all.
 *
 *     cc -o reload reload.c $(txos config --cflags --libs)
 *     ./reload PID LINE
 *
 * Writes the line to app.conf and sends SIGHUP to the process. The signal waits for the commit. If the process is
 * gone by now, kill() says so, and app.conf is as it was. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <txos.h>

static int change(const char *line, int pid)
{
    FILE *file = fopen("app.conf", "w");

    if (!file || fprintf(file, "%s\n", line) < 0 || fclose(file) != 0)
        return -1;
    return kill(pid, SIGHUP);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    if (sys_xbegin(0) == -1)
        return 1;
    if (change(argv[2], atoi(argv[1])) == -1) {
        perror("nothing has changed");
        sys_xabort(1);
        return 1;
    }
    if (sys_xend() == 0)
        return 0;
    fprintf(stderr, "nothing has changed: %s\n", txos_strerror());
    return 1;
}
