/* Ends of pipes and sockets, as others have them. */
#ifndef TXOS_TESTS_ENDS_H
#define TXOS_TESTS_ENDS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

enum kind { PIPE, UNIX_STREAM, UNIX_DATAGRAMS, UNIX_PACKETS, TCP };

static const char *const kind_names[] = {"pipe", "Unix stream", "Unix datagrams", "Unix packets", "TCP"};

/* Whether it keeps messages apart. */
static inline int has_messages(enum kind kind) {
    return kind == UNIX_DATAGRAMS || kind == UNIX_PACKETS;
}

/* What is written to `ends[1]` is read from `ends[0]`. */
static inline void make_ends(enum kind kind, int ends[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    switch (kind) {
    case PIPE: CHECK(pipe(ends) == 0); break;
    case UNIX_STREAM: CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); break;
    case UNIX_DATAGRAMS: CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0); break;
    case UNIX_PACKETS: CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0); break;
    case TCP: {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(listener >= 0 && bind(listener, (void *)&at, len) == 0 && listen(listener, 1) == 0);
        ends[1] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(getsockname(listener, (void *)&at, &len) == 0 && connect(ends[1], (void *)&at, len) == 0);
        ends[0] = accept(listener, NULL, NULL);
        CHECK(ends[0] >= 0 && close(listener) == 0);
    }
    }
}

#endif
