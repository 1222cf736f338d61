/* Changes two configuration files that must agree: nobody sees one without the other.
 *
 *     cc -o two-files two-files.c $(txos config --cflags --libs)
 *     ./two-files PORT
 *
 * Writes the port to app.conf and proxy.conf in the current directory, and the one of before to
 * port.old. The second file may fail (try `chattr +i proxy.conf`): then the first has not changed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <txos.h>

/* Whether it was written. */
static int put(const char *path, const char *format, const char *value)
{
    FILE *file = fopen(path, "w");
    int good;

    if (!file)
        return 0;
    good = fprintf(file, format, value) > 0;
    return fclose(file) == 0 && good;
}

static int change(const char *port)
{
    char old[64] = "";
    FILE *file = fopen("app.conf", "r");

    if (file) {
        if (fscanf(file, "port = %63s", old) != 1)
            old[0] = '\0';
        fclose(file);
    }
    return put("port.old", "%s\n", old) && put("app.conf", "port = %s\n", port)
        && put("proxy.conf", "backend = localhost:%s\n", port);
}

/* 0: changed; 1: not, for good; -1: somebody else has changed them meanwhile. (sys_xbegin() may return
 * twice, as setjmp() does, so a function of its own keeps it away from other variables.) */
static int attempt(const char *port)
{
    struct txos_abort why = { .size = sizeof why };

    if (sys_xbegin(TX_DURABLE) == -1) {
        fprintf(stderr, "%s\n", txos_strerror());
        return 1;
    }
    if (!change(port)) {
        perror("nothing has changed");
        sys_xabort(1);
    } else if (sys_xend() == 0) {
        return 0;
    }
    txos_abort_reason(&why);
    if (why.reason == TXOS_CONFLICT)
        return -1;
    if (why.reason != TXOS_ASKED)
        fprintf(stderr, "nothing has changed: %s\n", why.what);
    return 1;
}

int main(int argc, char **argv)
{
    int result;

    if (argc != 2)
        return 2;
    do
        result = attempt(argv[1]);
    while (result == -1);
    return result;
}
