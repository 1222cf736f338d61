/* What test programs say when something is not as it is to be, and a conflict on demand. */
#ifndef TXOS_TESTS_CHECK_H
#define TXOS_TESTS_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "txos.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            int error = errno;                                                                     \
            if (txos_in_transaction())                                                             \
                sys_xabort(1);                                                                     \
            fprintf(stderr, "%s:%d: %s (errno %d; %s)\n", __func__, __LINE__, #what, error,        \
                    txos_strerror());                                                              \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* In debug builds of the library an `ioctl` with this number is a lost conflict. */
#define LOSE 0x7458054c

/* The `main` of a program that runs the one of its scenarios that its argument names. */
#define RUN_ONE_OF(scenarios)                                                                      \
    int main(int argc, char **argv) {                                                              \
        for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++)             \
            if (strcmp(argv[1], scenarios[i].name) == 0) {                                         \
                scenarios[i].run();                                                                \
                return 0;                                                                          \
            }                                                                                      \
        return 99;                                                                                 \
    }

#endif
