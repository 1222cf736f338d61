/* What goes to others and comes from them: sockets, pipes, signals; and who the process is. Off unless asked for. */
#include "differ.h"
#include <grp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* Beyond all numbers that the sequence has. */
#define FIRST 100
#define SIGNALS 3

/* What a process outside has got. */
struct got {
    unsigned long bytes, pieces, hash;
};
static struct {
    struct got stream, packets, pipe;
    unsigned signals[SIGNALS];
} *outside;

static int stream = -1, packets = -1, pipe_end = -1;
static pid_t peer;
static bool is_on;

static void add(struct got *got, const char *bytes, size_t size, bool apart)
{
    if (apart)
        got->hash = got->hash * 31 + size, got->pieces++;
    for (size_t i = 0; i < size; i++)
        got->hash = got->hash * 131 + (unsigned char)bytes[i];
    got->bytes += size;
}

/* The process outside: takes all there is, until nobody sends any more. */
static void be_outside(int in_stream, int in_packets, int in_pipe)
{
    static char buffer[1 << 16];
    struct got *const got[] = { &outside->stream, &outside->packets, &outside->pipe };
    sigset_t all;
    sigfillset(&all);
    int signals = signalfd(-1, &all, SFD_NONBLOCK);
    struct pollfd from[] = { { in_stream, POLLIN, 0 }, { in_packets, POLLIN, 0 }, { in_pipe, POLLIN, 0 } };
    while (from[0].fd >= 0 || from[1].fd >= 0 || from[2].fd >= 0) {
        poll(from, 3, -1);
        for (int i = 0; i < 3; i++) {
            if (from[i].fd < 0 || !from[i].revents)
                continue;
            ssize_t n = read(from[i].fd, buffer, sizeof buffer);
            if (n > 0)
                add(got[i], buffer, (size_t)n, i == 1);
            else
                from[i].fd = -1;
        }
    }
    struct signalfd_siginfo one;
    while (read(signals, &one, sizeof one) == sizeof one)
        if (one.ssi_signo >= (unsigned)SIGRTMIN && one.ssi_signo < (unsigned)SIGRTMIN + SIGNALS)
            outside->signals[one.ssi_signo - (unsigned)SIGRTMIN]++;
    _exit(0);
}

static int high(int fd)
{
    int up = fcntl(fd, F_DUPFD_CLOEXEC, FIRST);
    close(fd);
    return up;
}

void effects_begin(void)
{
    int a[2], b[2], c[2];
    sigset_t all, before;
    is_on = class_is_on("outside");
    if (!is_on)
        return;
    outside = mmap(NULL, sizeof *outside, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outside == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, a) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, b) != 0 || pipe(c) != 0) {
        perror("differ: the process outside");
        exit(2);
    }
    /* What it has said before. */
    for (int i = 0; i < 40; i++) {
        char text[64];
        memset(text, 'a' + i % 26, sizeof text);
        if (write(a[1], text, sizeof text) != sizeof text || write(b[1], text, 1 + i) != 1 + i)
            exit(2);
    }
    stream = high(a[0]), packets = high(b[0]), pipe_end = high(c[1]);
    a[1] = high(a[1]), b[1] = high(b[1]), c[0] = high(c[0]);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    peer = fork();
    if (peer == 0) {
        close(stream), close(packets), close(pipe_end);
        be_outside(a[1], b[1], c[0]);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(a[1]), close(b[1]), close(c[0]);
    if (peer < 0)
        exit(2);
}

static void say_got(const char *what, const struct got *got)
{
    say("  %s: %lu bytes, %lu pieces, %lx\n", what, got->bytes, got->pieces, got->hash);
}

void effects_end(void)
{
    if (!is_on)
        return;
    say("state outside\n");
    char rest[1 << 13];
    struct got left = { 0 };
    for (ssize_t n; (n = recv(stream, rest, sizeof rest, MSG_DONTWAIT)) > 0;)
        add(&left, rest, (size_t)n, false);
    for (ssize_t n; (n = recv(packets, rest, sizeof rest, MSG_DONTWAIT)) > 0;)
        add(&left, rest, (size_t)n, true);
    close(stream), close(packets), close(pipe_end);
    waitpid(peer, NULL, 0);
    say_got("not read", &left);
    say_got("stream", &outside->stream);
    say_got("packets", &outside->packets);
    say_got("pipe", &outside->pipe);
    for (int i = 0; i < SIGNALS; i++)
        say("  signal %d: %u\n", i, outside->signals[i]);
}

void say_identity(void)
{
    if (!class_is_on("identity"))
        return;
    uid_t r, e, s;
    gid_t rg, eg, sg, groups[8];
    struct rlimit core = { 0 };
    getresuid(&r, &e, &s), getresgid(&rg, &eg, &sg), getrlimit(RLIMIT_CORE, &core);
    say("  users %u %u %u groups %u %u %u:", r, e, s, rg, eg, sg);
    int n = getgroups(8, groups);
    for (int i = 0; i < n; i++)
        say(" %u", groups[i]);
    say(" core %llu nice %d\n", (unsigned long long)core.rlim_cur, getpriority(PRIO_PROCESS, 0));
}

/* --- Sending ---------------------------------------------------------------------------------- */

static int socket_(void)
{
    return chance(50) ? stream : packets;
}

static const char *kind_of(int fd)
{
    return fd == stream ? "stream" : fd == packets ? "packets" : "pipe";
}

static void do_send(void)
{
    static const int flags_[] = { 0, MSG_NOSIGNAL, MSG_DONTWAIT, MSG_DONTWAIT | MSG_NOSIGNAL, MSG_EOR, 0x40000000 };
    int fd = socket_(), flags = PICK(flags_);
    /* No message keeps that flag, so it is sent at once. */
    if (flags == 0x40000000 && !class_is_on("liveflags"))
        flags = 0;
    size_t size = below(chance(20) ? 3000 : 100);
    say("send(%s, %zu, %#x)", kind_of(fd), size, (unsigned)flags);
    const void *bytes = data(size);
    DO(send(fd, bytes, size, flags), SYS_sendto, fd, bytes, size, flags, NULL, 0);
    answer();
}

static void do_send_write(void)
{
    int fd = chance(40) ? pipe_end : socket_();
    struct iovec v[3];
    int n = (int)below(4);
    const char *all = data(300);
    for (int i = 0; i < n; i++)
        v[i] = (struct iovec){ (void *)(all + 100 * i), below(100) };
    say("writev(%s, %d)", kind_of(fd), n);
    DO(writev(fd, v, n), SYS_writev, fd, v, n);
    answer();
}

static void do_send_message(void)
{
    int fd = socket_(), n = 1 + (int)below(3);
    struct iovec v[3];
    struct mmsghdr messages[3];
    memset(messages, 0, sizeof messages);
    const char *all = data(300);
    for (int i = 0; i < n; i++) {
        v[i] = (struct iovec){ (void *)(all + 100 * i), 1 + below(99) };
        messages[i].msg_hdr = (struct msghdr){ .msg_iov = &v[i], .msg_iovlen = 1 };
    }
    bool several = chance(40);
    say("%s(%s, %d)", several ? "sendmmsg" : "sendmsg", kind_of(fd), n);
    if (several) {
        DO(sendmmsg(fd, messages, (unsigned)n, 0), SYS_sendmmsg, fd, messages, n, 0);
    } else {
        messages[0].msg_hdr.msg_iov = v;
        messages[0].msg_hdr.msg_iovlen = (size_t)n;
        DO(sendmsg(fd, &messages[0].msg_hdr, 0), SYS_sendmsg, fd, &messages[0].msg_hdr, 0);
    }
    answer();
    for (int i = 0; several && i < R; i++)
        say(" %u", messages[i].msg_len);
}

static void do_send_file(void)
{
    int fd = socket_(), from = file();
    size_t size = below(500);
    say("sendfile(%s, %d, %zu)", kind_of(fd), from, size);
    if (may_block(from)) {
        say(" not here");
        return;
    }
    DO(sendfile(fd, from, NULL, size), SYS_sendfile, fd, from, NULL, size);
    answer();
    /* The kernel hands the file's pages over as they are: a later write would change what was sent. */
    for (int left = 1; left > 0 && ioctl(fd, TIOCOUTQ, &left) == 0;)
        sched_yield();
}

static void do_shut_down(void)
{
    int fd = socket_(), how = (int)below(4);
    say("shutdown(%s, %d)", kind_of(fd), how);
    /* What still can be read then is whose reading it is. */
    if (how != SHUT_WR && how != 3) {
        say(" not here");
        return;
    }
    DO(shutdown(fd, how), SYS_shutdown, fd, how);
    answer();
}

/* --- Receiving -------------------------------------------------------------------------------- */

static void do_receive(void)
{
    static const int flags_[] = { MSG_DONTWAIT, MSG_DONTWAIT, MSG_DONTWAIT | MSG_PEEK, MSG_DONTWAIT | MSG_TRUNC };
    int fd = socket_(), flags = PICK(flags_);
    if (fd == stream)
        flags &= ~MSG_TRUNC;
    size_t size = 1 + below(200);
    say("recv(%s, %zu, %#x)", kind_of(fd), size, (unsigned)flags);
    memset(room, 0, 256);
    DO(recv(fd, room, size, flags), SYS_recvfrom, fd, room, size, flags, NULL, NULL);
    answer();
    if (R > 0)
        say_bytes(room, (size_t)R < size ? (size_t)R : size);
}

static void do_ask(void)
{
    int fd = socket_(), bytes = -1;
    struct pollfd one = { fd, POLLIN | POLLOUT, 0 };
    say("ask(%s)", kind_of(fd));
    DO(ioctl(fd, FIONREAD, &bytes), SYS_ioctl, fd, FIONREAD, &bytes);
    answer();
    say(" %d", bytes);
    DO(poll(&one, 1, 0), SYS_poll, &one, 1, 0);
    answer();
    say(" %#x", (unsigned)one.revents);
}

/* --- Signals ---------------------------------------------------------------------------------- */

static void do_kill(void)
{
    int k = (int)below(SIGNALS + 2);
    int number = k < SIGNALS ? SIGRTMIN + k : k == SIGNALS ? 0 : 65;
    say("kill(outside, %d)", number == 0 || number == 65 ? number : k + 1000);
    if (chance(30)) {
        union sigval value = { .sival_int = 5 };
        DO(sigqueue(peer, number, value), NO_CALL, 0);
    } else {
        DO(kill(peer, number), SYS_kill, peer, number);
    }
    answer();
}

/* --- Who the process is ----------------------------------------------------------------------- */

/* Only in the transaction: other calls are to find who prepared all of it. */
static bool too_early(void)
{
    if (!is_within(call))
        say(" not now");
    return !is_within(call);
}

static uid_t some_user(void)
{
    static const uid_t users[] = { 0, 0, 64321, 1, (uid_t)-1 };
    return PICK(users);
}

static void do_users(void)
{
    uid_t r = chance(70) ? (uid_t)-1 : 0, e = some_user();
    bool groups = chance(40);
    say("%s(%d, %d)", groups ? "setregid" : "setreuid", (int)r, (int)e);
    if (too_early())
        return;
    /* The saved one stays root's: setresuid, as setreuid would take it along. */
    if (groups)
        DO(setresgid(r, e, -1), SYS_setresgid, r, e, -1);
    else
        DO(setresuid(r, e, -1), SYS_setresuid, r, e, -1);
    answer();
}

static void do_groups(void)
{
    gid_t groups[3] = { 1, 64321, 7 };
    size_t n = below(4);
    say("setgroups(%zu)", n);
    if (too_early())
        return;
    DO(setgroups(n, groups), SYS_setgroups, n, groups);
    answer();
}

static void do_limit(void)
{
    struct rlimit core = { 0 };
    getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = below(3) * 4096;
    say("setrlimit(core, %llu)", (unsigned long long)core.rlim_cur);
    if (too_early())
        return;
    DO(setrlimit(RLIMIT_CORE, &core), SYS_setrlimit, RLIMIT_CORE, &core);
    answer();
}

static void do_nice(void)
{
    int to = (int)below(4);
    say("setpriority(%d)", to);
    if (too_early() || geteuid() != 0) {
        say(" as root only");
        return;
    }
    DO(setpriority(PRIO_PROCESS, 0, to), SYS_setpriority, PRIO_PROCESS, 0, to);
    answer();
}

const struct kind effects[] = {
    { "send", "outside", 60, do_send },
    { "writev to others", "outside", 40, do_send_write },
    { "sendmsg", "outside", 30, do_send_message },
    { "sendfile to others", "outside", 15, do_send_file },
    { "shutdown", "outside", 2, do_shut_down },
    { "recv", "outside", 50, do_receive },
    { "ask", "outside", 20, do_ask },
    { "kill", "outside", 30, do_kill },
    { "setresuid", "identity", 40, do_users },
    { "setgroups", "identity", 10, do_groups },
    { "setrlimit", "identity", 10, do_limit },
    { "setpriority", "identity", 10, do_nice },
    { 0 },
};
