/* What TX_CHECKPOINT costs: prints medians in nanoseconds of beginning, of the first write to a page, of the
 * commit, and of an abort.
 *
 *     checkpoint PAGES ROUNDS plain|checkpoint
 *
 * The process has so many pages in memory, and writes to a hundredth of them, a thousand at the most. */
#include "common.h"

#include <sys/mman.h>

#ifdef NATIVE
#define TX_CHECKPOINT 8
#endif

enum { BEGIN, TOUCH, COMMIT, ABORT, KINDS };

/* What memory is not put back to. */
static struct {
    double took[KINDS][1000];
    double start;
} *kept;

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void write_to(char *memory, size_t pages, size_t touched) {
    for (size_t i = 0; i < touched; i++)
        ((volatile char *)memory)[i * (pages / touched) * 4096]++;
}

/* The first abort with TX_CHECKPOINT warns that shared memory stays as it is. Here that is what it is for. */
static void warn_unseen(int flags) {
    int errors = dup(2), nowhere = open("/dev/null", O_WRONLY);
    if (errors < 0 || nowhere < 0 || dup2(nowhere, 2) < 0)
        die("standard error");
#ifndef NATIVE
    if (sys_xbegin(flags) == 0)
        sys_xabort(1);
#endif
    if (dup2(errors, 2) < 0)
        die("standard error");
    close(errors), close(nowhere);
}

int main(int argc, char **argv) {
    static const char *const names[KINDS] = {"begin", "touch", "commit", "abort"};
    if (argc != 4)
        return 2;
    size_t pages = atol(argv[1]), touched = pages / 100 < 1000 ? pages / 100 : 1000;
    int rounds = atoi(argv[2]);
    int flags = strcmp(argv[3], "checkpoint") ? 0 : TX_CHECKPOINT;
    kept = mmap(NULL, sizeof *kept, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *memory = mmap(NULL, (pages + 1) * 4096, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (kept == MAP_FAILED || memory == MAP_FAILED || rounds > 1000)
        die("memory");
    madvise(memory, pages * 4096, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < pages; i++)
        memory[i * 4096] = 1;
    if (flags)
        warn_unseen(flags);
    for (int round = -3; round < rounds; round++) {
        int at = round < 0 ? 0 : round;
        double start = now();
        MUST(sys_xbegin(flags));
        kept->took[BEGIN][at] = now() - start;
        start = now();
        write_to(memory, pages, touched);
        kept->took[TOUCH][at] = touched ? (now() - start) / touched : 0;
        start = now();
        MUST(sys_xend());
        kept->took[COMMIT][at] = now() - start;
#ifndef NATIVE
        if (sys_xbegin(flags) == 0) {
            write_to(memory, pages, touched);
            kept->start = now();
            sys_xabort(1);
        }
#endif
        kept->took[ABORT][at] = now() - kept->start;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        qsort(kept->took[kind], rounds, sizeof(double), compare);
        printf("%s %.0f\n", names[kind], kept->took[kind][rounds / 2]);
    }
    return 0;
}
