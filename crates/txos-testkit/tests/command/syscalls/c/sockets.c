/* sockets list
 * sockets CALL natively|commit|abort|strict
 *
 * Sockets from before a transaction of a thread, which has TX_STRICT with "strict". A process outside of it has the other ends, and
 * says what it sees: before the transaction, when the calls were made, and afterwards. Then the process says what it still
 * reads, and what the calls were answered. "natively" makes the calls without a transaction.
 */
#include "cases.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum { STREAM, DATAGRAMS, PACKETS, TCP, UDP, TCP6, KINDS };
static const char *const names[KINDS] = {"stream", "datagrams", "packets", "tcp", "udp", "tcp6"};

/* The process's end, and the one outside. */
static struct { int own, other; } pairs[KINDS];
static struct { volatile int step; char said[4096]; } *shared;

static socklen_t loopback(int family, struct sockaddr_storage *at)
{
    memset(at, 0, sizeof *at);
    at->ss_family = (sa_family_t)family;
    if (family == AF_INET6)
        return ((struct sockaddr_in6 *)at)->sin6_addr = in6addr_loopback, sizeof(struct sockaddr_in6);
    ((struct sockaddr_in *)at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof(struct sockaddr_in);
}

/* A machine may have no IPv6: then a pair of IPv4 is there instead. */
static int bound(int *family, int type, struct sockaddr_storage *at, socklen_t *len)
{
    for (;; *family = AF_INET) {
        int fd = socket(*family, type, 0);
        *len = loopback(*family, at);
        if (fd >= 0 && bind(fd, (void *)at, *len) == 0 && getsockname(fd, (void *)at, len) == 0)
            return fd;
        if (*family == AF_INET)
            exit(3);
    }
}

static void connected(int kind, int family, int type)
{
    struct sockaddr_storage at;
    socklen_t len;
    int own = bound(&family, type, &at, &len), other = socket(family, type, 0);
    if (type == SOCK_STREAM && listen(own, 1) != 0)
        exit(3);
    if (connect(other, (void *)&at, len) != 0)
        exit(3);
    if (type == SOCK_STREAM) {
        int listener = own;
        if ((own = accept(listener, NULL, NULL)) < 0 || close(listener) != 0)
            exit(3);
    } else if (getsockname(other, (void *)&at, &len) != 0 || connect(own, (void *)&at, len) != 0) {
        exit(3);
    }
    pairs[kind].own = own;
    pairs[kind].other = other;
}

static void send_descriptor(int to, int fd)
{
    union { struct cmsghdr head; char all[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec bytes = {(char[]){"with"}, 4};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memset(&control, 0, sizeof control);
    control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    if (sendmsg(to, &message, 0) != 4)
        exit(3);
}

/* What a call that is tested has come with: a descriptor on a stream, whose bytes are read as a whole. */
static bool stream_has_descriptor;

static void prepare(void)
{
    static const int types[3] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int kind = STREAM; kind <= PACKETS; kind++) {
        int both[2];
        if (socketpair(AF_UNIX, types[kind], 0, both) != 0)
            exit(3);
        pairs[kind].own = both[0];
        pairs[kind].other = both[1];
    }
    connected(TCP, AF_INET, SOCK_STREAM);
    connected(UDP, AF_INET, SOCK_DGRAM);
    connected(TCP6, AF_INET6, SOCK_STREAM);
    for (int kind = 0; kind < KINDS; kind++) {
        int fd = pairs[kind].other;
        if (send(fd, "hello", 5, 0) != 5 || send(fd, "the world", 9, 0) != 9 || send(fd, "!", 1, 0) != 1)
            exit(3);
        if (kind == DATAGRAMS || kind == PACKETS || (kind == STREAM && stream_has_descriptor))
            send_descriptor(fd, STDOUT_FILENO);
        /* It has arrived. */
        struct pollfd one = {pairs[kind].own, POLLIN, 0};
        if (poll(&one, 1, 5000) != 1)
            exit(3);
    }
}

/* What there is, as others see it. */
static void look(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        int waiting = -1;
        char got[64];
        ioctl(pairs[kind].own, FIONREAD, &waiting);
        ssize_t n = recv(pairs[kind].other, got, sizeof got, MSG_DONTWAIT);
        printf("%s %d %zd;", names[kind], waiting, n);
    }
    printf("\n");
    fflush(stdout);
}

/* What the process itself reads in the end. */
static void drain(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        char got[64];
        ssize_t n;
        printf("%s", names[kind]);
        while ((n = recv(pairs[kind].own, got, sizeof got, MSG_DONTWAIT)) > 0)
            printf(" %.*s", (int)n, got);
        printf(";");
    }
    printf("\n");
    fflush(stdout);
}

static void text(const char *got, long n)
{
    say("[%.*s]", (int)(n < 0 ? 0 : n), got);
}

/* What is there for the process. */
static void there(int fd)
{
    struct pollfd one = {fd, POLLIN | POLLOUT, 0};
    int bytes = -1;
    is(RAW(SYS_poll, &one, 1, 0));
    say(" %x", one.revents);
    RAW(SYS_ioctl, fd, FIONREAD, &bytes);
    say(" %d", bytes);
}

CASE(recvfrom, INSIDE)
{
    for (int kind = 0; kind < KINDS; kind++) {
        int fd = pairs[kind].own;
        char got[64];
        there(fd);
        text(got, is(RAW(SYS_recvfrom, fd, got, 3, 0, 0, 0)));
        there(fd);
        text(got, is(RAW(SYS_recvfrom, fd, got, 2, MSG_PEEK, 0, 0)));
        text(got, is(RAW(SYS_recvfrom, fd, got, 4, MSG_PEEK | MSG_DONTWAIT, 0, 0)));
        text(got, is(RAW(SYS_recvfrom, fd, got, 4, MSG_DONTWAIT, 0, 0)));
        text(got, is(RAW(SYS_recvfrom, fd, got, 3, MSG_WAITALL, 0, 0)));
        there(fd);
        is(RAW(SYS_recvfrom, fd, -1, 4, MSG_DONTWAIT, 0, 0));
        is(RAW(SYS_recvfrom, fd, got, 0, MSG_DONTWAIT, 0, 0));
    }
    is(RAW(SYS_recvfrom, -1, said, 4, 0, 0, 0));
    is(RAW(SYS_recvfrom, STDOUT_FILENO, said, 4, 0, 0, 0));
}

/* With an address and without, in pieces, with descriptors. */
static void messages(size_t room)
{
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < 5; i++) {
            char one[4], other[60];
            union { struct cmsghdr head; char all[256]; } control;
            struct sockaddr_storage from;
            struct iovec pieces[2] = {{one, sizeof one}, {other, room}};
            struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control, .msg_name = &from, .msg_namelen = sizeof from};
            int flags = MSG_DONTWAIT | (i == 1 ? MSG_TRUNC : 0) | MSG_CMSG_CLOEXEC;
            long n = is(RAW(SYS_recvmsg, pairs[kind].own, &message, flags));
            if (n < 0)
                continue;
            text(one, n < 4 ? n : 4);
            text(other, n < 4 ? 0 : n - 4 < (long)room ? n - 4 : (long)room);
            say(" %x %u %zu", message.msg_flags, message.msg_namelen, message.msg_controllen);
            struct cmsghdr *head = CMSG_FIRSTHDR(&message);
            if (head != NULL && head->cmsg_type == SCM_RIGHTS) {
                int fd;
                memcpy(&fd, CMSG_DATA(head), sizeof fd);
                is(RAW(SYS_fcntl, fd, F_GETFD));
                is(RAW(SYS_close, fd));
            }
        }
    }
    is(RAW(SYS_recvmsg, pairs[TCP].own, -1, MSG_DONTWAIT));
}

CASE(recvmsg, INSIDE) { messages(9); }
CASE(recvmsg_with_descriptors, INSIDE) { messages(60); }

CASE(recvmmsg, INSIDE)
{
    for (int kind = 0; kind < KINDS; kind++) {
        char got[3][8];
        struct iovec bytes[3] = {{got[0], 8}, {got[1], 8}, {got[2], 8}};
        struct mmsghdr several[3] = {{.msg_hdr = {.msg_iov = &bytes[0], .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &bytes[1], .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &bytes[2], .msg_iovlen = 1}}};
        struct timespec time = {5, 0}, wrong = {0, -1};
        is(RAW(SYS_recvmmsg, pairs[kind].own, several, 1, 0, &time));
        text(got[0], several[0].msg_len);
        long n = is(RAW(SYS_recvmmsg, pairs[kind].own, several, 3, MSG_WAITFORONE, 0));
        for (int i = 0; i < n; i++)
            text(got[i], several[i].msg_len), say(" %x", several[i].msg_hdr.msg_flags);
        is(RAW(SYS_recvmmsg, pairs[kind].own, several, 0, 0, 0));
        is(RAW(SYS_recvmmsg, pairs[kind].own, several, 1, 0, &wrong));
    }
}

CASE(read_of_sockets, INSIDE)
{
    for (int kind = 0; kind < KINDS; kind++) {
        int fd = pairs[kind].own;
        char one[4], other[9];
        struct iovec pieces[2] = {{one, sizeof one}, {other, sizeof other}};
        is(RAW(SYS_read, fd, one, 0));
        text(one, is(RAW(SYS_read, fd, one, 2)));
        long n = is(RAW(SYS_readv, fd, pieces, 2));
        text(one, n < 4 ? n : 4);
        text(other, n < 4 ? 0 : n - 4);
        is(RAW(SYS_pread64, fd, one, 4, 0));
        is(RAW(SYS_readv, fd, pieces, 5000));
    }
}

/* All that has arrived is read, and nothing more is there: each way to wait for it says so. */
CASE(wait_after_recv, INSIDE)
{
    for (int kind = 0; kind < KINDS; kind++) {
        int fd = pairs[kind].own, ep = (int)RAW(SYS_epoll_create1, 0);
        char got[64];
        fd_set set;
        struct timeval time = {0, 20000};
        struct timespec short_time = {0, 20000000};
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
        struct pollfd one = {fd, POLLIN, 0};
        is(RAW(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fd, &event));
        is(RAW(SYS_epoll_wait, ep, &event, 1, 0));
        while (RAW(SYS_recvfrom, fd, got, sizeof got, MSG_DONTWAIT, 0, 0) > 0)
            ;
        is(RAW(SYS_poll, &one, 1, 20));
        is(RAW(SYS_ppoll, &one, 1, &short_time, 0, 8));
        FD_ZERO(&set);
        FD_SET(fd, &set);
        is(RAW(SYS_select, fd + 1, &set, 0, 0, &time));
        say(" %d", FD_ISSET(fd, &set) != 0);
        is(RAW(SYS_epoll_wait, ep, &event, 1, 20));
        /* It can be written to. */
        FD_ZERO(&set);
        FD_SET(fd, &set);
        fd_set other = set;
        is(RAW(SYS_select, fd + 1, &set, &other, 0, 0));
        say(" %d %d", FD_ISSET(fd, &set) != 0, FD_ISSET(fd, &other) != 0);
        one.events |= POLLOUT;
        is(RAW(SYS_poll, &one, 1, -1));
        say(" %x", one.revents);
        RAW(SYS_close, ep);
    }
}

static void step_to(int step)
{
    shared->step = step;
}

static void until(int step)
{
    while (shared->step < step)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static int child(struct one *one, const char *how)
{
    bool inside = strcmp(how, "natively");
    if (inside && sys_xbegin(strcmp(how, "strict") ? 0 : TX_STRICT) != 0)
        return fprintf(stderr, "sockets: %s\n", txos_strerror()), 125;
    one->make();
    strncpy(shared->said, said, sizeof shared->said - 1);
    step_to(1);
    until(2);
    if (!strcmp(how, "abort"))
        sys_xabort(1);
    else if (inside && sys_xend() != 0)
        return fprintf(stderr, "sockets: %s\n", txos_strerror()), 125;
    step_to(3);
    until(4);
    drain();
    return 0;
}

int main(int argc, char **argv)
{
    const char *call = argc > 1 ? argv[1] : "", *how = argc > 2 ? argv[2] : "";
    for (int i = 0; i < count; i++) {
        if (!strcmp(call, "list"))
            printf("%s %d\n", cases[i].name, cases[i].where);
        if (strcmp(call, cases[i].name))
            continue;
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
            return 3;
        alarm(50);
        stream_has_descriptor = !strcmp(call, "recvmsg_with_descriptors");
        prepare();
        look();
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(50);
            for (int kind = 0; kind < KINDS; kind++)
                close(pairs[kind].other);
            _exit(child(&cases[i], how));
        }
        while (shared->step < 1 && waitpid(pid, &status, WNOHANG) == 0)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        look();
        step_to(2);
        while (shared->step < 3 && waitpid(pid, &status, WNOHANG) == 0)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        look();
        step_to(4);
        waitpid(pid, &status, 0);
        printf("%s\n", shared->said);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
    }
    return strcmp(call, "list") ? 2 : 0;
}
