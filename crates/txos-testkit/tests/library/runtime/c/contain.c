/* contain [--user UID:GID] DIR... -- COMMAND...
 *
 * Runs a command in a mount namespace where only these directories can be written to, each all of
 * its mount; then as an ordinary user, if asked for.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

static void attributes(const char *path, uint64_t set, uint64_t clear, uint64_t propagation, int flags)
{
    struct mount_attr attr = { set, clear, propagation, 0 };
    if (syscall(SYS_mount_setattr, AT_FDCWD, path, flags, &attr, sizeof attr) != 0) {
        perror(path);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    int at = 1;
    unsigned uid = 0, gid = 0;
    if (argc > 3 && strcmp(argv[1], "--user") == 0) {
        if (sscanf(argv[2], "%u:%u", &uid, &gid) != 2)
            return 2;
        at = 3;
    }
    if (unshare(CLONE_NEWNS) != 0) {
        perror("contain: a mount namespace");
        return 2;
    }
    attributes("/", MOUNT_ATTR_RDONLY, 0, 1 << 18 /* MS_PRIVATE */, AT_RECURSIVE);
    for (; at < argc && strcmp(argv[at], "--") != 0; at++)
        attributes(argv[at], 0, MOUNT_ATTR_RDONLY, 0, 0);
    if (at + 1 >= argc)
        return 2;
    if (uid != 0 && (setgroups(0, NULL) != 0 || setgid(gid) != 0 || setuid(uid) != 0)) {
        perror("contain: an ordinary user");
        return 2;
    }
    /* One that goes round for ever ends, and soon. */
    const struct rlimit seconds = { 10, 10 };
    setrlimit(RLIMIT_CPU, &seconds);
    /* Another user's signal of a parent's death was forgotten. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(argv[at + 1], argv + at + 1);
    perror(argv[at + 1]);
    return 127;
}
