/* Checks a file and then writes to it, so many directories deep; prints the median time in nanoseconds.
 *
 *     deep DIR DEPTH ROUNDS look|write
 *
 * lstat, open and one pwrite; or two times lstat. In a transaction, or natively. */
#include "common.h"

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static char path[4096], bytes[8192];
    struct stat stat;
    if (argc != 5)
        return 2;
    int depth = atoi(argv[2]), rounds = atoi(argv[3]), writes = !strcmp(argv[4], "write");
    snprintf(path, sizeof path, "%s", argv[1]);
    MUST(mkdir(path, 0755));
    for (int i = 0; i < depth; i++) {
        strcat(path, "/d");
        MUST(mkdir(path, 0755));
    }
    strcat(path, "/file");
    memset(bytes, 'x', sizeof bytes);
    int fd = MUST(open(path, O_WRONLY | O_CREAT | O_EXCL, 0644));
    MUST((int)pwrite(fd, bytes, sizeof bytes, 0));
    MUST(close(fd));
    double *took = calloc(rounds, sizeof *took);
    pin(0);
    /* The first transactions of a process open its store, and learn the way. */
    for (int round = -32; round < rounds; round++) {
        double start = now();
        MUST(sys_xbegin(0));
        MUST(lstat(path, &stat));
        if (writes) {
            fd = MUST(open(path, O_RDWR));
            MUST((int)pwrite(fd, "0123456789", 10, 100));
        } else {
            MUST(lstat(path, &stat));
        }
        MUST(sys_xend());
        if (round >= 0)
            took[round] = now() - start;
        if (writes)
            MUST(close(fd));
    }
    qsort(took, rounds, sizeof *took, compare);
    printf("ns %.0f\n", took[rounds / 2]);
    return 0;
}
