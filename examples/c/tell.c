/* Changes a file and tells others of it by a socket: the message comes with the new file, or not at all.
 *
 *     cc -o tell tell.c $(txos config --cflags --libs)
 *     ./tell SOCKET LINE
 *
 * Appends the line to the file "news" and sends it to a datagram socket, which the commit does: if LINE is empty, or
 * somebody else changes "news" meanwhile, nobody hears of it. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <txos.h>

static int tell(int to, const char *line)
{
    FILE *news = fopen("news", "a");

    if (!news || fprintf(news, "%s\n", line) < 0 || fclose(news) != 0 || send(to, line, strlen(line), 0) == -1)
        return -1;
    return *line ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int to = socket(AF_UNIX, SOCK_DGRAM, 0);

    if (argc != 3)
        return 2;
    snprintf(at.sun_path, sizeof at.sun_path, "%s", argv[1]);
    if (connect(to, (struct sockaddr *)&at, sizeof at) == -1 || sys_xbegin(0) == -1)
        return perror(argv[1]), 1;
    if (tell(to, argv[2]) == 0 && sys_xend() == 0)
        return 0;
    sys_xabort(1);
    fprintf(stderr, "nobody was told: %s\n", txos_strerror());
    return 1;
}
