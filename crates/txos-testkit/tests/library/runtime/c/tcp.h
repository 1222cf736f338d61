/* Two ends of a TCP connection. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

static void make_tcp(int s[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    s[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0 && s[1] >= 0);
    CHECK(bind(listener, (void *)&at, len) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&at, &len) == 0 && connect(s[1], (void *)&at, len) == 0);
    s[0] = accept(listener, NULL, NULL);
    CHECK(s[0] >= 0 && close(listener) == 0);
}
