/* outside listen
 * outside CALL [PID [commit|abort]]
 * outside list
 *
 * "listen": a process that others reach: makes System V objects with keys, writes the names of the signals
 * that it gets to the file "got", one a line, and ends with SIGTERM. Else makes a system call that reaches
 * out of a transaction: to the process PID, or to the machine, in a way that does no harm: what it asks for
 * can't be done, or is so already. Says what was answered. With "commit" or "abort" it makes the call in a
 * transaction of its thread, waits until descriptor 5 has a byte, and ends the transaction so.
 */
#include "cases.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/un.h>

enum { KEY = 0x7478736d };
static pid_t pid; /* of one who listens */
static char buffer[4096];

static int descriptor(void)
{
    return (int)RAW(SYS_pidfd_open, pid, 0);
}

/* Processes of others. */
CASE(setpriority, RUN) { is(RAW(SYS_setpriority, PRIO_PROCESS, pid, getpriority(PRIO_PROCESS, pid))); }
CASE(ioprio_set, RUN) { is(RAW(SYS_ioprio_set, 1, pid, 0)); }
CASE(prlimit64, RUN) { RAW(SYS_prlimit64, pid, RLIMIT_CORE, 0, buffer); is(RAW(SYS_prlimit64, pid, RLIMIT_CORE, buffer, 0)); }
CASE(sched_setaffinity, RUN) { long n = RAW(SYS_sched_getaffinity, pid, 128, buffer); is(RAW(SYS_sched_setaffinity, pid, n, buffer)); }
CASE(sched_setparam, RUN) { int zero = 0; is(RAW(SYS_sched_setparam, pid, &zero)); }
CASE(sched_setscheduler, RUN) { int zero = 0; is(RAW(SYS_sched_setscheduler, pid, 0, &zero)); }
CASE(sched_setattr, RUN) { RAW(SYS_sched_getattr, pid, buffer, 48, 0); is(RAW(SYS_sched_setattr, pid, buffer, 0)); }
CASE(migrate_pages, RUN) { any(RAW(SYS_migrate_pages, pid, 0, 0, 0)); }
CASE(move_pages, RUN) { is(RAW(SYS_move_pages, pid, 0, 0, 0, 0, 0)); }
CASE(process_madvise, RUN) { is(RAW(SYS_process_madvise, descriptor(), 0, 0, 20, 0)); }
CASE(pidfd_getfd, RUN) { is(RAW(SYS_pidfd_getfd, descriptor(), 9999, 0)); }
CASE(process_vm_writev, RUN) { struct iovec v = {buffer, 1}, none = {(void *)1, 1}; is(RAW(SYS_process_vm_writev, pid, &v, 1, &none, 1, 0)); }
CASE(ptrace, RUN) { is(RAW(SYS_ptrace, PTRACE_SEIZE, pid, 0, 0)); }
CASE(setns, RUN)
{
    snprintf(buffer, sizeof buffer, "/proc/%d/ns/mnt", pid);
    is(RAW(SYS_setns, open(buffer, O_RDONLY), CLONE_NEWNS));
}

/* The machine. */
CASE(mount, RUN) { is(RAW(SYS_mount, "none", "/none/none", "tmpfs", 0, 0)); }
CASE(umount2, RUN) { is(RAW(SYS_umount2, "/none/none", 0)); }
CASE(move_mount, RUN) { is(RAW(SYS_move_mount, -1, "", -1, "", 4 | 64)); }
CASE(mount_setattr, RUN) { is(RAW(SYS_mount_setattr, -1, "", 0x1000, buffer, 32)); }
CASE(fsconfig, RUN) { is(RAW(SYS_fsconfig, -1, 7, 0, 0, 0)); }
CASE(swapon, RUN) { is(RAW(SYS_swapon, "/none/none", 0)); }
CASE(swapoff, RUN) { is(RAW(SYS_swapoff, "/none/none")); }
CASE(settimeofday, RUN) { is(RAW(SYS_settimeofday, -1, -1)); }
CASE(clock_settime, RUN) { is(RAW(SYS_clock_settime, 99, buffer)); }
CASE(adjtimex, RUN) { struct timex t = {.modes = ADJ_TICK, .tick = 1}; is(RAW(SYS_adjtimex, &t)); }
CASE(clock_adjtime, RUN) { struct timex t = {.modes = ADJ_TICK, .tick = 1}; is(RAW(SYS_clock_adjtime, 0, &t)); }
CASE(reboot, RUN) { is(RAW(SYS_reboot, 0, 0, 5, 0)); }
CASE(sethostname, RUN) { is(RAW(SYS_sethostname, buffer, -1)); }
CASE(setdomainname, RUN) { is(RAW(SYS_setdomainname, buffer, -1)); }
CASE(init_module, RUN) { is(RAW(SYS_init_module, 0, 0, 0)); }
CASE(finit_module, RUN) { is(RAW(SYS_finit_module, -1, 0, 0)); }
CASE(delete_module, RUN) { is(RAW(SYS_delete_module, 0, 0)); }
CASE(kexec_load, RUN) { is(RAW(SYS_kexec_load, 0, 99, 0, -1)); }
CASE(kexec_file_load, RUN) { is(RAW(SYS_kexec_file_load, -1, -1, 0, 0, -1)); }
CASE(acct, RUN) { is(RAW(SYS_acct, "/none/none")); }
CASE(quotactl, RUN) { is(RAW(SYS_quotactl, -1, 0, 0, 0)); }
CASE(quotactl_fd, RUN) { is(RAW(SYS_quotactl_fd, -1, -1, 0, 0)); }
CASE(syslog, RUN) { is(RAW(SYS_syslog, 8, 0, 99)); }
CASE(vhangup, RUN) { setsid(); is(RAW(SYS_vhangup, 0)); }
CASE(bpf, RUN) { is(RAW(SYS_bpf, BPF_MAP_UPDATE_ELEM, -1, -1)); }
CASE(add_key, RUN) { is(RAW(SYS_add_key, -1, -1, 0, 0, 0)); }
CASE(request_key, RUN) { is(RAW(SYS_request_key, -1, -1, "x", 0)); }
CASE(keyctl, RUN) { is(RAW(SYS_keyctl, 3, 0x7ffffff0, 0, 0, 0)); }

/* Objects of others. */
CASE(shmget, RUN) { done(RAW(SYS_shmget, KEY, 0, 0)); }
CASE(semget, RUN) { done(RAW(SYS_semget, KEY, 0, 0)); }
CASE(msgget, RUN) { is(RAW(SYS_msgget, KEY, IPC_CREAT | IPC_EXCL | 0600)); }
CASE(shmctl, RUN) { is(RAW(SYS_shmctl, atoi(getenv("SHM")), IPC_SET, -1)); }
CASE(semctl, RUN) { is(RAW(SYS_semctl, atoi(getenv("SEM")), 0, IPC_SET, -1)); }
CASE(msgctl, RUN) { is(RAW(SYS_msgctl, atoi(getenv("MSG")), IPC_SET, -1)); }
CASE(mq_open, RUN) { is(RAW(SYS_mq_open, "txos-none", O_RDONLY, 0, 0)); }
CASE(mq_unlink, RUN) { is(RAW(SYS_mq_unlink, "txos-none")); }

/* The network: of addresses that are nobody's. */
static struct sockaddr_in nobody = {.sin_family = AF_INET};
static int datagrams(void)
{
    nobody.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1 */
    nobody.sin_port = htons(9);
    return socket(AF_INET, SOCK_DGRAM, 0);
}
CASE(connect, RUN) { is(RAW(SYS_connect, datagrams(), &nobody, sizeof nobody)); }
CASE(sendto, RUN) { is(RAW(SYS_sendto, datagrams(), "x", 1, 0, &nobody, sizeof nobody)); }
static struct mmsghdr letter(void)
{
    static struct iovec v = {buffer, 1};
    return (struct mmsghdr){.msg_hdr = {&nobody, sizeof nobody, &v, 1, 0, 0, 0}};
}
CASE(sendmsg, RUN) { struct mmsghdr m = letter(); is(RAW(SYS_sendmsg, datagrams(), &m.msg_hdr, 0)); }
CASE(sendmmsg, RUN) { struct mmsghdr m = letter(); is(RAW(SYS_sendmmsg, datagrams(), &m, 1, 0)); }
CASE(bind, RUN)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "/run/txos-test-%d", getpid());
    is(RAW(SYS_bind, socket(AF_UNIX, SOCK_STREAM, 0), &name, sizeof name));
    unlink(name.sun_path);
}

/* Signals: to the one who listens. */
static siginfo_t *queued(void)
{
    static siginfo_t info;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    return &info;
}
CASE(kill, INSIDE) { is(RAW(SYS_kill, pid, SIGUSR1)); }
CASE(tkill, INSIDE) { is(RAW(SYS_tkill, pid, SIGUSR1)); }
CASE(tgkill, INSIDE) { is(RAW(SYS_tgkill, pid, pid, SIGUSR1)); }
CASE(rt_sigqueueinfo, INSIDE) { is(RAW(SYS_rt_sigqueueinfo, pid, SIGUSR1, queued())); }
CASE(rt_tgsigqueueinfo, INSIDE) { is(RAW(SYS_rt_tgsigqueueinfo, pid, pid, SIGUSR1, queued())); }
CASE(pidfd_send_signal, INSIDE) { is(RAW(SYS_pidfd_send_signal, descriptor(), SIGUSR1, 0, 0)); }
/* As a 32-bit program calls it; its numbers are others. */
CASE(kill_32, INSIDE)
{
    long answer;
    __asm__ volatile("int $0x80" : "=a"(answer) : "0"(37), "b"(pid), "c"(SIGUSR1) : "memory");
    say(" %ld", answer);
}

/* What is refused. */
CASE(io_uring_setup, BOTH) { is(RAW(SYS_io_uring_setup, 1, buffer)); }
CASE(open_by_handle_at, BOTH) { is(RAW(SYS_open_by_handle_at, -1, buffer, 0)); }

static int file(void)
{
    return open("flags", O_CREAT | O_RDWR, 0644);
}
CASE(file_setattr, BOTH) { file(); is(RAW(NR_file_setattr, AT_FDCWD, "flags", buffer, 24, 0)); }
CASE(chattr_by_ioctl, BOTH) { long none = 0x40; is(RAW(SYS_ioctl, file(), 0x40086602, &none)); }
CASE(chattr_by_ioctl_of_xfs, BOTH) { is(RAW(SYS_ioctl, file(), 0x401c5820, buffer)); }

static void got(int signal)
{
    const char *line = signal == SIGUSR1 ? "usr1\n" : "usr2\n";
    int fd = open("got", O_CREAT | O_WRONLY | O_APPEND, 0644);
    if (write(fd, line, 5) != 5)
        _exit(9);
    close(fd);
}

static int listen_to(void)
{
    struct sigaction action = {.sa_handler = got, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return 3;
    printf("%d %d %d\n", shmget(KEY, 4096, IPC_CREAT | 0600), semget(KEY, 1, IPC_CREAT | 0600), msgget(KEY, IPC_CREAT | 0600));
    fflush(stdout);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const char *call = argc > 1 ? argv[1] : "";
    if (!strcmp(call, "listen"))
        return listen_to();
    pid = argc > 2 ? atoi(argv[2]) : 0;
    for (int i = 0; i < count; i++) {
        if (!strcmp(call, "list"))
            printf("%s %d\n", cases[i].name, cases[i].where);
        if (strcmp(call, cases[i].name))
            continue;
        current = call;
        bool inside = argc > 3;
        if (inside && sys_xbegin(TX_STRICT) != 0)
            return fprintf(stderr, "outside: %s\n", txos_strerror()), 125;
        cases[i].make();
        puts(said);
        fflush(stdout);
        char byte;
        if (inside && read(5, &byte, 1) != 1)
            return 3;
        if (inside && !strcmp(argv[3], "abort"))
            sys_xabort(1);
        else if (inside && sys_xend() != 0)
            return fprintf(stderr, "outside: %s\n", txos_strerror()), 125;
        return 0;
    }
    return strcmp(call, "list") ? 2 : 0;
}
