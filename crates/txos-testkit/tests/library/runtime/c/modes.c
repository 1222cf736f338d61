/* Files whose mode keeps their owner out: what was opened, or changed in the same transaction, counts nevertheless.
 *
 *     modes
 *
 * In the working directory, as an ordinary user. Compiled without the library, all is as natively. Prints what each case leaves.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "raw.h"

static int number;

static void begin(void)
{
    if (sys_xbegin && sys_xbegin(0) != 0)
        printf("%d: begin: %s\n", number, txos_strerror());
}

static void end(void)
{
    if (sys_xend && sys_xend() != 0)
        printf("%d: end: %s, %s\n", number, strerrorname_np(errno), txos_strerror());
}

/* A file of some bytes, open to read and write. */
static int made(const char *name, int size, int mode)
{
    static char bytes[8192];
    memset(bytes, 'o', sizeof bytes);
    number++;
    int fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (fd < 0 || write(fd, bytes, size) != size || fchmod(fd, mode) != 0)
        printf("%d: making %s: %s\n", number, name, strerrorname_np(errno));
    return fd;
}

static void all(long answer, long expected)
{
    if (answer != expected)
        printf("%d: %ld instead of %ld: %s\n", number, answer, expected, strerrorname_np(errno));
}

/* What a file is now. */
static void look(int fd)
{
    struct stat stat;
    char bytes[16] = "";
    long got = fstat(fd, &stat) == 0 ? pread(fd, bytes, 8, 0) : -1;
    printf("%d: %ld bytes, mode %o, %.8s\n", number, (long)stat.st_size, stat.st_mode & 07777, got > 0 ? bytes : "-");
}

int main(void)
{
    int fd = made("mapped", 30, 0644);
    begin();
    all(fchmod(fd, 0), 0);
    char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) {
        memory[3] = 'M';
        munmap(memory, 4096);
    }
    end();
    look(fd);

    fd = made("longer", 30, 0644);
    begin();
    all(ftruncate(fd, 100), 0);
    all(fchmod(fd, 0), 0);
    end();
    look(fd);
    /* Whatever became of these, the store is in order. */
    begin();
    all(pwrite(fd, "x", 1, 0), 1);
    end();
    look(fd);

    /* Its owner may not write to it, but had it open: again and again. */
    fd = made("read-only", 30, 0444);
    for (int i = 0; i < 3; i++) {
        begin();
        all(ftruncate(fd, 100 + i), 0);
        end();
        begin();
        all(pwrite(fd, "zz", 2, i), 2);
        end();
        look(fd);
    }

    /* By two names. */
    fd = made("first", 30, 0444);
    all(link("first", "second"), 0);
    begin();
    all(pwrite(fd, "l", 1, 0), 1);
    all(ftruncate(fd, 60), 0);
    end();
    look(fd);

    /* Without a name. */
    fd = made("gone", 10, 0600);
    all(unlink("gone"), 0);
    all(fchmod(fd, 0), 0);
    begin();
    all(ftruncate(fd, 300000), 0);
    all(pwrite(fd, "abc", 3, 0), 3);
    end();
    look(fd);

    fd = made("written", 30, 0644);
    begin();
    all(chmod("written", 0), 0);
    all(ftruncate(fd, 90000), 0);
    all(pwrite(fd, "x", 1, 5), 1);
    end();
    look(fd);
    return 0;
}
