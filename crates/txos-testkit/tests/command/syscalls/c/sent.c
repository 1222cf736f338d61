/* sent list
 * sent CALL natively|commit|abort|strict
 *
 * What a transaction sends on sockets from before it. A process outside of it has the other ends, and
 * says what has come: before the transaction, when the calls were made, and afterwards. Then come what the calls were
 * answered, and the end of the transaction, which has TX_STRICT with "strict". "natively" makes the calls without one.
 */
#include "cases.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

enum { STREAM, DATAGRAMS, PACKETS, TCP, UDP, KINDS };
static const char *const names[KINDS] = {"stream", "datagrams", "packets", "tcp", "udp"};
static struct { int own, other; } pairs[KINDS];
static struct sockaddr_in place; /* of the process outside's UDP socket */
static struct { volatile int asked; char said[4096]; } *shared;
static pid_t pid;

static void nap(void)
{
    struct timespec some = {0, 1000000};
    nanosleep(&some, NULL);
}

static void network(int kind, int type)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int other = socket(AF_INET, type, 0), own = socket(AF_INET, type, 0);
    if (bind(other, (void *)&at, len) != 0 || getsockname(other, (void *)&at, &len) != 0)
        exit(3);
    if (type == SOCK_STREAM && listen(other, 1) != 0)
        exit(3);
    if (connect(own, (void *)&at, len) != 0)
        exit(3);
    if (type == SOCK_STREAM)
        other = accept(other, NULL, NULL);
    else
        place = at;
    pairs[kind].own = own;
    pairs[kind].other = other;
}

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
    network(TCP, SOCK_STREAM);
    network(UDP, SOCK_DGRAM);
}

/* What has come, with a bar after each message and a point at the end, and how many descriptors; seen by the process outside. */
static void see(char *out)
{
    static char total[KINDS][256];
    static int descriptors;
    for (int kind = 0; kind < KINDS; kind++) {
        struct pollfd one = {pairs[kind].other, POLLIN, 0};
        char *to = total[kind] + strlen(total[kind]);
        while (poll(&one, 1, kind == TCP || kind == UDP ? 50 : 0) == 1 && one.revents & POLLIN) {
            union { struct cmsghdr head; char all[CMSG_SPACE(4 * sizeof(int))]; } control;
            struct iovec bytes = {to, 100};
            struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
            ssize_t n = recvmsg(one.fd, &message, MSG_DONTWAIT);
            struct cmsghdr *head = n < 0 ? NULL : CMSG_FIRSTHDR(&message);
            if (head)
                descriptors += (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            if (n <= 0 && (kind == STREAM || kind == TCP)) {
                if (n == 0 && (to == total[kind] || to[-1] != '.'))
                    strcpy(to, ".");
                break;
            }
            if (n < 0 || (n == 0 && kind == PACKETS))
                break;
            to += n;
            if (kind != STREAM && kind != TCP)
                *to++ = '|';
            *to = 0;
        }
        out += sprintf(out, "%s %s; ", names[kind], total[kind]);
    }
    sprintf(out, "%d descriptors", descriptors);
}

static void outside(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;; nap())
        if (shared->asked) {
            see(shared->said);
            shared->asked = 0;
        }
}

static void look(void)
{
    shared->asked = 1;
    /* (A transaction that slept for long would be taken to wait for an answer.) */
    for (long i = 0; i < 200000000L && shared->asked; i++)
        sched_yield();
    if (shared->asked)
        exit(3);
    printf("%s\n", shared->said);
    fflush(stdout);
}

static char one_[] = "one", two[] = "two!";
static struct iovec pieces[2] = {{one_, 3}, {two, 4}};

CASE(sendto, INSIDE)
{
    for (int kind = 0; kind < KINDS; kind++) {
        is(RAW(SYS_sendto, pairs[kind].own, "first", 5, 0, 0, 0));
        is(RAW(SYS_sendto, pairs[kind].own, "second", 6, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0));
    }
    int socket_ = (int)RAW(SYS_socket, AF_INET, SOCK_DGRAM, 0);
    is(RAW(SYS_sendto, socket_, "to", 2, 0, &place, sizeof place));
    is(RAW(SYS_sendto, pairs[UDP].own, "to as well", 10, 0, &place, sizeof place));
    is(RAW(SYS_close, socket_));
    is(RAW(SYS_sendto, -1, "x", 1, 0, 0, 0));
    is(RAW(SYS_sendto, pairs[STREAM].own, 1, 4, 0, 0, 0));
}
CASE(sendmsg, INSIDE)
{
    union { struct cmsghdr head; char all[CMSG_SPACE(2 * sizeof(int))]; } control = {
        .head = {CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    struct msghdr with = {.msg_iov = pieces, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    for (int kind = 0; kind < KINDS; kind++)
        is(RAW(SYS_sendmsg, pairs[kind].own, &message, 0));
    int both[2];
    is(RAW(SYS_pipe2, both, 0));
    memcpy(CMSG_DATA(&control.head), both, sizeof both);
    for (int kind = 0; kind <= PACKETS; kind++)
        is(RAW(SYS_sendmsg, pairs[kind].own, &with, 0));
    /* They are kept until it is sent. */
    is(RAW(SYS_close, both[0]));
    is(RAW(SYS_close, both[1]));
    is(RAW(SYS_sendmsg, pairs[STREAM].own, &with, 0));
    is(RAW(SYS_sendmsg, pairs[TCP].own, 1, 0));
}
CASE(sendmmsg, INSIDE)
{
    struct mmsghdr many[3] = {{.msg_hdr = {.msg_iov = pieces, .msg_iovlen = 2}},
                              {.msg_hdr = {.msg_iov = pieces + 1, .msg_iovlen = 1}},
                              {.msg_hdr = {.msg_iov = pieces, .msg_iovlen = 1}}};
    for (int kind = 0; kind < KINDS; kind++) {
        is(RAW(SYS_sendmmsg, pairs[kind].own, many, 3, 0));
        say(" %d %d %d", many[0].msg_len, many[1].msg_len, many[2].msg_len);
    }
}
CASE(shutdown, INSIDE)
{
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind == DATAGRAMS || kind == UDP)
            continue;
        is(RAW(SYS_write, pairs[kind].own, "last", 4));
        is(RAW(SYS_shutdown, pairs[kind].own, SHUT_WR));
        is(RAW(SYS_sendto, pairs[kind].own, "x", 1, MSG_NOSIGNAL, 0, 0));
    }
    is(RAW(SYS_shutdown, pairs[STREAM].own, 99));
}

int main(int argc, char **argv)
{
    const char *call = argc > 1 ? argv[1] : "", *how = argc > 2 ? argv[2] : "";
    bool natively = !strcmp(how, "natively");
    for (int i = 0; i < count; i++) {
        if (!strcmp(call, "list"))
            printf("%s %d\n", cases[i].name, cases[i].where);
        if (strcmp(call, cases[i].name))
            continue;
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
            return 3;
        prepare();
        if ((pid = fork()) < 0)
            return 3;
        if (pid == 0)
            outside();
        for (int kind = 0; kind < KINDS; kind++)
            close(pairs[kind].other);
        look();
        if (!natively && sys_xbegin(strcmp(how, "strict") ? 0 : TX_STRICT) != 0)
            return fprintf(stderr, "sent: %s\n", txos_strerror()), 125;
        cases[i].make();
        look();
        int end = 0;
        if (!strcmp(how, "abort"))
            sys_xabort(1);
        else if (!natively)
            end = sys_xend();
        look();
        printf("%s\nend %d\n", said, end);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return 0;
    }
    return strcmp(call, "list") ? 2 : 0;
}
