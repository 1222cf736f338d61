/* A 64-bit program that makes 32-bit calls: prints what is in the file that it is told. Its memory is below
   4 GiB (-static -no-pie), so that such a call can name it. */
#include <stdio.h>
#include <string.h>

static char path[4096], text[4096];

static long old(long number, long a, long b, long c) {
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(number), "b"(a), "c"(b), "d"(c)
                     : "memory", "r8", "r9", "r10", "r11");
    return (int)r;
}

int main(int argc, char **argv) {
    strncpy(path, argv[1], sizeof path - 1);
    long fd = old(5, (long)path, 0, 0);
    long n = fd < 0 ? fd : old(3, fd, (long)text, sizeof text);
    if (n < 0) return printf("%ld\n", n), 1;
    fwrite(text, 1, n, stdout);
    return 0;
}
