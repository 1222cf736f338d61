/* Reads a file only if it is a regular file of the user who asks: check and use are one operation.
 *
 *     cc -o safe-open safe-open.c $(txos config --cflags --libs)
 *     ./safe-open FILE
 *
 * Without a transaction, somebody could put a link to another file in its place between lstat()
 * and open(). Here the read that follows such an exchange can't commit, and nothing is printed
 * before the commit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <txos.h>

/* What was read; -1: refused. */
static ssize_t read_own(const char *path, char *bytes, size_t room)
{
    struct stat st;
    ssize_t size;
    int fd;

    if (lstat(path, &st) == -1 || !S_ISREG(st.st_mode) || st.st_uid != getuid())
        return -1;
    fd = open(path, O_RDONLY);
    if (fd == -1)
        return -1;
    size = read(fd, bytes, room);
    close(fd);
    return size;
}

int main(int argc, char **argv)
{
    static char bytes[65536];
    ssize_t size;

    if (argc != 2)
        return 2;
    for (;;) {
        if (sys_xbegin(0) == -1) {
            fprintf(stderr, "%s\n", txos_strerror());
            return 1;
        }
        size = read_own(argv[1], bytes, sizeof bytes);
        if (sys_xend() == 0)
            break;
        if (errno != ECANCELED) {
            fprintf(stderr, "%s\n", txos_strerror());
            return 1;
        }
        /* Somebody has changed something between check and use: look again. */
    }
    if (size == -1) {
        fprintf(stderr, "%s: refused\n", argv[1]);
        return 1;
    }
    return fwrite(bytes, 1, (size_t)size, stdout) == (size_t)size ? 0 : 1;
}
