/* What a transaction sets of descriptors from before and of timers, and an abort puts back. One scenario for each argument; each exits
 * with 0 if all is as the documentation says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define HOUR 3600

static int flags_of(int fd) {
    return fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ASYNC | O_APPEND);
}

static int owner_of(int fd) {
    struct f_owner_ex owner = {0};
    CHECK(fcntl(fd, F_GETOWN_EX, &owner) == 0);
    return owner.pid;
}

/* Does something in a transaction that begins again twice and then aborts, and in one that commits; `before` holds at each begin, and
 * after the abort. */
static void twice_and_for_good(int (*before)(void), void (*set)(void)) {
    volatile int attempts = 0;
    CHECK(before());
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    CHECK(before());
    set();
    if (attempts++ < 2)
        ioctl(-1, LOSE);
    CHECK(attempts == 3 && !before());
    sys_xabort(1);
    CHECK(before());
    CHECK(sys_xbegin(TX_STRICT) == 0);
    set();
    CHECK(sys_xend() == 0 && !before());
}

/* Status flags, owners, signals and sizes, by fcntl and by ioctl. */
static int ends[2], sockets[2];

static int flags_are_as_before(void) {
    return flags_of(ends[0]) == 0 && flags_of(ends[1]) == O_NONBLOCK && flags_of(sockets[0]) == 0 &&
           owner_of(ends[0]) == 0 && owner_of(sockets[0]) == 0 && fcntl(ends[0], F_GETSIG) == 0 &&
           fcntl(ends[0], F_GETPIPE_SZ) == 65536;
}

static void set_flags(void) {
    int on = 1, own = getpid();
    struct f_owner_ex owner = {F_OWNER_PID, own};
    /* By a duplicate, and the number from before is closed. */
    int copy = dup(ends[0]);
    CHECK(copy >= 0 && close(ends[0]) == 0);
    CHECK(fcntl(copy, F_SETFL, O_NONBLOCK) == 0 && fcntl(copy, F_SETFL, 0) == 0);
    CHECK(fcntl(copy, F_SETFL, O_NONBLOCK) == 0 && fcntl(copy, F_SETSIG, SIGUSR1) == 0);
    CHECK(fcntl(copy, F_SETOWN_EX, &owner) == 0 && fcntl(copy, F_SETPIPE_SZ, 4096) == 4096);
    CHECK(dup2(copy, ends[0]) == ends[0] && close(copy) == 0);
    CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
    CHECK(ioctl(sockets[0], FIONBIO, &on) == 0 && ioctl(sockets[0], FIOSETOWN, &own) == 0);
    CHECK(ioctl(sockets[0], FIOASYNC, &on) == 0);
}

static void flags(void) {
    signal(SIGUSR1, SIG_IGN);
    CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    twice_and_for_good(flags_are_as_before, set_flags);
}

/* A pipe that holds more than it did before can't become as small again: that is said, and the rest goes on. */
static void full(void) {
    CHECK(pipe2(ends, O_NONBLOCK) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4096) == 4096);
    static char page[3 * 4096];
    CHECK(sys_xbegin(0) == 0);
    CHECK(fcntl(ends[1], F_SETFL, 0) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 65536) == 65536);
    CHECK(write(ends[1], page, sizeof page) == sizeof page);
    sys_xabort(1);
    CHECK(fcntl(ends[1], F_GETPIPE_SZ) == 65536 && flags_of(ends[1]) == O_NONBLOCK);
}

/* A FIFO has a name in the tree, and its flags are no more private for that. */
static void fifo(void) {
    CHECK(mkfifo("fifo", 0600) == 0);
    ends[0] = open("fifo", O_RDWR);
    CHECK(ends[0] >= 0 && unlink("fifo") == 0);
    CHECK(sys_xbegin(0) == 0);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    CHECK(fcntl(ends[0], F_SETOWN, getpid()) == 0);
    sys_xabort(1);
    CHECK(flags_of(ends[0]) == 0 && owner_of(ends[0]) == 0);
    /* One is closed, and something is set of another one. */
    int both[2];
    CHECK(mkfifo("one", 0600) == 0 && mkfifo("other", 0600) == 0);
    both[0] = open("one", O_RDWR);
    both[1] = open("other", O_RDWR);
    CHECK(both[0] >= 0 && both[1] >= 0);
    CHECK(sys_xbegin(0) == 0);
    CHECK(fcntl(both[0], F_SETPIPE_SZ, 16384) == 16384 && close(both[0]) == 0);
    CHECK(fcntl(both[1], F_SETPIPE_SZ, 32768) == 32768);
    sys_xabort(1);
    CHECK(fcntl(both[0], F_GETPIPE_SZ) == 65536 && fcntl(both[1], F_GETPIPE_SZ) == 65536);
}

/* Options of sockets. */
static int tcp, udp;

static int option(int fd, int level, int name) {
    int value = 0;
    socklen_t len = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &len) == 0);
    return value;
}

static void set_option(int fd, int level, int name, int value) {
    CHECK(setsockopt(fd, level, name, &value, sizeof value) == 0);
}

static char congestion[16];
static struct timeval time_to_wait;
static int buffer, discovers;

#define BUF_LOCK 72

static int options_are_as_before(void) {
    char name[16] = "";
    socklen_t len = sizeof name;
    CHECK(getsockopt(tcp, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0);
    struct timeval time;
    len = sizeof time;
    CHECK(getsockopt(tcp, SOL_SOCKET, SO_RCVTIMEO, &time, &len) == 0);
    struct linger linger;
    len = sizeof linger;
    CHECK(getsockopt(tcp, SOL_SOCKET, SO_LINGER, &linger, &len) == 0);
    return strcmp(name, congestion) == 0 && time.tv_sec == time_to_wait.tv_sec && !linger.l_onoff &&
           option(tcp, IPPROTO_TCP, TCP_NODELAY) == 0 && option(tcp, SOL_SOCKET, SO_KEEPALIVE) == 1 &&
           option(tcp, IPPROTO_TCP, TCP_KEEPIDLE) == 77 && option(tcp, SOL_SOCKET, BUF_LOCK) == 0 &&
           option(tcp, SOL_SOCKET, SO_SNDBUF) == buffer && option(udp, SOL_SOCKET, SO_PRIORITY) == 5 &&
           option(udp, IPPROTO_IP, IP_TOS) == 0 && option(udp, SOL_SOCKET, SO_BROADCAST) == 0 &&
           option(udp, IPPROTO_IP, IP_MTU_DISCOVER) == discovers;
}

static void set_options(void) {
    struct timeval time = {12, 0};
    struct linger linger = {1, 3};
    CHECK(setsockopt(tcp, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0);
    CHECK(setsockopt(tcp, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    CHECK(setsockopt(tcp, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    set_option(tcp, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(tcp, SOL_SOCKET, SO_KEEPALIVE, 0);
    set_option(tcp, IPPROTO_TCP, TCP_KEEPIDLE, 5);
    set_option(tcp, IPPROTO_TCP, TCP_KEEPIDLE, 6);
    set_option(tcp, SOL_SOCKET, SO_SNDBUF, 9999);
    set_option(udp, IPPROTO_IP, IP_TOS, 0x10);
    set_option(udp, SOL_SOCKET, SO_BROADCAST, 1);
    set_option(udp, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
    struct timeval none = {0, 0};
    CHECK(setsockopt(-1, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == -1 && errno == EBADF);
    CHECK(setsockopt(tcp, SOL_SOCKET, SO_BROADCAST, NULL, 0) == -1);
}

static void options(void) {
    tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(tcp >= 0 && udp >= 0);
    set_option(tcp, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(tcp, IPPROTO_TCP, TCP_KEEPIDLE, 77);
    set_option(udp, SOL_SOCKET, SO_PRIORITY, 5);
    time_to_wait.tv_sec = 4;
    CHECK(setsockopt(tcp, SOL_SOCKET, SO_RCVTIMEO, &time_to_wait, sizeof time_to_wait) == 0);
    socklen_t len = sizeof congestion;
    CHECK(getsockopt(tcp, IPPROTO_TCP, TCP_CONGESTION, congestion, &len) == 0);
    buffer = option(tcp, SOL_SOCKET, SO_SNDBUF);
    discovers = option(udp, IPPROTO_IP, IP_MTU_DISCOVER);
    twice_and_for_good(options_are_as_before, set_options);
}

/* Each option that the documentation names, if it is a number: on a Unix socket, TCP, UDP and UDP over IPv6. */
static const struct {
    int domain, type, level, name, value;
} every[] = {
#define OF(domain, type, level, name, value) {domain, type, level, name, value}
#define OF_UNIX(name, value) OF(AF_UNIX, SOCK_STREAM, SOL_SOCKET, name, value)
#define OF_TCP(name, value) OF(AF_INET, SOCK_STREAM, IPPROTO_TCP, name, value)
#define OF_UDP(level, name, value) OF(AF_INET, SOCK_DGRAM, level, name, value)
#define OF_IP(name, value) OF_UDP(IPPROTO_IP, name, value)
#define OF_IPV6(name, value) OF(AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, name, value)
    OF_UNIX(SO_DEBUG, 1), OF_UNIX(SO_OOBINLINE, 1), OF_UNIX(SO_PASSCRED, 1), OF_UNIX(SO_PASSSEC, 1),
    OF_UNIX(SO_PRIORITY, 3), OF_UNIX(SO_RCVBUF, 5000), OF_UNIX(SO_SNDBUF, 5000),
    OF_UNIX(SO_RCVBUFFORCE, 5000), OF_UNIX(SO_SNDBUFFORCE, 5000), OF_UNIX(BUF_LOCK, 3),
    OF_UNIX(SO_RCVLOWAT, 7), OF_UNIX(SO_REUSEADDR, 1),
    OF_UDP(SOL_SOCKET, SO_BROADCAST, 1), OF_UDP(SOL_SOCKET, SO_BUSY_POLL, 9),
    OF_UDP(SOL_SOCKET, SO_DONTROUTE, 1), OF_UDP(SOL_SOCKET, SO_KEEPALIVE, 1),
    OF_UDP(SOL_SOCKET, SO_MARK, 4), OF_UDP(SOL_SOCKET, SO_REUSEPORT, 1),
    OF_UDP(SOL_SOCKET, SO_RXQ_OVFL, 1), OF_UDP(IPPROTO_UDP, UDP_GRO, 1),
    OF_UDP(IPPROTO_UDP, UDP_SEGMENT, 1000),
    OF_TCP(TCP_CORK, 1), OF_TCP(TCP_DEFER_ACCEPT, 10), OF_TCP(TCP_KEEPCNT, 3),
    OF_TCP(TCP_KEEPIDLE, 8), OF_TCP(TCP_KEEPINTVL, 8), OF_TCP(TCP_LINGER2, 5),
    OF_TCP(TCP_NODELAY, 1), OF_TCP(TCP_NOTSENT_LOWAT, 5000), OF_TCP(TCP_SYNCNT, 3),
    OF_TCP(TCP_USER_TIMEOUT, 5000),
    OF_IP(IP_BIND_ADDRESS_NO_PORT, 1), OF_IP(IP_FREEBIND, 1), OF_IP(IP_MTU_DISCOVER, IP_PMTUDISC_DO),
    OF_IP(IP_MULTICAST_ALL, 0), OF_IP(IP_MULTICAST_LOOP, 0), OF_IP(IP_MULTICAST_TTL, 9),
    OF_IP(IP_PKTINFO, 1), OF_IP(IP_RECVERR, 1), OF_IP(IP_RECVTOS, 1), OF_IP(IP_RECVTTL, 1),
    OF_IP(IP_TOS, 8), OF_IP(IP_TRANSPARENT, 1), OF_IP(IP_TTL, 9),
    OF_IPV6(IPV6_DONTFRAG, 1), OF_IPV6(IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO),
    OF_IPV6(IPV6_MULTICAST_HOPS, 9), OF_IPV6(IPV6_MULTICAST_LOOP, 0), OF_IPV6(IPV6_RECVERR, 1),
    OF_IPV6(IPV6_RECVHOPLIMIT, 1), OF_IPV6(IPV6_RECVPKTINFO, 1), OF_IPV6(IPV6_RECVTCLASS, 1),
    OF_IPV6(IPV6_TCLASS, 8), OF_IPV6(IPV6_UNICAST_HOPS, 9), OF_IPV6(IPV6_V6ONLY, 1),
};

static void each(void) {
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        int level = every[i].level, name = every[i].name;
        int told = name == SO_RCVBUFFORCE ? SO_RCVBUF : name == SO_SNDBUFFORCE ? SO_SNDBUF : name;
        told = level == SOL_SOCKET ? told : name;
        int fd = socket(every[i].domain, every[i].type, 0);
        if (fd < 0 && errno == EAFNOSUPPORT)
            continue;
        errno = (int)i;
        CHECK(fd >= 0);
        int before = option(fd, level, told);
        CHECK(sys_xbegin(0) == 0);
        int done = setsockopt(fd, level, name, &every[i].value, sizeof every[i].value);
        int may = done == 0 || (errno != EPERM && errno != ENOPROTOOPT);
        int set = option(fd, level, told);
        sys_xabort(1);
        errno = (int)i;
        CHECK(done == 0 || !may);
        CHECK((set != before || !may) && option(fd, level, told) == before);
        CHECK(close(fd) == 0);
    }
}

/* What has no way back stays: that a filter can't be taken away, and a membership. */
static void stays(void) {
    struct ip_mreq group = {{htonl(0xe00000fa)}, {htonl(INADDR_LOOPBACK)}};
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0);
    udp = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(udp >= 0 && sys_xbegin(TX_STRICT) == 0);
    set_option(sockets[0], SOL_SOCKET, SO_LOCK_FILTER, 1);
    CHECK(setsockopt(udp, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) == 0);
    sys_xabort(1);
    CHECK(option(sockets[0], SOL_SOCKET, SO_LOCK_FILTER) == 1);
    CHECK(setsockopt(udp, IPPROTO_IP, IP_DROP_MEMBERSHIP, &group, sizeof group) == 0);
}

/* Terminals, from before and by a descriptor that the transaction has opened. */
static int terminal;

static int echoes(void) {
    struct termios now;
    CHECK(tcgetattr(terminal, &now) == 0);
    return (now.c_lflag & (ECHO | ICANON)) == (ECHO | ICANON);
}

static void set_terminal_by(int fd) {
    struct termios now;
    CHECK(tcgetattr(fd, &now) == 0);
    now.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    CHECK(tcsetattr(fd, TCSAFLUSH, &now) == 0);
}

static void set_terminal(void) {
    set_terminal_by(terminal);
}

static void set_terminal_anew(void) {
    struct termios raw;
    int fd = open(ttyname(terminal), O_RDWR | O_NOCTTY);
    CHECK(fd >= 0 && tcgetattr(fd, &raw) == 0);
    raw.c_lflag |= ECHO | ICANON;
    CHECK(tcsetattr(fd, TCSADRAIN, &raw) == 0);
    set_terminal_by(fd);
    CHECK(close(fd) == 0);
}

static void terminals(void) {
    for (int anew = 0; anew < 2; anew++) {
        int master = posix_openpt(O_RDWR | O_NOCTTY);
        CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
        terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
        CHECK(terminal >= 0);
        twice_and_for_good(echoes, anew ? set_terminal_anew : set_terminal);
    }
}

/* What another thread does while the transaction is under way. */
static _Atomic int turn;
static void (*theirs)(void);

static void *other(void *none) {
    while (turn != 1)
        sched_yield();
    theirs();
    turn = 2;
    return none;
}

static void meanwhile(unsigned flags, void (*set)(void), void (*other_does)(void)) {
    pthread_t thread;
    theirs = other_does;
    turn = 0;
    CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
    CHECK(sys_xbegin((int)flags) == 0);
    set();
    turn = 1;
    while (turn != 2)
        sched_yield();
    sys_xabort(1);
    CHECK(pthread_join(thread, NULL) == 0);
}

static int interval_fd;
static timer_t made;

static void set_all(void) {
    struct itimerval soon = {.it_value = {HOUR, 0}};
    struct itimerspec exactly = {.it_value = {HOUR, 0}, .it_interval = {7, 0}};
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    CHECK(fcntl(ends[0], F_SETPIPE_SZ, 8192) == 8192);
    set_option(tcp, IPPROTO_TCP, TCP_KEEPIDLE, 11);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    CHECK(timer_settime(made, 0, &exactly, NULL) == 0);
    CHECK(timerfd_settime(interval_fd, 0, &exactly, NULL) == 0);
}

static void they_set_all(void) {
    struct itimerval late = {.it_value = {3 * HOUR, 0}};
    struct itimerspec exactly = {.it_value = {3 * HOUR, 0}, .it_interval = {7, 0}};
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK | O_ASYNC) == 0);
    CHECK(fcntl(ends[0], F_SETPIPE_SZ, 16384) == 16384);
    set_option(tcp, IPPROTO_TCP, TCP_KEEPIDLE, 22);
    CHECK(setitimer(ITIMER_REAL, &late, NULL) == 0);
    CHECK(timer_settime(made, 0, &exactly, NULL) == 0);
    CHECK(timerfd_settime(interval_fd, 0, &exactly, NULL) == 0);
}

static void they_do_nothing(void) {
}

/* Seconds until each of the three timers expires, and whether that is about `seconds`: no scene lasts for half an hour. */
static int is_about(time_t seconds, time_t expected) {
    return seconds <= expected && seconds > expected - HOUR / 2;
}

static int all_timers_are(time_t expected) {
    struct itimerval interval;
    struct itimerspec of_made, of_fd;
    CHECK(getitimer(ITIMER_REAL, &interval) == 0 && timer_gettime(made, &of_made) == 0);
    CHECK(timerfd_gettime(interval_fd, &of_fd) == 0);
    return is_about(interval.it_value.tv_sec, expected) && is_about(of_made.it_value.tv_sec, expected) &&
           is_about(of_fd.it_value.tv_sec, expected);
}

static void make_all(void) {
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    struct itimerval late = {.it_value = {2 * HOUR, 0}};
    struct itimerspec exactly = {.it_value = {2 * HOUR, 0}};
    CHECK(pipe(ends) == 0);
    tcp = socket(AF_INET, SOCK_STREAM, 0);
    set_option(tcp, IPPROTO_TCP, TCP_KEEPIDLE, 77);
    interval_fd = timerfd_create(CLOCK_MONOTONIC, 0);
    CHECK(tcp >= 0 && interval_fd >= 0 && timer_create(CLOCK_MONOTONIC, &none, &made) == 0);
    CHECK(setitimer(ITIMER_REAL, &late, NULL) == 0 && timer_settime(made, 0, &exactly, NULL) == 0);
    CHECK(timerfd_settime(interval_fd, 0, &exactly, NULL) == 0);
    CHECK(all_timers_are(2 * HOUR));
}

static int all_is_as_set(void) {
    return flags_of(ends[0]) == O_NONBLOCK && fcntl(ends[0], F_GETPIPE_SZ) == 8192 &&
           option(tcp, IPPROTO_TCP, TCP_KEEPIDLE) == 11 && all_timers_are(HOUR);
}

static int all_is_as_before(void) {
    return flags_of(ends[0]) == 0 && fcntl(ends[0], F_GETPIPE_SZ) == 65536 &&
           option(tcp, IPPROTO_TCP, TCP_KEEPIDLE) == 77 && all_timers_are(2 * HOUR);
}

/* It stays, but for the flag that only the transaction has set. */
static void changed(void) {
    make_all();
    meanwhile(0, set_all, they_do_nothing);
    CHECK(all_is_as_before());
    meanwhile(0, set_all, they_set_all);
    CHECK(flags_of(ends[0]) == O_ASYNC && fcntl(ends[0], F_GETPIPE_SZ) == 16384);
    CHECK(option(tcp, IPPROTO_TCP, TCP_KEEPIDLE) == 22 && all_timers_are(3 * HOUR));
}

/* A language's runtime keeps books of all this; so may several threads and processes. */
static void books(void) {
    unsigned with[] = {TX_MANAGED, TX_THREADS, TX_PROCESSES};
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        make_all();
        int counter = eventfd(3, 0);
        uint64_t n = 0;
        timer_t mine, gone = made;
        struct itimerspec now;
        CHECK(sys_xbegin((int)with[i]) == 0);
        set_all();
        CHECK(read(counter, &n, sizeof n) == sizeof n && n == 3);
        CHECK(timer_create(CLOCK_MONOTONIC, NULL, &mine) == 0);
        sys_xabort(1);
        struct pollfd one = {counter, POLLIN, 0};
        CHECK(all_is_as_set() && poll(&one, 1, 0) == 0 && timer_gettime(mine, &now) == 0);
        CHECK(sys_xbegin((int)with[i]) == 0);
        CHECK(timer_delete(gone) == 0);
        sys_xabort(1);
        CHECK(timer_gettime(gone, &now) == -1 && errno == EINVAL);
        alarm(0);
    }
}

/* Interval timers. */
static _Atomic int alarms;

static void count(int signal) {
    (void)signal;
    alarms++;
}

static time_t rest(int which) {
    struct itimerval now;
    CHECK(getitimer(which, &now) == 0);
    return now.it_value.tv_sec;
}

static int waits(int signal) {
    sigset_t pending;
    CHECK(sigpending(&pending) == 0);
    return sigismember(&pending, signal);
}

static void until_it_waits(int signal) {
    while (!waits(signal))
        ;
}

/* Until what was to happen in a fifth of a second has happened. */
static void until_later(void) {
    struct timespec since, now;
    clock_gettime(CLOCK_MONOTONIC, &since);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - since.tv_sec) * 1000 + (now.tv_nsec - since.tv_nsec) / 1000000 < 250);
}

static int clocks_are_as_before(void) {
    return is_about(rest(ITIMER_REAL), 2 * HOUR) && is_about(rest(ITIMER_VIRTUAL), 2 * HOUR) &&
           is_about(rest(ITIMER_PROF), 2 * HOUR);
}

static void set_clocks(void) {
    struct itimerval none = {0};
    CHECK(is_about(alarm(5), 2 * HOUR) && alarm(HOUR) <= 5);
    CHECK(setitimer(ITIMER_VIRTUAL, &none, NULL) == 0);
    struct itimerval often = {.it_value = {HOUR, 0}, .it_interval = {3, 0}};
    CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
    CHECK(setitimer(7, &often, NULL) == -1 && errno == EINVAL);
}

static void intervals(void) {
    struct itimerval late = {.it_value = {2 * HOUR, 0}};
    CHECK(setitimer(ITIMER_REAL, &late, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &late, NULL) == 0);
    CHECK(setitimer(ITIMER_PROF, &late, NULL) == 0);
    twice_and_for_good(clocks_are_as_before, set_clocks);
}

/* The time of the timer from before comes while the transaction has it set to another: its signal comes after the abort. */
static void over(void) {
    signal(SIGALRM, count);
    struct itimerval soon = {.it_value = {0, 200000}}, late = {.it_value = {HOUR, 0}};
    for (int came = 1; came;) {
        alarms = 0;
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        CHECK(sys_xbegin(0) == 0);
        CHECK(setitimer(ITIMER_REAL, &late, NULL) == 0);
        /* On a machine that is slow it may have come before. */
        came = alarms + waits(SIGALRM);
        until_later();
        CHECK(came || (!waits(SIGALRM) && alarms == 0));
        sys_xabort(1);
    }
    while (alarms == 0)
        sched_yield();
    CHECK(alarms == 1 && rest(ITIMER_REAL) == 0);
}

/* The signal of the transaction's own alarm, which would end the process, is gone with it. One that somebody sends is not. */
static void own(void) {
    struct itimerval soon = {.it_value = {0, 1000}, .it_interval = {0, 1000}};
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    CHECK(!waits(SIGALRM) && setitimer(ITIMER_REAL, &soon, NULL) == 0);
    until_it_waits(SIGALRM);
    timer_t timer;
    struct itimerspec exactly = {.it_value = {0, 1000}, .it_interval = {0, 1000}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3};
    CHECK(!waits(SIGRTMIN + 3) && timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &exactly, NULL) == 0);
    until_it_waits(SIGRTMIN + 3);
    if (attempts++ < 2)
        ioctl(-1, LOSE);
    sys_xabort(1);
    CHECK(attempts == 3 && !waits(SIGALRM) && rest(ITIMER_REAL) == 0);

    signal(SIGALRM, count);
    signal(SIGRTMIN + 3, count);
    CHECK(sys_xbegin(0) == 0);
    CHECK(setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {HOUR, 0}}, NULL) == 0);
    CHECK(kill(getpid(), SIGALRM) == 0 && timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){0}) == 0);
    sys_xabort(1);
    CHECK(alarms == 2 && rest(ITIMER_REAL) == 0);
}

/* Timers of timer_create: made, set and deleted. */
static timer_t all[4];
static const clockid_t clocks[4] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME,
                                    CLOCK_PROCESS_CPUTIME_ID};
static timer_t made_in_it;
static volatile int keeps;

static int rests(timer_t timer, time_t *seconds) {
    struct itimerspec now;
    if (timer_gettime(timer, &now) != 0)
        return -1;
    *seconds = now.it_value.tv_sec;
    return 0;
}

static int made_are_as_before(void) {
    for (int i = 0; i < 4; i++) {
        time_t seconds;
        if (rests(all[i], &seconds) != 0 || !is_about(seconds, 2 * HOUR))
            return 0;
    }
    return 1;
}

static void set_made(void) {
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    struct itimerspec hour = {.it_value = {HOUR, 0}}, stop = {0}, now;
    CHECK(timer_create(CLOCK_REALTIME, &none, &made_in_it) == 0);
    CHECK(timer_settime(made_in_it, 0, &hour, NULL) == 0);
    CHECK(timer_settime(all[0], 0, &hour, NULL) == 0 && timer_settime(all[1], 0, &hour, NULL) == 0);
    CHECK(timer_settime(all[1], 0, &stop, NULL) == 0 && timer_settime(all[3], 0, &hour, NULL) == 0);
    /* The kernel's, past the C library, which frees what it has of one. */
    if (!keeps) {
        long id = (long)(intptr_t)all[2];
        CHECK(syscall(SYS_timer_delete, id) == 0);
        CHECK(timer_gettime(all[2], &now) == -1 && errno == EINVAL);
        CHECK(timer_settime(all[2], 0, &hour, NULL) == -1 && errno == EINVAL);
        CHECK(timer_getoverrun(all[2]) == -1 && errno == EINVAL);
        CHECK(syscall(SYS_timer_delete, id) == -1 && errno == EINVAL);
    }
    timer_t gone;
    CHECK(timer_create(CLOCK_REALTIME, &none, &gone) == 0 && timer_delete(gone) == 0);
    CHECK(timer_settime(all[0], 0, NULL, NULL) == -1 && errno == EINVAL);
}

static void timers(void) {
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    struct itimerspec late = {.it_value = {2 * HOUR, 0}}, now;
    for (int i = 0; i < 4; i++)
        CHECK(timer_create(clocks[i], &none, &all[i]) == 0 && timer_settime(all[i], 0, &late, NULL) == 0);
    CHECK(sys_xbegin(0) == 0);
    set_made();
    timer_t lost = made_in_it;
    sys_xabort(1);
    CHECK(made_are_as_before() && timer_gettime(lost, &now) == -1 && errno == EINVAL);
    twice_and_for_good(made_are_as_before, set_made);
    CHECK(timer_gettime(all[2], &now) == -1 && errno == EINVAL);
    CHECK(timer_gettime(made_in_it, &now) == 0 && is_about(now.it_value.tv_sec, HOUR));
    /* A deleted one sends nothing before an abort, and what it would have sent then. */
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    struct itimerspec soon = {.it_value = {0, 200000000}};
    signal(SIGUSR2, count);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &all[2]) == 0);
    for (int came = 1; came;) {
        alarms = 0;
        CHECK(timer_settime(all[2], 0, &soon, NULL) == 0);
        CHECK(sys_xbegin(0) == 0);
        CHECK(syscall(SYS_timer_delete, (long)(intptr_t)all[2]) == 0);
        came = alarms + waits(SIGUSR2);
        until_later();
        CHECK(came || (!waits(SIGUSR2) && alarms == 0));
        sys_xabort(1);
    }
    while (alarms == 0)
        sched_yield();
    CHECK(alarms == 1);
}

/* Timers that descriptors carry. */
static int of_day, from_now, at_time;

static int open_are_as_before(void) {
    struct itimerspec one, two, three;
    CHECK(timerfd_gettime(of_day, &one) == 0 && timerfd_gettime(from_now, &two) == 0);
    CHECK(timerfd_gettime(at_time, &three) == 0);
    return is_about(one.it_value.tv_sec, 2 * HOUR) && one.it_interval.tv_sec == 9 &&
           is_about(two.it_value.tv_sec, 2 * HOUR) && is_about(three.it_value.tv_sec, 2 * HOUR);
}

static void set_open(void) {
    struct itimerspec hour = {.it_value = {HOUR, 0}}, stop = {0}, old;
    int new = timerfd_create(CLOCK_MONOTONIC, 0);
    CHECK(new >= 0 && timerfd_settime(new, 0, &hour, NULL) == 0);
    int copy = dup(of_day);
    CHECK(timerfd_settime(copy, 0, &stop, &old) == 0 && is_about(old.it_value.tv_sec, 2 * HOUR));
    CHECK(close(copy) == 0 && timerfd_settime(from_now, 0, &hour, NULL) == 0);
    CHECK(timerfd_settime(at_time, 0, &hour, NULL) == 0 && close(new) == 0);
    CHECK(timerfd_settime(at_time, 77, &hour, NULL) == -1 && errno == EINVAL);
}

static void open_timers(void) {
    struct timespec now;
    struct itimerspec late = {.it_value = {2 * HOUR, 0}}, exactly;
    struct itimerspec again = {.it_value = {2 * HOUR, 0}, .it_interval = {9, 0}};
    of_day = timerfd_create(CLOCK_REALTIME, 0), from_now = timerfd_create(CLOCK_BOOTTIME, 0);
    at_time = timerfd_create(CLOCK_REALTIME, 0);
    CHECK(timerfd_settime(of_day, 0, &again, NULL) == 0 && timerfd_settime(from_now, 0, &late, NULL) == 0);
    clock_gettime(CLOCK_REALTIME, &now);
    exactly = (struct itimerspec){.it_value = {now.tv_sec + 2 * HOUR, now.tv_nsec}};
    CHECK(timerfd_settime(at_time, TFD_TIMER_ABSTIME, &exactly, NULL) == 0);
    twice_and_for_good(open_are_as_before, set_open);
}

/* How often a timer has expired, read and set anew. */
static void expirations(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec at = {.it_value = {0, 1}}, hour = {.it_value = {HOUR, 0}}, now;
    struct itimerspec often = {.it_value = {0, 1}, .it_interval = {0, 1000000}};
    struct pollfd one = {fd, POLLIN, 0};
    uint64_t n = 0, before = 0;
    volatile int attempts = 0;
    CHECK(timerfd_settime(fd, 0, &at, NULL) == 0 && poll(&one, 1, -1) == 1);
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    CHECK(read(fd, &n, sizeof n) == sizeof n && n == 1 && poll(&one, 1, 0) == 0);
    CHECK(timerfd_settime(fd, 0, &at, NULL) == 0 && poll(&one, 1, -1) == 1);
    CHECK(read(fd, &n, sizeof n) == sizeof n && n == 1);
    CHECK(timerfd_settime(fd, 0, &hour, NULL) == 0);
    if (attempts++ < 2)
        ioctl(-1, LOSE);
    sys_xabort(1);
    CHECK(poll(&one, 1, 0) == 1 && read(fd, &n, sizeof n) == sizeof n && n == 1);
    CHECK(timerfd_gettime(fd, &now) == 0 && now.it_value.tv_sec == 0 && now.it_value.tv_nsec == 0);
    /* One that goes on has expired as often as if nobody had read, or set it. */
    CHECK(timerfd_settime(fd, 0, &often, NULL) == 0);
    for (int sets = 0; sets < 2; sets++) {
        CHECK(sys_xbegin(0) == 0);
        for (n = before = 0; before < 20; before += n)
            CHECK(read(fd, &n, sizeof n) == sizeof n);
        if (sets)
            CHECK(timerfd_settime(fd, 0, &hour, NULL) == 0);
        sys_xabort(1);
        CHECK(read(fd, &n, sizeof n) == sizeof n && n >= before && n < 1000000);
        CHECK(timerfd_gettime(fd, &now) == 0 && now.it_interval.tv_nsec == 1000000);
        CHECK(now.it_value.tv_sec == 0 && now.it_value.tv_nsec <= 1000000);
    }
}

/* What is read from a counter is there again, until the transaction has written there. */
static void counters(void) {
    int counter = eventfd(0, 0), semaphore = eventfd(5, EFD_SEMAPHORE);
    struct pollfd one = {counter, POLLIN, 0};
    uint64_t n = 7;
    volatile int attempts = 0;
    CHECK(write(counter, &n, sizeof n) == sizeof n);
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    CHECK(read(counter, &n, sizeof n) == sizeof n && n == 7);
    for (int i = 0; i < 3; i++)
        CHECK(read(semaphore, &n, sizeof n) == sizeof n && n == 1);
    if (attempts++ < 2)
        ioctl(-1, LOSE);
    CHECK(attempts == 3);
    sys_xabort(1);
    CHECK(read(counter, &n, sizeof n) == sizeof n && n == 7);
    for (int i = 0; i < 5; i++)
        CHECK(read(semaphore, &n, sizeof n) == sizeof n && n == 1);
    one.fd = semaphore;
    CHECK(poll(&one, 1, 0) == 0);

    n = 2;
    CHECK(write(counter, &n, sizeof n) == sizeof n);
    CHECK(sys_xbegin(0) == 0);
    CHECK(read(counter, &n, sizeof n) == sizeof n && n == 2);
    n = 40;
    CHECK(write(counter, &n, sizeof n) == sizeof n);
    CHECK(read(counter, &n, sizeof n) == sizeof n && n == 40);
    sys_xabort(1);
    one.fd = counter;
    CHECK(poll(&one, 1, 0) == 0);

    n = 4;
    CHECK(write(counter, &n, sizeof n) == sizeof n);
    CHECK(sys_xbegin(0) == 0);
    CHECK(read(counter, &n, sizeof n) == sizeof n && n == 4);
    CHECK(sys_xend() == 0);
    one.fd = counter;
    CHECK(poll(&one, 1, 0) == 0);
}

/* Signals that are read from a descriptor, from before or new, are there again. */
static void signals(void) {
    sigset_t all;
    sigemptyset(&all);
    sigaddset(&all, SIGUSR1), sigaddset(&all, SIGCHLD), sigaddset(&all, SIGRTMIN + 4);
    sigaddset(&all, SIGRTMIN + 5);
    CHECK(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
    int fd = signalfd(-1, &all, 0);
    pid_t child = fork();
    CHECK(fd >= 0 && child >= 0);
    if (child == 0)
        _exit(7);
    until_it_waits(SIGCHLD);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 5};
    event.sigev_value.sival_int = 21;
    struct itimerspec now = {.it_value = {0, 1}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &now, NULL) == 0);
    until_it_waits(SIGRTMIN + 5);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(sigqueue(getpid(), SIGRTMIN + 4, (union sigval){.sival_int = 11}) == 0);
    CHECK(sigqueue(getpid(), SIGRTMIN + 4, (union sigval){.sival_int = 12}) == 0);
    volatile int attempts = 0;
    struct signalfd_siginfo first[8], again[8], more;
    memset(first, 0, sizeof first), memset(again, 0, sizeof again);
    CHECK(sys_xbegin(TX_RESTART) >= 0);
    int by = attempts == 1 ? signalfd(-1, &all, 0) : fd;
    ssize_t n = read(by, first, sizeof first);
    CHECK(n == 5 * (ssize_t)sizeof *first);
    if (attempts++ < 2)
        ioctl(-1, LOSE);
    CHECK(attempts == 3);
    sys_xabort(1);
    CHECK(read(fd, again, sizeof again) == n && memcmp(first, again, sizeof first) == 0);
    CHECK(first[0].ssi_signo == SIGUSR1 && first[0].ssi_pid == (unsigned)getpid());
    CHECK(first[1].ssi_signo == SIGCHLD && first[1].ssi_status == 7);
    CHECK(first[1].ssi_pid == (unsigned)child && first[2].ssi_int == 11 && first[3].ssi_int == 12);
    CHECK(first[4].ssi_code == SI_TIMER && first[4].ssi_int == 21);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(kill(getpid(), SIGUSR1) == 0 && sys_xbegin(0) == 0);
    CHECK(read(fd, &more, sizeof more) == sizeof more);
    CHECK(sys_xend() == 0 && !waits(SIGUSR1));
}

/* A process that is killed leaves as it was set what others have as well; one that runs another program has aborted. */
static void ended(void) {
    for (int kills = 0; kills < 2; kills++) {
        CHECK(pipe(ends) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(sys_xbegin(0) == 0);
            CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
            if (kills)
                syscall(SYS_kill, getpid(), SIGKILL);
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(kills ? WIFSIGNALED(status) : status == 0);
        CHECK(flags_of(ends[0]) == (kills ? O_NONBLOCK : 0));
    }
}

/* A prepared transaction is aborted after its end. */
static void prepared(void) {
    make_all();
    CHECK(sys_xbegin(0) == 0);
    set_all();
    CHECK(syscall(SYS_timer_delete, (long)(intptr_t)made) == 0);
    CHECK(txos_prepare() == 0);
    CHECK(txos_finish(0) == 0);
    CHECK(all_is_as_before());
    CHECK(sys_xbegin(0) == 0);
    set_all();
    CHECK(txos_prepare() == 0);
    CHECK(txos_finish(1) == 0);
    CHECK(all_is_as_set());
}

static volatile sig_atomic_t handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static timer_t timer_of(int signal) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    return timer;
}

/* Timers that expire all the time: the abort ends, and no signal of theirs comes after it. */
static void fast(void) {
    struct itimerspec each = {.it_value = {0, 1}, .it_interval = {0, 1}};
    struct itimerval real = {.it_value = {0, 5}, .it_interval = {0, 5}};
    int number = SIGRTMIN + 1;
    CHECK(signal(number, handle) != SIG_ERR && signal(SIGALRM, handle) != SIG_ERR);
    timer_t timer = timer_of(number);
    for (int i = 0; i < 20; i++) {
        CHECK(sys_xbegin(0) == 0);
        CHECK(timer_settime(timer, 0, &each, NULL) == 0 && setitimer(ITIMER_REAL, &real, NULL) == 0);
        sigset_t pending;
        do
            CHECK(sigpending(&pending) == 0);
        while (!sigismember(&pending, number) || !sigismember(&pending, SIGALRM));
        sys_xabort(1);
        CHECK(handled == 0);
    }
}

/* A counter that is a lock: taken and given in the transaction, it is as it was. */
static void lock(void) {
    int fd = eventfd(1, EFD_SEMAPHORE);
    uint64_t one = 1;
    CHECK(fd >= 0 && sys_xbegin(0) == 0);
    CHECK(read(fd, &one, sizeof one) == sizeof one && write(fd, &one, sizeof one) == sizeof one);
    sys_xabort(1);
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    CHECK(poll(&readable, 1, 0) == 1 && read(fd, &one, sizeof one) == sizeof one);
    CHECK(poll(&readable, 1, 0) == 0);
}

/* The signal of a timer that waits when the transaction sets or deletes it. */
static void signalled(void) {
    int number = SIGRTMIN + 1;
    sigset_t blocked, pending;
    sigemptyset(&blocked);
    sigaddset(&blocked, number);
    CHECK(signal(number, handle) != SIG_ERR);
    for (int deletes = 0; deletes < 2; deletes++) {
        handled = 0;
        timer_t timer = timer_of(number);
        struct itimerspec soon = {.it_value = {0, 1}, .it_interval = {deletes ? HOUR : 0, 0}}, none = {0};
        CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0 && timer_settime(timer, 0, &soon, NULL) == 0);
        do
            CHECK(sigpending(&pending) == 0);
        while (!sigismember(&pending, number));
        CHECK(sys_xbegin(0) == 0);
        if (deletes)
            CHECK(syscall(SYS_timer_delete, (long)(intptr_t)timer) == 0);
        else
            CHECK(timer_settime(timer, 0, &none, NULL) == 0);
        sys_xabort(1);
        do
            CHECK(sigpending(&pending) == 0);
        while (!sigismember(&pending, number));
        CHECK(sigprocmask(SIG_UNBLOCK, &blocked, NULL) == 0 && handled == 1);
        CHECK(timer_delete(timer) == 0);
    }
}

/* A call that fails changes nothing of what is given back. */
static void failing(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec soon = {.it_value = {0, 1}};
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    uint64_t count;
    CHECK(fd >= 0 && timerfd_settime(fd, 0, &soon, NULL) == 0 && poll(&readable, 1, -1) == 1);
    CHECK(sys_xbegin(0) == 0 && read(fd, &count, sizeof count) == sizeof count);
    CHECK(timerfd_settime(fd, 77, &soon, NULL) == -1 && errno == EINVAL);
    sys_xabort(1);
    CHECK(poll(&readable, 1, 0) == 1);
}

/* Who has the terminal of a master feels when the transaction closes it. */
static void master(void) {
    CHECK(sys_xbegin(0) == 0);
    int fd = posix_openpt(O_RDWR | O_NOCTTY);
    char name[64];
    CHECK(fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0 && ptsname_r(fd, name, sizeof name) == 0);
    int terminal = open(name, O_RDWR | O_NOCTTY);
    struct termios set;
    CHECK(terminal >= 0 && tcgetattr(fd, &set) == 0);
    set.c_lflag &= ~ECHO;
    CHECK(tcsetattr(fd, TCSANOW, &set) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(fd);
        alarm(20);
        _exit(read(terminal, &byte, 1) > 0);
    }
    CHECK(close(terminal) == 0 && close(fd) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    sys_xabort(1);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"flags", flags},
    {"full", full},
    {"fifo", fifo},
    {"options", options},
    {"each", each},
    {"stays", stays},
    {"terminals", terminals},
    {"changed", changed},
    {"books", books},
    {"intervals", intervals},
    {"over", over},
    {"own", own},
    {"timers", timers},
    {"open_timers", open_timers},
    {"expirations", expirations},
    {"counters", counters},
    {"signals", signals},
    {"ended", ended},
    {"prepared", prepared},
    {"fast", fast},
    {"lock", lock},
    {"signalled", signalled},
    {"failing", failing},
    {"master", master},
};

RUN_ONE_OF(scenarios)
