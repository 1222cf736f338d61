/* faults commit|durable|light|durable-light|names|durable-names|lock|move
 *
 * What change.c does, or small changes of files that stay ("light"), or small files by name ("names"), or an append and
 * a rename beside which a lock file comes and goes, or a file's move by link and unlink, in a transaction that may fail anywhere: then it tells why, sees to it that it has as many
 * descriptors as before, and exits with 125; with 4 if it has not. "plain", "plain-light",
 * "plain-names", "plain-lock" and "plain-move": natively.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "raw.h"

_Noreturn static void give_up(void);

/* A call that fails within gives the transaction up. */
#define main change_main
#define exit(status) give_up()
#include "change.c"
#undef main
#undef exit

enum { NUMBERS = 70000, PROGRAM = 1000 };

static bool before[NUMBERS], counted, within;

static void count_descriptors(void)
{
    for (int fd = 0; fd < NUMBERS; fd++)
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    counted = true;
}

static int descriptors_left(void)
{
    int left = 0;
    for (int fd = 0; counted && fd < NUMBERS; fd++) {
        bool open_now = fcntl(fd, F_GETFD) >= 0;
        /* Of what it keeps for itself, in numbers far above, the library may let go. */
        if (open_now == before[fd] || (fd >= PROGRAM && !open_now))
            continue;
        char link[40], path[200] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, path, sizeof path - 1) < 0)
            strcpy(path, "closed");
        /* The lock of a place of private copies that is kept for the next transaction. */
        if (fd >= PROGRAM && strstr(path, "/tx/") != NULL && strstr(path, "/lock") != NULL)
            continue;
        fprintf(stderr, "faults: descriptor %d: %s\n", fd, path);
        left++;
    }
    return left;
}

_Noreturn static void give_up(void)
{
    if (within)
        sys_xabort(1);
    fprintf(stderr, "faults: %s\n", txos_strerror());
    _exit(descriptors_left() == 0 ? 125 : 4);
}

static void change_lightly(void)
{
    int fd = open("pages", O_RDWR);
    MUST(fd >= 0);
    MUST(pwrite(fd, "patched", 7, 40960) == 7 && pwrite(fd, "too", 3, 122880) == 3);
    MUST(close(fd) == 0);
    fd = open("mapped", O_RDWR);
    MUST(fd >= 0 && pwrite(fd, "across pages", 12, 4090) == 12 && close(fd) == 0);
}

static void change_names(void)
{
    const char *made[] = {"d/inner/new", "changed.new", "known/small"};
    for (int i = 0; i < 3; i++) {
        int fd = open(made[i], O_WRONLY | O_CREAT | O_EXCL, 0640);
        MUST(fd >= 0 && write(fd, "written\n", 8) == 8 && close(fd) == 0);
    }
    MUST(rename("changed.new", "d/x") == 0);
    MUST(unlink("removed") == 0);
}

static void change_locked(void)
{
    int lock = open("turn/lock", O_WRONLY | O_CREAT | O_EXCL, 0600);
    MUST(lock >= 0 && close(lock) == 0);
    int fd = open("log", O_WRONLY | O_APPEND);
    MUST(fd >= 0 && write(fd, "more\n", 5) == 5 && close(fd) == 0);
    MUST(rename("turns", "d/turned") == 0);
    MUST(unlink("turn/lock") == 0);
}

static void move(void)
{
    MUST(link("changed", "d/inner/moved") == 0);
    MUST(unlink("changed") == 0);
}

static void begin(int flags)
{
    if (sys_xbegin(flags) < 0) {
        fprintf(stderr, "faults: sys_xbegin: %m\n");
        give_up();
    }
    within = true;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    bool light = strstr(mode, "light") != NULL, moves = strstr(mode, "move") != NULL;
    bool names = strstr(mode, "names") != NULL, locks = strstr(mode, "lock") != NULL;
    void (*what)(void) = locks ? change_locked : light ? change_lightly : names ? change_names : moves ? move : change;
    umask(022);
    if (strncmp(mode, "plain", 5) == 0) {
        what();
        return 0;
    }
    /* What is opened once and kept is opened now. */
    begin(0);
    what();
    /* Part of a transaction of several calls. */
    (void)access("changed", F_OK);
    sys_xabort(1);
    within = false;
    count_descriptors();
    begin(strncmp(mode, "durable", 7) == 0 ? TX_DURABLE : 0);
    what();
    if (sys_xend() == 0)
        return 0;
    fprintf(stderr, "faults: sys_xend: %m\n");
    within = false;
    give_up();
}
