/* victim plain|transaction ROUNDS SECONDS UID DIR PATH SECRET
 *
 * What figure 1 of "Transactional system calls on Linux" shows: a program with root's rights asks
 * whether the user UID who called it may write to PATH, and then writes to it. Between the two the
 * user lets PATH lead to SECRET. Ends after ROUNDS, or after SECONDS; with a transaction, after
 * SECONDS only once some have been committed.
 *
 * Each round ends with a look whether SECRET was written to, which is a win of the attacker's, and,
 * if the transaction was committed, at whether what was written is there, in "target" or "link" of
 * DIR, whichever is the file now.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <time.h>

#include "raw.h"

#define SECRET "nobody's business\n"

static long committed, aborted, refused, wins, lost, checked;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The check, and the use. Whether it was used. */
static bool check_and_use(const char *path, long round)
{
    if (access(path, W_OK) != 0)
        return false;
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return false;
    char line[32];
    int n = snprintf(line, sizeof line, "%ld\n", round);
    bool used = write(fd, line, (size_t)n) == n;
    close(fd);
    return used;
}

static void look_at_secret(const char *secret)
{
    char text[64] = "";
    int fd = open(secret, O_RDWR);
    if (fd < 0 || read(fd, text, sizeof text - 1) < 0) {
        perror("victim: the secret");
        exit(3);
    }
    if (strcmp(text, SECRET) != 0) {
        wins++;
        if (ftruncate(fd, 0) != 0 || pwrite(fd, SECRET, strlen(SECRET), 0) < 0)
            exit(3);
    }
    close(fd);
}

/* The attacker moves the file while it is looked for. */
static void look_at_file(const char *dir, long round)
{
    static const char *const names[] = { "target", "link" };
    char path[4096];
    for (unsigned tries = 0; tries < 10000; tries++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[tries % 2]);
        int fd = open(path, O_RDONLY | O_NOFOLLOW);
        if (fd < 0)
            continue;
        char text[32] = "";
        (void)!read(fd, text, sizeof text - 1);
        close(fd);
        checked++;
        if (strtol(text, NULL, 10) != round) {
            lost++;
            fprintf(stderr, "victim: round %ld was committed, but there is \"%s\"\n", round, text);
        }
        return;
    }
}

int main(int argc, char **argv)
{
    if (argc != 8)
        return 2;
    bool transaction = strcmp(argv[1], "transaction") == 0, look = argv[5][0] != 0;
    long rounds = atol(argv[2]), round = 0;
    double until = now() + atof(argv[3]);
    if (setresuid((uid_t)atoi(argv[4]), 0, 0) != 0)
        return 2;
    const char *dir = argv[5], *path = argv[6], *secret = argv[7];
    /* Many rounds between looks at the clock. */
    while (round < rounds && (round % 16 || now() < until)) {
        round++;
        if (!transaction) {
            refused += !check_and_use(path, 1000000 + round);
        } else if (sys_xbegin(0) != 0) {
            fprintf(stderr, "victim: sys_xbegin: %m: %s\n", txos_strerror());
            return 3;
        } else {
            bool used = check_and_use(path, 1000000 + round);
            if (sys_xend() == 0) {
                committed++;
                if (used && look)
                    look_at_file(dir, 1000000 + round);
                refused += !used;
            } else if (errno == ECANCELED) {
                aborted++;
            } else {
                fprintf(stderr, "victim: sys_xend: %m: %s\n", txos_strerror());
                return 3;
            }
        }
        look_at_secret(secret);
    }
    printf("rounds %ld committed %ld aborted %ld refused %ld wins %ld lost %ld checked %ld\n", round,
           committed, aborted, refused, wins, lost, checked);
    return 0;
}
