/* special CALL | special list
 *
 * In a transaction that has made the file "private", makes a call that starts or ends a thread, a process or
 * a program, or waits for a signal. A child that is outside does not see "private", and makes "by-the-child",
 * which stays when the transaction is aborted, as it is in the end.
 */
#include "cases.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

static void in_child(void)
{
    bool outside = access("private", F_OK) != 0 && !txos_in_transaction();
    _exit(mkdir("by-the-child", 0700) == 0 && outside ? 7 : 8);
}

static void child(long pid)
{
    int status = 0;
    if (pid == 0)
        in_child();
    done(pid);
    is(RAW(SYS_wait4, pid, &status, 0, 0) == pid);
    say(" %d", status >> 8);
}
CASE(fork, INSIDE) { child(RAW(SYS_fork, 0)); }
CASE(vfork, INSIDE) { child(vfork()); }
CASE(clone, INSIDE) { child(RAW(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }
CASE(clone3, INSIDE) { uint64_t args[8] = {[4] = SIGCHLD}; child(RAW(SYS_clone3, args, sizeof args)); }
/* The other program takes this one's place. */
static void program(long number)
{
    char *words[] = {"sh", "-c", "test ! -e private && mkdir by-the-child && echo 7", NULL}, *empty[] = {NULL};
    is(number == SYS_execve ? RAW(number, "/bin/sh", words, empty)
                            : RAW(number, AT_FDCWD, "/bin/sh", words, empty, 0));
}
CASE(execve, INSIDE) { program(SYS_execve); }
CASE(execveat, INSIDE) { program(SYS_execveat); }
static void *ends(void *unused)
{
    (void)unused;
    if (sys_xbegin(0) != 0 || mkdir("private-of-the-thread", 0700) != 0)
        _exit(6);
    RAW(SYS_exit, 0);
    return NULL;
}
CASE(exit, INSIDE)
{
    sys_xabort(1);
    pthread_t thread;
    pthread_create(&thread, NULL, ends, NULL);
    pthread_join(thread, NULL);
    say(" %d", access("private-of-the-thread", F_OK) != 0 ? 7 : 8);
}
CASE(exit_group, INSIDE) { RAW(SYS_exit_group, 7); }

/* What would reach files past the transaction, by arguments. */
CASE(ioctl_with_flags, INSIDE)
{
    long flags = 0x40; /* nodump */
    int before = open(".", O_RDONLY), made = open("private", O_RDWR);
    bool refused = RAW(SYS_ioctl, before, 0x40086602, &flags) == -1 && errno == ENOTSUP;
    refused = refused && RAW(SYS_ioctl, made, 0x401c5820, &flags) == -1 && errno == ENOTSUP;
    /* FIFREEZE, FITRIM, of btrfs a snapshot, a new subvolume: with nothing for what they want. */
    unsigned unknown[] = {0xc0045877, 0xc0185879, 0x50009401, 0x5000940e};
    for (int i = 0; i < 4; i++)
        refused = refused && RAW(SYS_ioctl, before, unknown[i], 0) == -1 && errno == ENOTSUP;
    say(" %d", refused ? 7 : 8);
}
CASE(fcntl_with_lease, INSIDE)
{
    int made = open("private", O_RDONLY);
    say(" %d", RAW(SYS_fcntl, made, F_SETLEASE, F_RDLCK) == -1 && errno == EINVAL ? 7 : 8);
}
static long hand_over(int socket, int fd)
{
    char byte = 'x';
    struct iovec v = {&byte, 1};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof fd)];
    } control = {.room = {0}};
    struct msghdr message = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(part), &fd, sizeof fd);
    return RAW(SYS_sendmsg, socket, &message, 0);
}
/* A file that nobody else may see yet is not handed over; what is no file is, by its number here. */
CASE(sendmsg_with_descriptors, INSIDE)
{
    int pair[2], ends[2], got = -1;
    char byte = 0;
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof got)];
    } control;
    struct iovec v = {&byte, 1};
    struct msghdr message = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    RAW(SYS_close, 0); /* a number that is not the kernel's */
    int made = open("private", O_RDONLY);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || pipe(ends) != 0)
        return;
    bool right = made == 0 && hand_over(pair[0], made) == -1 && errno == ENOTSUP;
    close(0);
    int copy = dup(ends[1]);
    right = right && copy == 0 && hand_over(pair[0], copy) == 1 && RAW(SYS_recvmsg, pair[1], &message, 0) == 1;
    if (right)
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    right = right && write(got, "y", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'y';
    say(" %d", right ? 7 : 8);
}

int main(int argc, char **argv)
{
    for (int i = 0; argc > 1 && i < count; i++) {
        if (!strcmp(argv[1], "list"))
            printf("%s %d\n", cases[i].name, cases[i].where);
        if (strcmp(argv[1], cases[i].name))
            continue;
        current = argv[1];
        if (sys_xbegin(0) != 0)
            return fprintf(stderr, "special: %s\n", txos_strerror()), 125;
        close(open("private", O_CREAT | O_WRONLY, 0644));
        cases[i].make();
        sys_xabort(1);
        puts(said);
    }
    return 0;
}
