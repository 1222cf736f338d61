/* change plain|commit|durable|segv [MARK [STAGE]]
 *
 * One of everything, in the working directory, natively ("plain") or in a transaction; "segv" dies
 * of its own fault at its end, within. MARK is a file of one byte that is mapped before, and tells
 * how far it has come: one for each step, 100 at sys_xend(), 101 after it. At STAGE it waits to be
 * killed.
 *
 * Exits with 125 if the transaction could not be committed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "raw.h"

static volatile unsigned char nowhere, *mark = &nowhere;
static int stage = -1;

static void step(int n)
{
    *mark = (unsigned char)n;
    while (n == stage)
        ;
}

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "change: %s: %m\n", what);
    exit(125);
}

#define MUST(condition) must(condition, #condition)

static void put(const char *name, int flags, const char *text)
{
    int fd = open(name, O_WRONLY | flags, 0644);
    must(fd >= 0, name);
    MUST(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    MUST(close(fd) == 0);
}

static void change(void)
{
    step(1);
    put("changed", O_TRUNC, "new\n");
    MUST(unlink("removed") == 0);
    step(2);
    MUST(rename("d", "moved") == 0);
    put("moved/x", O_APPEND, "again\n");
    step(3);
    MUST(mkdir("new", 0755) == 0 && mkdir("new/deep", 0755) == 0);
    put("new/deep/file", O_CREAT, "f\n");
    MUST(symlink("../x", "new/link") == 0 && mkfifo("new/pipe", 0644) == 0);
    step(4);
    MUST(unlink("gone/deep/file") == 0 && rmdir("gone/deep") == 0 && rmdir("gone") == 0);
    MUST(chmod("attributes", 04750) == 0 && chown("attributes", 1, 2) == 0);
    MUST(setxattr("attributes", "user.x", "y", 1, 0) == 0);
    step(5);
    put("other/one", O_APPEND, "more\n");
    put("known/lost", O_APPEND, "seen by its other name\n");
    MUST(chmod("known/lost", 0600) == 0 && unlink("known/lost") == 0);
    MUST(chmod("known/pipe", 0600) == 0 && unlink("known/pipe") == 0 && rmdir("known") == 0);
    MUST(unlink("link") == 0 && symlink("elsewhere", "link") == 0);
    MUST(unlink("turns") == 0 && mkdir("turns", 0755) == 0);
    put("turns/in", O_CREAT, "in\n");
    step(6);
    MUST(unlink("turn/t") == 0 && rmdir("turn") == 0);
    put("turn", O_CREAT, "now a file\n");
    MUST(link("log", "log2") == 0);
    put("log", O_APPEND, "line\n");
    step(7);
    int fd = open("pages", O_RDWR);
    MUST(pwrite(fd, "patched", 7, 40960) == 7 && pwrite(fd, "too", 3, 122880) == 3);
    MUST(close(fd) == 0);
    fd = open("mapped", O_RDWR);
    char *bytes = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(bytes != MAP_FAILED);
    memcpy(bytes + 4090, "across pages", 12);
    MUST(munmap(bytes, 8192) == 0 && close(fd) == 0);
    const struct timespec times[2] = { { 1100000000, 0 }, { 1100000000, 0 } };
    MUST(utimensat(AT_FDCWD, "other", times, 0) == 0);
    step(8);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    const char *mode = argv[1];
    if (argc > 2) {
        int fd = open(argv[2], O_RDWR);
        mark = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        MUST(fd >= 0 && mark != MAP_FAILED);
        close(fd);
    }
    if (argc > 3)
        stage = atoi(argv[3]);
    umask(022);
    if (strcmp(mode, "plain") == 0) {
        change();
        return 0;
    }
    if (sys_xbegin(strcmp(mode, "durable") == 0 ? TX_DURABLE : 0) != 0) {
        fprintf(stderr, "change: sys_xbegin: %m: %s\n", txos_strerror());
        return 125;
    }
    change();
    if (strcmp(mode, "segv") == 0)
        *(volatile int *)8 = 1;
    step(100);
    if (sys_xend() != 0) {
        fprintf(stderr, "change: sys_xend: %m: %s\n", txos_strerror());
        return 125;
    }
    step(101);
    return 0;
}
