/* full
 *
 * Makes a file in a transaction, on a file system with too few inodes for that perhaps; removes the directory's files `taken.*`, of which
 * each is one; and makes the file again, in the same process.
 */
#include <fcntl.h>
#include <glob.h>

#include "raw.h"

static int make(void)
{
    if (sys_xbegin(0) < 0)
        return -1;
    int fd = open("made", O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || write(fd, "made\n", 5) != 5 || close(fd) < 0) {
        sys_xabort(1);
        return -1;
    }
    return sys_xend();
}

int main(void)
{
    glob_t taken;
    if (make() == 0)
        (void)unlink("made");
    else
        fprintf(stderr, "full: %s\n", txos_strerror());
    if (glob("taken.*", 0, NULL, &taken) != 0)
        return 2;
    for (size_t i = 0; i < taken.gl_pathc; i++)
        (void)unlink(taken.gl_pathv[i]);
    if (make() == 0)
        return 0;
    fprintf(stderr, "full: with space again: %s\n", txos_strerror());
    return 1;
}
