/* Takes messages from a socket and files them: a message that could not be filed is still there.
 *
 *     cc -o take take.c $(txos config --cflags --libs)
 *     ./take SOCKET TIMES
 *
 * Receives datagrams at the path SOCKET, as many times as it is told, and makes a file of the first word of each, which
 * must be new. If that fails, the abort leaves the message in the socket, and it is read once more from there. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <txos.h>

int main(int argc, char **argv)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int from = socket(AF_UNIX, SOCK_DGRAM, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s", argc == 3 ? argv[1] : "");
    if (argc != 3 || bind(from, (struct sockaddr *)&at, sizeof at) == -1)
        return perror("bind"), 2;
    for (int left = atoi(argv[2]); left > 0; left--) {
        char message[256] = "", again[256] = "";

        if (sys_xbegin(0) == -1 || recv(from, message, sizeof message - 1, 0) <= 0)
            return perror("recv"), 1;
        int file = open(strtok(message, " \n"), O_CREAT | O_EXCL | O_WRONLY, 0644);
        if (file != -1 && close(file) == 0 && sys_xend() == 0)
            continue;
        sys_xabort(1);
        recv(from, again, sizeof again - 1, 0);
        printf("not filed, and still there: %s\n", again);
    }
    return 0;
}
