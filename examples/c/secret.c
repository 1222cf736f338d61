/* Keeps a secret: from then on the process leaves no core file, and its files are for nobody else.
 *
 *     cc -o secret secret.c $(txos config --cflags --libs)
 *     ./secret FILE < SECRET
 *
 * The limit, the mask and the file come together. If the secret is empty, there is no file, and the process goes on with
 * the limit and the mask of before: the abort puts them back. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <txos.h>

static int keep(const char *path)
{
    struct rlimit limit;
    char secret[256];

    umask(077);
    if (getrlimit(RLIMIT_CORE, &limit) == -1)
        return -1;
    limit.rlim_cur = 0;
    FILE *file = setrlimit(RLIMIT_CORE, &limit) == 0 ? fopen(path, "w") : NULL;
    if (!file || !fgets(secret, sizeof secret, stdin) || fputs(secret, file) == EOF)
        return -1;
    return fclose(file);
}

int main(int argc, char **argv)
{
    struct rlimit limit;
    int kept = argc == 2 && sys_xbegin(0) == 0 && keep(argv[1]) == 0 && sys_xend() == 0;

    if (!kept)
        sys_xabort(1);
    getrlimit(RLIMIT_CORE, &limit);
    printf("%s: mask %03o, core files %s\n", kept ? "kept" : "nothing has changed", umask(0), limit.rlim_cur ? "yes" : "no");
    return !kept;
}
