/* A counter in a file that is locked while it is read and written, by processes in transactions and by processes outside.
 * Arguments: "in" or "out"; "record" or "file"; how often. Prints how many times it has counted. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "check.h"

/* Adds one, and closes the file, which gives the lock up. */
static int count(int record) {
    char text[16] = {0};
    int fd = open("counter", O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fd < 0 || (record ? fcntl(fd, F_SETLKW, &lock) : flock(fd, LOCK_EX)) != 0)
        return -1;
    if (pread(fd, text, 11, 0) != 11)
        return -1;
    snprintf(text, sizeof text, "%010d\n", atoi(text) + 1);
    if (pwrite(fd, text, 11, 0) != 11)
        return -1;
    return close(fd);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    int inside = !strcmp(argv[1], "in"), record = !strcmp(argv[2], "record"), counted = 0;
    for (int rounds = atoi(argv[3]); rounds > 0;) {
        if (!inside) {
            CHECK(count(record) == 0);
            counted++, rounds--;
            continue;
        }
        CHECK(sys_xbegin(0) == 0);
        int done = count(record);
        if (done != 0 && errno != ECANCELED)
            fprintf(stderr, "%s\n", strerror(errno));
        if (sys_xend() == 0) {
            CHECK(done == 0);
            counted++, rounds--;
        } else {
            struct txos_abort why = {.size = sizeof why};
            CHECK(txos_abort_reason(&why) == 0 && why.reason == TXOS_CONFLICT);
        }
    }
    printf("%d\n", counted);
    return 0;
}
