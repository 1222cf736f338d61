/* Prints what an empty transaction takes from C, in nanoseconds: the fastest of some rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <txos.h>

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1, count = argc > 2 ? atoi(argv[2]) : 1;
    long long best = -1;
    for (int round = 0; round < rounds; round++) {
        long long start = now();
        for (int i = 0; i < count; i++)
            if (sys_xbegin(0) < 0 || sys_xend() < 0) {
                fprintf(stderr, "%s\n", txos_strerror());
                return 1;
            }
        long long each = (now() - start) / count;
        if (best < 0 || each < best)
            best = each;
    }
    printf("%lld\n", best);
    return 0;
}
