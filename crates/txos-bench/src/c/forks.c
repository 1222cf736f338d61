/* Begins processes, one after the other: `fork` that exit, `exec` that run /bin/true. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *count = getenv("count");
    if (argc != 2 || !count) {
        fprintf(stderr, "forks: needs `fork` or `exec`, and $count\n");
        return 2;
    }
    for (long n = atol(count); n > 0; n--) {
        pid_t child = fork();
        if (child == 0) {
            if (strcmp(argv[1], "exec") == 0)
                execl("/bin/true", "true", (char *)NULL);
            _exit(strcmp(argv[1], "fork") != 0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "forks: a child failed: %s\n", strerror(errno));
            return 1;
        }
    }
    return 0;
}
