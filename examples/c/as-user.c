/* Does one step as another user, in a transaction with what root does.
 *
 *     cc -o as-user as-user.c $(txos config --cflags --libs)
 *     sudo ./as-user UID DIRECTORY
 *
 * Makes DIRECTORY/for-UID as the user, who must be allowed to, and notes that in the file "users". If either fails,
 * there is neither, and the process is root as before: the abort puts the user back. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <txos.h>

static int make(const char *user, const char *directory)
{
    char path[4096];
    FILE *file = fopen("users", "a");

    snprintf(path, sizeof path, "%s/for-%s", directory, user);
    if (!file || fprintf(file, "%s\n", user) < 0 || fclose(file) != 0)
        return -1;
    if (seteuid(atoi(user)) == -1 || mkdir(path, 0700) == -1)
        return -1;
    return seteuid(0);
}

int main(int argc, char **argv)
{
    if (argc != 3 || sys_xbegin(0) == -1)
        return 2;
    if (make(argv[1], argv[2]) == 0 && sys_xend() == 0)
        return 0;
    perror("nothing has changed");
    sys_xabort(1);
    printf("user %d again\n", geteuid());
    return 1;
}
