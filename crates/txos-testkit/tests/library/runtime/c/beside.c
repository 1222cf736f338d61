/* A durable transaction that adds a file to a directory, or removes one: beside add|remove NAME. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "txos.h"

int main(int argc, char **argv)
{
    const char *name = argc > 2 ? argv[2] : "";
    if (sys_xbegin(TX_DURABLE) != 0)
        return 2;
    if (strcmp(argv[1], "add") == 0) {
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd < 0 || write(fd, "ours\n", 5) != 5 || close(fd) != 0)
            return 3;
    } else if (unlink(name) != 0) {
        return 4;
    }
    if (sys_xend() != 0) {
        printf("%s: %s\n", strerrorname_np(errno), txos_strerror());
        return 1;
    }
    return 0;
}
