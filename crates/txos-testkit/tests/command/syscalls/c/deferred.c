/* deferred list
 * deferred CALL commit|abort|fail|many
 * deferred CALL natively|refused
 * deferred names commit|abort
 *
 * Calls that change the machine, made in a transaction of a thread. None is ever made for real: a filter hands each to
 * the parent of the process that makes it, which stands in for the kernel and notes what it was asked for. Until the
 * program has its answer, the parent refuses with EINVAL whatever comes, as a kernel does that is asked whether somebody
 * may make the call at all; later it answers 0, with "fail" EBUSY. The parent says
 *
 *     answer N            what the program was answered
 *     before ARGUMENTS    the call, made as it was asked for before the transaction has ended
 *     made ARGUMENTS      the call, made afterwards
 *     asked ARGUMENTS     as the program has asked for it
 *     end N               how the transaction has ended
 *
 * "many" makes the call as often as it is held. "natively" and "refused" give up all rights and make the call without a
 * filter, "refused" in a transaction: the answer. "names": see below.
 */
#include "cases.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

/* What the two processes share. */
static struct shared {
    long number;
    uint64_t args[6];
    /* How each argument is described: w a word, s a text, n one with its length, p a path, f a descriptor, t a time of seconds and the rest, k
     * segments of a kernel, 8 and so on that many words, - not at all. */
    char kinds[8];
    uint64_t first[6]; /* the arguments when the program made it */
    volatile int answered;
    volatile long answer;
    char asked[4096];
} *shared;

static char buffer[4096];
static char name[64] = "new-name", text[64] = "text for it";
static uint64_t words[32];

static void set(long number, const char *kinds, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    shared->number = number;
    strcpy(shared->kinds, kinds);
    uint64_t args[6] = {a, b, c, d, e, 0};
    memcpy(shared->args, args, sizeof args);
}

#define AT(pointer) ((uint64_t)(uintptr_t)(pointer))

static uint64_t file(void)
{
    return (uint64_t)open("file", O_RDONLY);
}

CASE(sethostname, INSIDE) { set(SYS_sethostname, "nw", AT(name), strlen(name), 0, 0, 0); }
CASE(setdomainname, INSIDE) { set(SYS_setdomainname, "nw", AT(name), strlen(name), 0, 0, 0); }
CASE(reboot, INSIDE) { set(SYS_reboot, "wwws", 0xfee1dead, 672274793, 0xa1b2c3d4, AT(text), 0); }
CASE(vhangup, INSIDE) { set(SYS_vhangup, "", 0, 0, 0, 0, 0); }
CASE(syslog, INSIDE) { set(SYS_syslog, "ww", 5, 0, 0, 0, 0); }
CASE(settimeofday, INSIDE)
{
    words[0] = (uint64_t)time(NULL) + 1000, words[1] = 5;
    set(SYS_settimeofday, "tw", AT(words), 0, 0, 0, 0);
}
CASE(clock_settime, INSIDE)
{
    words[0] = (uint64_t)time(NULL) + 1000, words[1] = 5;
    set(SYS_clock_settime, "wt", CLOCK_REALTIME, AT(words), 0, 0, 0);
}
CASE(adjtimex, INSIDE)
{
    *(struct timex *)words = (struct timex){.modes = ADJ_MAXERROR, .maxerror = 77};
    set(SYS_adjtimex, "8", AT(words), 0, 0, 0, 0);
}
CASE(clock_adjtime, INSIDE)
{
    *(struct timex *)words = (struct timex){.modes = ADJ_MAXERROR, .maxerror = 77};
    set(SYS_clock_adjtime, "w8", CLOCK_REALTIME, AT(words), 0, 0, 0);
}
CASE(swapon, INSIDE) { set(SYS_swapon, "pw", AT("file"), 0x8005, 0, 0, 0); }
CASE(swapoff, INSIDE) { set(SYS_swapoff, "p", AT("file"), 0, 0, 0, 0); }
CASE(acct, INSIDE) { set(SYS_acct, "p", AT("file"), 0, 0, 0, 0); }
CASE(quotactl, INSIDE)
{
    for (int i = 0; i < 8; i++)
        words[i] = (uint64_t)i;
    set(SYS_quotactl, "wsw8", 0x80000800, AT("/dev/null"), 99, AT(words), 0);
}
CASE(quotactl_fd, INSIDE)
{
    for (int i = 0; i < 8; i++)
        words[i] = (uint64_t)i;
    set(SYS_quotactl_fd, "fww8", file(), 0x80000800, 99, AT(words), 0);
}
CASE(init_module, INSIDE)
{
    memcpy(buffer, "\177ELF", 4);
    set(SYS_init_module, "8ws", AT(buffer), 100, AT(text), 0, 0);
}
CASE(finit_module, INSIDE) { set(SYS_finit_module, "fsw", file(), AT(text), 1, 0, 0); }
/* What there is no file of in /sys is known to be no module: with any other it says so. */
CASE(delete_module, INSIDE) { set(SYS_delete_module, "sw", AT(name), 0x800, 0, 0, 0); }
CASE(kexec_load, INSIDE)
{
    strcpy(buffer, "the other kernel");
    words[0] = AT(buffer), words[1] = 32, words[2] = 0x100000, words[3] = 4096;
    set(SYS_kexec_load, "wwkw", 0x100000, 1, AT(words), 62 << 16, 0);
}
CASE(kexec_file_load, INSIDE) { set(SYS_kexec_file_load, "ffwsw", file(), file(), strlen(text) + 1, AT(text), 0); }

static void copy(pid_t pid, uint64_t from, void *to, size_t len)
{
    struct iovec local = {to, len}, remote = {(void *)(uintptr_t)from, len};
    memset(to, 0, len);
    (void)!process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

/* What a process asks for, in words. */
static void describe(pid_t pid, const uint64_t *args, char *out)
{
    uint64_t there[8];
    char path[4096], link[64];
    for (const char *kind = shared->kinds; *kind; kind++, args++) {
        out += sprintf(out, " ");
        switch (*kind) {
        case 'w': out += sprintf(out, "%lx", (long)(uint32_t)*args); break;
        case 's': copy(pid, *args, path, sizeof text); out += sprintf(out, "%.63s", path); break;
        case 'n': copy(pid, *args, path, sizeof text); out += sprintf(out, "%.*s", (int)(args[1] & 63), path); break;
        case '8':
            copy(pid, *args, there, sizeof there);
            for (int i = 0; i < 8; i++)
                out += sprintf(out, "%lx,", (long)there[i]);
            break;
        case 't': /* it goes on */
            copy(pid, *args, there, 16);
            uint64_t wanted = shared->first[kind - shared->kinds];
            out += sprintf(out, "%s", there[0] - wanted < 60 && (there[0] > wanted || there[1] >= 5) ? "then" : "not then");
            break;
        case 'p':
            copy(pid, *args, path, 1024);
            out += sprintf(out, "%s", realpath(path, NULL));
            break;
        case 'f':
            sprintf(link, "/proc/%d/fd/%d", pid, (int)*args);
            ssize_t n = readlink(link, path, sizeof path);
            out += sprintf(out, "%.*s", (int)(n < 0 ? 0 : n), path);
            break;
        case 'k':
            copy(pid, *args, there, 32);
            copy(pid, there[0], path, 32);
            out += sprintf(out, "%.31s,%lx,%lx,%lx", path, (long)there[1], (long)there[2], (long)there[3]);
        }
    }
    *out = 0;
}

/* What a kernel answers that is not to do it yet. */
static int not_yet(const uint64_t *args, pid_t pid)
{
    uint64_t modes;
    switch (shared->number) {
    case SYS_adjtimex:
    case SYS_clock_adjtime:
        copy(pid, args[shared->number == SYS_clock_adjtime], &modes, 8);
        return (uint32_t)modes == 0 ? 0 : -EINVAL;
    case SYS_quotactl:
    case SYS_quotactl_fd: return -ESRCH;
    }
    return -EINVAL;
}

static bool fails;

/* One call that has come to the parent. */
static void stand_in(int listener)
{
    static char said[8192];
    struct seccomp_notif call = {0};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
        return;
    uint64_t args[6];
    memcpy(args, call.data.args, sizeof args);
    pid_t pid = (pid_t)call.pid;
    describe(pid, args, said);
    struct seccomp_notif_resp answer = {.id = call.id};
    if (!shared->answered) {
        answer.error = not_yet(args, pid);
        if (!strcmp(said, shared->asked))
            printf("before%s\n", said);
    } else {
        printf("made%s\n", said);
        answer.error = fails ? -EBUSY : 0;
    }
    fflush(stdout);
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

static int listener_of(long number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static int child(const char *end, int to_parent)
{
    int listener = listener_of(shared->number);
    if (listener < 0 || write(to_parent, &listener, sizeof listener) != sizeof listener)
        return 3;
    char byte; /* the parent has it */
    if (read(to_parent, &byte, 1) != 1)
        return 3;
    close(listener);
    close(to_parent);
    if (sys_xbegin(TX_STRICT) != 0)
        return fprintf(stderr, "deferred: %s\n", txos_strerror()), 125;
    uint64_t *a = shared->args;
    for (int i = 0; i < (strcmp(end, "many") ? 1 : 5000); i++) {
        long answer = raw6(shared->number, (long)a[0], (long)a[1], (long)a[2], (long)a[3], (long)a[4], 0);
        shared->answer = answer == -1 ? -errno : answer;
        if (shared->answer != 0)
            break;
    }
    /* What it was asked with is gone by then. */
    memset(name, 0, sizeof name), memset(text, 0, sizeof text), memset(words, 0, sizeof words), memset(buffer, 0, sizeof buffer);
    if (strchr(shared->kinds, 'f'))
        close((int)a[0]);
    shared->answered = 1;
    if (!strcmp(end, "abort"))
        return sys_xabort(1), 0;
    int ended = sys_xend();
    fprintf(stderr, "said: %s\n", txos_strerror());
    return ended;
}

static int parent(pid_t pid, int from_child)
{
    int theirs, status;
    if (read(from_child, &theirs, sizeof theirs) != sizeof theirs)
        return 3;
    int listener = (int)syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, pid, 0), theirs, 0);
    if (listener < 0)
        return 3;
    for (int i = 0; i < 6; i++)
        if (shared->kinds[i] == 't')
            copy(pid, shared->args[i], &shared->first[i], 8);
    describe(pid, shared->args, shared->asked);
    if (write(from_child, "x", 1) != 1)
        return 3;
    struct pollfd one = {listener, POLLIN, 0};
    while (poll(&one, 1, -1) == 1 && !(one.revents & POLLHUP))
        stand_in(listener);
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 3;
    printf("answer %ld\nasked%s\nend %d\n", shared->answer, shared->asked, WEXITSTATUS(status));
    return 0;
}

/* The names of the machine, in a namespace of its own: as the transaction sees them, as others do, and afterwards. */
static int names(const char *end)
{
    struct utsname u;
    if (unshare(CLONE_NEWUTS) != 0 || sethostname("before", 6) != 0 || setdomainname("realm", 5) != 0)
        return 3;
    if (sys_xbegin(TX_STRICT) != 0)
        return fprintf(stderr, "deferred: %s\n", txos_strerror()), 125;
    if (sethostname("a-longer-name", 13) != 0 || uname(&u) != 0)
        return 3;
    printf("%s %s", u.nodename, u.domainname);
    if (setdomainname("other", 5) != 0 || sethostname("new", 3) != 0 || uname(&u) != 0)
        return 3;
    printf(" %s %s", u.nodename, u.domainname);
    int fd = open("/proc/sys/kernel/hostname", O_RDONLY);
    ssize_t n = read(fd, buffer, sizeof buffer);
    close(fd);
    printf(" %.*s", (int)(n < 1 ? 0 : n - 1), buffer);
    fflush(stdout);
    if (!strcmp(end, "abort"))
        sys_xabort(1);
    else if (sys_xend() != 0)
        return 125;
    uname(&u);
    printf(" %s %s\n", u.nodename, u.domainname);
    return 0;
}

/* A caller without rights: the answer. */
static int without_rights(bool inside)
{
    if (syscall(SYS_setgroups, 0, NULL) != 0 || syscall(SYS_setresgid, 65534, 65534, 65534) != 0 || syscall(SYS_setresuid, 65534, 65534, 65534) != 0)
        return 3;
    if (inside && sys_xbegin(TX_STRICT) != 0)
        return fprintf(stderr, "deferred: %s\n", txos_strerror()), 125;
    uint64_t *a = shared->args;
    is(raw6(shared->number, (long)a[0], (long)a[1], (long)a[2], (long)a[3], (long)a[4], 0));
    if (inside)
        sys_xabort(1);
    puts(said);
    return 0;
}

int main(int argc, char **argv)
{
    const char *call = argc > 1 ? argv[1] : "", *how = argc > 2 ? argv[2] : "";
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 3;
    if (!strcmp(call, "names"))
        return names(how);
    for (int i = 0; i < count; i++) {
        if (!strcmp(call, "list"))
            printf("%s %d\n", cases[i].name, cases[i].where);
        if (strcmp(call, cases[i].name))
            continue;
        cases[i].make();
        if (!strcmp(how, "natively") || !strcmp(how, "refused"))
            return without_rights(!strcmp(how, "refused"));
        fails = !strcmp(how, "fail");
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
            return 3;
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(how, pair[1]));
        close(pair[1]);
        return parent(pid, pair[0]);
    }
    return strcmp(call, "list") ? 2 : 0;
}
