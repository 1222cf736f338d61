/* Transactions that check and use a file at the end of a way.
 *
 *   way count DIR DEPTH ROUNDS LOOKS   transactions that look so often, and write
 *   way between CHANGE DIR             the way is changed between two transactions
 *   way during CHANGE DIR              and in the middle of one
 */
#include "raw.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

static char path[8192];

#define MUST(call)                                                                                 \
    ({                                                                                             \
        __typeof__(call) answer_ = (call);                                                         \
        if (answer_ < 0) {                                                                         \
            printf("%s: %s (%s)\n", #call, strerror(errno), txos_strerror());                      \
            exit(1);                                                                               \
        }                                                                                          \
        answer_;                                                                                   \
    })

static const char *at(const char *dir, const char *name)
{
    static char names[4][8192];
    static int next;
    char *to = names[next++ % 4];
    snprintf(to, sizeof names[0], "%s/%s", dir, name);
    return to;
}

static void make_file(const char *name, char fill)
{
    char bytes[16384];
    memset(bytes, fill, sizeof bytes);
    int fd = MUST(open(name, O_WRONLY | O_CREAT, 0644));
    MUST(write(fd, bytes, sizeof bytes));
    MUST(close(fd));
}

static void make_deep(const char *dir, int depth)
{
    snprintf(path, sizeof path, "%s", dir);
    for (int i = 0; i < depth; i++) {
        strcat(path, "/d");
        MUST(mkdir(path, 0755));
    }
    strcat(path, "/file");
    make_file(path, 'x');
}

/* Begins, looks, opens. Returns the descriptor. */
static int check(int looks)
{
    struct stat stat;
    MUST(sys_xbegin(0));
    for (int i = 0; i < looks; i++)
        MUST(lstat(path, &stat));
    return MUST(open(path, O_RDWR));
}

static void use(int fd, const char *text)
{
    MUST((int)pwrite(fd, text, strlen(text), 100));
}

static void transact(int looks)
{
    int fd = check(looks);
    use(fd, "0123456789");
    MUST(sys_xend());
    MUST(close(fd));
}

/* What becomes of DIR/a/b/file. */
static void change(const char *how, const char *dir)
{
    if (!strcmp(how, "moved")) {
        MUST(rename(at(dir, "a"), at(dir, "away")));
    } else if (!strcmp(how, "linked")) {
        MUST(rename(at(dir, "a"), at(dir, "away")));
        MUST(symlink("away", at(dir, "a")));
    } else if (!strcmp(how, "exchanged")) {
        MUST(mkdir(at(dir, "other"), 0755));
        MUST(mkdir(at(dir, "other/b"), 0755));
        make_file(at(dir, "other/b/file"), 'o');
        MUST(rename(at(dir, "a"), at(dir, "away")));
        MUST(rename(at(dir, "other"), at(dir, "a")));
    } else if (!strcmp(how, "carried")) {
        /* Another directory on the way, and the same at its end. */
        MUST(mkdir(at(dir, "other"), 0755));
        MUST(rename(at(dir, "a/b"), at(dir, "other/b")));
        MUST(rmdir(at(dir, "a")));
        MUST(rename(at(dir, "other"), at(dir, "a")));
    } else if (!strcmp(how, "closed")) {
        MUST(chmod(at(dir, "a"), 0));
    } else if (!strcmp(how, "covered")) {
        MUST(mount("none", at(dir, "a"), "tmpfs", 0, NULL));
    } else if (!strcmp(how, "removed")) {
        MUST(unlink(at(dir, "a/b/file")));
    } else if (!strcmp(how, "written")) {
        int fd = MUST(open(at(dir, "a/b/file"), O_WRONLY));
        use(fd, "other");
        MUST(close(fd));
    } else if (strcmp(how, "nothing")) {
        printf("no change is named %s\n", how);
        exit(1);
    }
}

static void make_way(const char *dir)
{
    MUST(mkdir(at(dir, "a"), 0755));
    MUST(mkdir(at(dir, "a/b"), 0755));
    make_file(at(dir, "a/b/file"), 'x');
    snprintf(path, sizeof path, "%s/a/b/file", dir);
    for (int i = 0; i < 4; i++)
        transact(1);
}

static void between(const char *how, const char *dir)
{
    struct stat natively, inside, none;
    make_way(dir);
    change(how, dir);
    int expected = lstat(path, &natively) ? errno : 0;
    MUST(sys_xbegin(0));
    int answer = lstat(path, &inside) ? errno : 0;
    int again = lstat(at(dir, "no such"), &none) ? errno : 0;
    int fd = open(path, O_RDWR);
    int opened = fd < 0 ? errno : 0;
    if (fd >= 0)
        use(fd, "0123456789");
    int ended = sys_xend() ? errno : 0;
    int same = expected || (natively.st_ino == inside.st_ino && natively.st_dev == inside.st_dev);
    printf("%s %s\n",
           answer == expected && opened == expected && again == ENOENT && same ? "natively" : "OTHERWISE",
           ended ? strerror(ended) : "committed");
}

static void during(const char *how, const char *dir)
{
    make_way(dir);
    int fd = check(1);
    long paused = MUST(sys_xpause());
    change(how, dir);
    MUST(sys_xresume(paused));
    use(fd, "9876543210");
    printf("%s\n", sys_xend() ? strerror(errno) : "committed");
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    umask(022);
    if (count == 6 && !strcmp(words[1], "count")) {
        make_deep(words[2], atoi(words[3]));
        for (int i = atoi(words[4]); i > 0; i--)
            transact(atoi(words[5]));
    } else if (count == 4 && !strcmp(words[1], "between")) {
        between(words[2], words[3]);
    } else if (count == 4 && !strcmp(words[1], "during")) {
        during(words[2], words[3]);
    } else {
        return 2;
    }
    return 0;
}
