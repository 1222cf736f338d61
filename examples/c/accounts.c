/* Adds an account to the three files that must agree on it.
 *
 *     cc -o accounts accounts.c $(txos config --cflags --libs)
 *     ./accounts plain|wrapped DIR NAME [STEP]
 *
 * With STEP the program dies there, as if by a power cut. Without a transaction it then leaves an account without a
 * password, or one without a group; in one, an account in all three files or in none. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <txos.h>

static int step, last;

static int add(const char *file, const char *format, const char *name)
{
    char line[200];
    int size = snprintf(line, sizeof line, format, name, name), fd;

    if (++step == last)
        raise(SIGKILL);
    fd = open(file, O_WRONLY | O_APPEND | O_CREAT, 0600);
    return fd == -1 || write(fd, line, (size_t)size) != size ? -1 : close(fd);
}

int main(int argc, char **argv)
{
    if (argc < 4 || strlen(argv[3]) > 32 || chdir(argv[2]) == -1)
        return 2;
    int wrapped = !strcmp(argv[1], "wrapped");
    last = argc > 4 ? atoi(argv[4]) : 0;
    if (wrapped && sys_xbegin(TX_DURABLE) == -1)
        return fprintf(stderr, "%s\n", txos_strerror()), 1;
    int failed = add("passwd", "%s:x:1000:1000::/home/%s:/bin/sh\n", argv[3]) == -1 ||
                 add("shadow", "%s:!:20000::::::\n", argv[3]) == -1 || add("group", "%s:x:1000:\n", argv[3]) == -1;
    if (++step == last)
        raise(SIGKILL);
    if (wrapped && !failed && sys_xend() == -1)
        return fprintf(stderr, "%s\n", txos_strerror()), 1;
    return failed;
}
