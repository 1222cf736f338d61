/* A transaction that changes names of small files, and is killed at its commit.
 *
 *   between light|full   rewrites a and c in new files that take their places, makes b, removes d, and appends to e; with full
 *                        also what the log of light commits does not take
 *   between sigio        commits so that the store's journal is used, and says whether SIGIO still has its handler
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "txos.h"

static void failed(const char *what)
{
    printf("%s: %s: %s\n", what, strerrorname_np(errno), txos_strerror());
    exit(1);
}

static void put(const char *name, int flags, const char *text, size_t length)
{
    int fd = open(name, flags, 0644);
    if (fd < 0 || write(fd, text, length) != (ssize_t)length || close(fd) != 0)
        failed(name);
}

/* What it holds, and a line more. */
static void rewrite(const char *name, const char *made)
{
    char text[4096];
    int fd = open(name, O_RDONLY);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 16);
    if (length < 0)
        failed(name);
    close(fd);
    memcpy(text + length, "ours\n", 5);
    put(made, O_WRONLY | O_CREAT | O_EXCL, text, length + 5);
    if (rename(made, name) != 0)
        failed("rename");
}

static volatile int came;

static void handler(int signal)
{
    came = signal;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGIO, &action, NULL);
    if (sys_xbegin(0) != 0)
        failed("sys_xbegin");
    rewrite("a", "a.new");
    put("b", O_WRONLY | O_CREAT | O_EXCL, "ours\n", 5);
    rewrite("c", "c.new");
    if (unlink("d") != 0)
        failed("unlink");
    put("e", O_WRONLY | O_APPEND, "ours\n", 5);
    if (strcmp(mode, "light") != 0 && (mkdir("new", 0755) != 0 || chmod("f", 0600) != 0))
        failed("the rest");
    if (sys_xend() != 0)
        failed("sys_xend");
    if (strcmp(mode, "sigio") == 0) {
        raise(SIGIO);
        printf("%s\n", came == SIGIO ? "there" : "gone");
    }
    return 0;
}
