/* blocks STEP...
 *
 * One durable transaction for each step, in the working directory. "fN" changes one of everything, "lN"
 * some bytes of a file that stays, "nN" some small files by name; N is in all that is written. After each
 * it tells the test (descriptor 8) and waits for it (9). "look" alone looks at one thing in a transaction.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "raw.h"

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "blocks: %s: %m: %s\n", what, txos_strerror());
    exit(3);
}

#define MUST(condition) must(condition, #condition)

/* Bytes that tell where and in which step they were written. */
static void put(const char *name, int flags, off_t at, size_t length, int n)
{
    static char bytes[1 << 16];
    for (size_t i = 0; i < length; i += 16) {
        char word[32];
        snprintf(word, sizeof word, "%03d %010zu\n ", n, i);
        memcpy(bytes + i, word, 16);
    }
    int fd = open(name, O_WRONLY | flags, 0644);
    must(fd >= 0, name);
    ssize_t done = flags & O_APPEND ? write(fd, bytes, length) : pwrite(fd, bytes, length, at);
    MUST(done == (ssize_t)length);
    MUST(close(fd) == 0);
}

static void full(int n)
{
    char name[64], old[64];

    snprintf(name, sizeof name, "made-%d", n);
    snprintf(old, sizeof old, "made-%d", n - 3);
    put(name, O_CREAT | O_EXCL, 0, 6000, n);
    MUST(unlink(old) == 0 || errno == ENOENT);
    put("conf.new", O_CREAT | O_EXCL, 0, 4000, n);
    MUST(rename("conf.new", "conf") == 0);
    if (access("here", F_OK) == 0)
        MUST(rename("here", "there") == 0);
    else
        MUST(rename("there", "here") == 0);
    put("pages", 0, n % 8 * 12288, 5008, n);
    put("log", O_APPEND, 0, 64, n);
    put("other/one", O_APPEND, 0, 48, n);
    MUST(chmod("attributes", n % 2 ? 0640 : 0750) == 0);
    snprintf(name, sizeof name, "tree-%d", n);
    MUST(mkdir(name, 0755) == 0);
    snprintf(name, sizeof name, "tree-%d/file", n);
    put(name, O_CREAT | O_EXCL, 0, 9008, n);
}

static void light(int n)
{
    put("cells", 0, 0, 112, n);
    put("cells", 0, 4000, 208, n);
    put("cells", 0, n % 5 * 4096 + 8192, 512, n);
}

/* A new file, others in place of what is there or is not, and one that goes. "spool/outside" comes and goes by
 * somebody else's hand. */
static void names(int n)
{
    char name[64];

    snprintf(name, sizeof name, "spool/made-%d", n);
    put(name, O_CREAT | O_EXCL, 0, 1504, n);
    put("spool/again.new", O_CREAT | O_EXCL, 0, 16 * (n % 7), n);
    MUST(rename("spool/again.new", "spool/again") == 0);
    snprintf(name, sizeof name, "spool/made-%d", n - 2);
    MUST(unlink(name) == 0 || errno == ENOENT);
    put("other/small.new", O_CREAT | O_EXCL, 0, 304, n);
    MUST(rename("other/small.new", "other/small") == 0);
    if (unlink("spool/outside") != 0) {
        MUST(errno == ENOENT);
        put("spool/outside", O_CREAT | O_EXCL, 0, 48, n);
    }
}

int main(int argc, char **argv)
{
    struct stat conf;
    if (argc == 2 && strcmp(argv[1], "look") == 0) {
        MUST(sys_xbegin(0) == 0 && stat("conf", &conf) == 0 && sys_xend() == 0);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        char byte;
        int n = atoi(argv[i] + 1);
        MUST(sys_xbegin(TX_DURABLE) == 0);
        if (argv[i][0] == 'f')
            full(n);
        else if (argv[i][0] == 'n')
            names(n);
        else
            light(n);
        MUST(sys_xend() == 0);
        MUST(write(8, "", 1) == 1);
        MUST(read(9, &byte, 1) == 1);
    }
    return 0;
}
