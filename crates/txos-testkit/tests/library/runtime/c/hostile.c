/* A process of another user in a command's transaction that has turned on it: it has the library in its memory, and the
 * connection to the process that makes its calls. It gets past the dispatch of system calls by an instruction of the
 * library's own, and from there on says what it wants. One attack each; what it has got is printed. */
#define _GNU_SOURCE
#include "raw.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define WINDOW (1 << 20)
#define SPACE (1 << 20)
#define PLACE 512
#define MAILBOX 256

enum ask { CALL = 1, MAP, PROGRAM, CHILD, HERE, END, LIVE, OUTPUT, FAIL, IS_MEMBER, ABORT, SIGNAL = 16, GROUP, REOPEN = 20 };
enum how { DONE = 1, WITH_DESCRIPTORS, YOURSELF, ELSEWHERE, LATER, OVER };

struct request {
    uint64_t ask;
    int64_t number;
    uint64_t words[6];
    int64_t chosen;
};

struct answer {
    uint64_t how;
    int64_t answer;
    uint64_t more[2];
};

static int link_fd;
static char *window;
/* Beside the last answer. */
static int beside[2];

static void die(const char *what)
{
    dprintf(1, "%s: %s\n", what, strerror(errno));
    _exit(90);
}

/* --- Past the dispatch ------------------------------------------------------------------------- */

static long by(unsigned char *instruction, long number, long a, long b)
{
    long answer;
#if defined(__x86_64__)
    __asm__ volatile("xor %%r10d, %%r10d; xor %%r8d, %%r8d; call *%[to]"
                     : "=a"(answer)
                     : "a"(number), "D"(a), "S"(b), "d"(0L), [to] "b"(instruction)
                     : "rcx", "r8", "r9", "r10", "r11", "memory");
#else
    (void)instruction, (void)number, (void)a, (void)b;
    answer = -1;
#endif
    return answer;
}

static void leave_dispatch(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];

    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[8];
        if (!strstr(line, "libtxos") || sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || rights[2] != 'x')
            continue;
        for (unsigned char *at = (unsigned char *)from; at + 3 < (unsigned char *)to; at++)
            if (at[0] == 0x0f && at[1] == 0x05 && at[2] == 0xc3 && by(at, SYS_prctl, 59, 0) == 0) {
                fclose(maps);
                return;
            }
    }
    errno = ENOENT;
    die("no instruction");
}

static void find_link(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];

    link_fd = -1;
    for (int fd = 3; fd < (1 << 20) && link_fd < 0; fd++) {
        int type = 0;
        socklen_t room = sizeof type;
        if (RAW(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &room) == 0 && type == SOCK_SEQPACKET)
            link_fd = fd;
    }
    while (maps && !window && fgets(line, sizeof line, maps))
        if (strstr(line, "txos window"))
            window = (char *)strtoul(line, 0, 16);
    if (maps)
        fclose(maps);
    /* Its children are to have it, too. */
    if (link_fd < 0 || !window || RAW(SYS_madvise, window, WINDOW, MADV_DOFORK))
        die("window");
}

/* --- What it says ------------------------------------------------------------------------------ */

static struct request request(enum ask ask, long number, long a, long b, long c, long d, long e)
{
    struct request request = {ask, number, {a, b, c, d, e, 0}, -1};
    return request;
}

static long say(const struct request *request, int flags)
{
    return RAW(SYS_sendto, link_fd, request, sizeof *request, flags | MSG_NOSIGNAL, 0, 0);
}

static struct answer hear(void)
{
    struct answer answer = {0};
    char room[128] __attribute__((aligned(8)));
    struct iovec part = {&answer, sizeof answer};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};

    beside[0] = beside[1] = -1;
    if (RAW(SYS_recvmsg, link_fd, &header, 0) <= 0)
        return (struct answer){OVER, 0, {0}};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c))
        if (c->cmsg_type == SCM_RIGHTS)
            memcpy(beside, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0) < sizeof beside ? c->cmsg_len - CMSG_LEN(0) : sizeof beside);
    return answer;
}

static struct answer ask(struct request request)
{
    if (say(&request, 0) < 0)
        return (struct answer){OVER, -errno, {0}};
    return hear();
}

static long put(const char *text)
{
    strcpy(window + PLACE, text);
    return PLACE;
}

static struct request to_open(const char *path, int flags, int mode, int chosen)
{
    struct request open = request(CALL, SYS_openat, AT_FDCWD, put(path), flags, mode, 0);
    open.chosen = chosen;
    return open;
}

/* A number that is free, as the library would have chosen it. */
static int opens(const char *path, int flags, int mode)
{
    static int next = 600;
    struct answer answer = ask(to_open(path, flags, mode, next));

    if (answer.how == WITH_DESCRIPTORS)
        return beside[0];
    if (answer.how != DONE || answer.answer < 0) {
        errno = answer.how == DONE ? -answer.answer : EXDEV;
        return -1;
    }
    return next++;
}

static void told(const char *what, long answer)
{
    dprintf(1, "%s: %s\n", what, answer < 0 ? strerrorname_np(-answer) : "done");
}


/* --- Attacks ----------------------------------------------------------------------------------- */

/* Descriptors of others: by number, and by the paths that lead to them. */
static void numbers(void)
{
    int got = 0, led = 0;

    for (int space = 0; space < 64; space++)
        for (int n = 0; n < 64; n++) {
            char path[64];
            int number = space * SPACE + n;
            if (space > 0)
                got += ask(request(CALL, SYS_fstat, number, PLACE, 0, 0, 0)).answer >= 0;
            else if (n > 2)
                got += ask(request(CALL, SYS_read, n, PLACE, 16, 0, 0)).answer > 0;
            sprintf(path, "/proc/self/fd/%d", number);
            struct answer answer = ask(request(CALL, SYS_stat, put(path), 4096, 0, 0, 0));
            led += space > 2 && answer.how == DONE && answer.answer == 0;
            answer = ask(to_open(path, O_RDONLY, 0, 700));
            led += space > 0 && (answer.how == WITH_DESCRIPTORS || (answer.how == DONE && answer.answer >= 0));
        }
    dprintf(1, "numbers: %d %d\n", got, led);
}

/* What the process that has the transaction is to itself. */
static void magic(void)
{
    static const char *const paths[] = {
        "/proc/self/mem", "/proc/self/environ", "/proc/self/maps", "/proc/thread-self/environ", "/proc/self/fdinfo/0",
        "/proc/self/task", "/proc/self/map_files", "/proc/self/../self/environ", "/dev/fd/5", "/dev/fd",
    };
    int got = 0;

    for (size_t n = 0; n < sizeof paths / sizeof *paths; n++) {
        struct answer answer = ask(to_open(paths[n], O_RDONLY, 0, 700));
        got += answer.how == WITH_DESCRIPTORS || (answer.how == DONE && answer.answer >= 0);
        answer = ask(request(CALL, SYS_truncate, put(paths[n]), 0, 0, 0, 0));
        got += answer.how == DONE && answer.answer >= 0;
    }
    dprintf(1, "magic: %d\n", got);
    for (int n = 0; n < 2; n++) {
        ask(request(CALL, SYS_chdir, put(n ? "/proc/self/task" : "/proc/self/fd"), 0, 0, 0, 0));
        for (int fd = 0; fd < 1100; fd++) {
            char name[16];
            sprintf(name, "%d", fd);
            struct answer answer = ask(to_open(name, O_RDONLY, 0, 700));
            got += answer.how == WITH_DESCRIPTORS || (answer.how == DONE && answer.answer >= 0);
        }
    }
    dprintf(1, "magic below: %d\n", got);
}

/* Descriptors that come beside answers have the caller's rights, and no others. */
static void descriptors(void)
{
    struct stat stat;
    int theirs = opens("readable", O_RDONLY, 0);
    struct answer answer = ask(request(MAP, 0, 0, 4096, PROT_READ, MAP_SHARED, theirs));

    told("map", answer.how == WITH_DESCRIPTORS ? 0 : answer.answer);
    told("written", RAW(SYS_pwrite64, beside[0], "x", 1, 0) < 0 ? -errno : 0);
    told("mode", RAW(SYS_fchmod, beside[0], 0777) < 0 ? -errno : 0);
    told("map to write", ask(request(MAP, 0, 0, 4096, PROT_WRITE, MAP_SHARED, theirs)).answer);
    told("map of another", ask(request(MAP, 0, 0, 4096, PROT_READ, MAP_SHARED, SPACE + 3)).answer);
    int unread = opens("write-only", O_WRONLY, 0);
    told("map of what is not read", ask(request(MAP, 0, 0, 4096, PROT_READ, MAP_PRIVATE, unread)).answer);
    told("read of it", ask(request(CALL, SYS_pread64, unread, PLACE, 16, 0, 0)).answer);
    int mine = opens("pub/mine", O_RDWR | O_CREAT, 0600);
    struct request copy = request(CALL, SYS_sendfile, mine, unread, 0, 100, 0);
    told("sendfile of it", ask(copy).answer);
    copy = request(CALL, SYS_copy_file_range, unread, 0, mine, 0, 100);
    told("copy of it", ask(copy).answer);
    answer = ask(request(PROGRAM, 0, AT_FDCWD, put("secret-program"), 0, 0, 0));
    told("program", answer.how == DONE ? answer.answer : 0);
    answer = ask(request(PROGRAM, 0, AT_FDCWD, put("unread-program"), 0, 0, 0));
    told("program that is not read", beside[0] < 0 ? -EACCES : 0);
    told("window", RAW(SYS_fstat, beside[0], &stat) < 0 ? -errno : 0);
}

/* Requests that make no sense, and places outside of the window. */
static void nonsense(void)
{
    static const long calls[] = {SYS_read, SYS_openat, SYS_getcwd, SYS_statx, SYS_symlinkat, SYS_linkat, SYS_setxattr};
    static const unsigned long words[] = {0, 1, 511, 512, WINDOW - 1, WINDOW, 1UL << 32, 1UL << 47, 1UL << 63, -1UL};
    const int count = sizeof words / sizeof *words;

    memset(window + PLACE, 'x', WINDOW - PLACE);
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++)
        for (int a = 0; a < count; a++)
            for (int b = 0; b < count; b++)
                ask(request(CALL, calls[n], words[a], words[b], words[(a + b) % count], words[b], words[a]));
    told("end", ask(request(END, 0, 0, 0, 0, 0, 0)).answer);
    told("no such thing", ask(request(77, 0, 0, 0, 0, 0, 0)).answer);
    told("no such call", ask(request(CALL, 9999, 1, 2, 3, 4, 5)).answer);
    struct request image = request(REOPEN, 0, 3, O_RDONLY, 0, 0, 0);
    image.chosen = 9;
    told("any image", ask(image).answer);
    told("any fcntl", ask(request(CALL, SYS_fcntl, 0, 16, 64, 0, 0)).answer);
    told("any ioctl", ask(request(CALL, SYS_ioctl, 0, 0x5413, 64, 0, 0)).answer);
    memset(window + PLACE, 'x', WINDOW - PLACE);
    told("endless path", ask(request(CALL, SYS_mkdir, WINDOW - 16, 0777, 0, 0, 0)).answer);
    told("still there", ask(request(CALL, SYS_mkdir, put("pub/still"), 0777, 0, 0, 0)).answer);
    told("secret", opens("secret", O_RDONLY, 0) < 0 ? -errno : 0);
}

/* The connection is one process's. */
static void connection(void)
{
    int status = 0;
    long child = RAW(SYS_clone, SIGCHLD, 0, 0, 0, 0);

    if (child == 0) {
        told("copy of the process", ask(request(CALL, SYS_mkdir, put("pub/copy"), 0777, 0, 0, 0)).answer);
        _exit(0);
    }
    RAW(SYS_wait4, child, &status, 0, 0);
    struct answer answer = ask(request(CHILD, 0, 0, 0, 0, 0, 0));
    int own = link_fd;
    told("child", answer.how == WITH_DESCRIPTORS ? 0 : answer.answer);
    link_fd = beside[0];
    told("call before it is there", ask(request(CALL, SYS_mkdir, put("pub/early"), 0777, 0, 0, 0)).answer);
    RAW(SYS_close, link_fd);
    link_fd = own;
}

/* A request in the mailbox of its window, where nobody says who asks. */
static void mailbox(void)
{
    volatile uint32_t *state = (volatile uint32_t *)(window + MAILBOX + 4);
    int left = 1;

    memcpy(window + MAILBOX + 8, &(struct request){CALL, SYS_mkdir, {put("pub/boxed"), 0777}, -1}, sizeof(struct request));
    *state = 1;
    for (int n = 0; n < 2000; n++) {
        ask(request(CALL, SYS_getcwd, 4096, 100, 0, 0, 0));
        left = left && *state == 1;
    }
    dprintf(1, "mailbox: %s\n", left ? "left" : "taken");
}

/* The same, as the owner: the mailbox is looked into, and says now this, now that. */
static void scribbles(void)
{
    volatile uint32_t *state = (volatile uint32_t *)(window + MAILBOX + 4);
    struct request harmless = request(CALL, SYS_getcwd, 4096, 100, 0, 0, 0);
    struct answer answer;
    unsigned seed = 7, taken = 0;

    for (int n = 0; n < 20000; n++) {
        if (n % 4 == 0)
            ask(harmless);
        seed = seed * 1103515245 + 12345;
        memcpy(window + MAILBOX + 8, &harmless, sizeof harmless);
        if (seed >> 30 == 0)
            memset(window + MAILBOX + 8, seed >> 16, 40);
        *state = seed >> 16 & 7;
        for (int wait = 0; wait < 20000 && *state == 1; wait++)
            __asm__ volatile("" : : : "memory");
        taken += *state == 2 || *state == 3;
        while (RAW(SYS_recvfrom, link_fd, &answer, sizeof answer, MSG_DONTWAIT, 0, 0) > 0)
            ;
    }
    *state = 0;
    /* What was asked before is answered by a length, or not at all. */
    struct request last = request(CALL, SYS_mkdir, put("pub/still"), 0777, 0, 0, 0);
    say(&last, 0);
    do
        answer = hear();
    while (answer.how == DONE && answer.answer != 0);
    told("still there", answer.how == DONE ? 0 : -EPIPE);
    dprintf(1, "some were taken: %d\n", taken > 0);
}

/* A child that gives up its rights without another program: what it has of its parent's window. */
static void inherits(void)
{
    pid_t child = fork();
    char line[4096];
    int windows = 0, open = 0, status = 0;

    if (child == 0) {
        if (setgroups(0, 0) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
            die("rights");
        FILE *maps = fopen("/proc/self/maps", "r");
        while (maps && fgets(line, sizeof line, maps))
            windows += strstr(line, "txos window") != 0;
        for (int fd = 0; fd < 20000; fd++) {
            char path[64], to[64] = "";
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            open += readlink(path, to, sizeof to - 1) > 0 && strstr(to, "txos window");
        }
        dprintf(1, "windows: %d, open: %d\n", windows, open);
        _exit(0);
    }
    waitpid(child, &status, 0);
    exit(status != 0);
}

/* What was found to be a file is a FIFO now: whoever opens it waits, and all others with it. */
static void fifo(const char *how)
{
    struct answer answer;

    if (!strcmp(how, "write") || !strcmp(how, "page"))
        opens("given/f", O_RDWR, 0);
    else
        ask(request(CALL, SYS_stat, put("given/f"), 4096, 0, 0, 0));
    if (RAW(SYS_unlink, "given/f") || RAW(SYS_mknod, "given/f", S_IFIFO | 0666, 0))
        die("fifo");
    if (!strcmp(how, "open"))
        answer = ask(to_open("given/f", O_RDONLY, 0, 700));
    else if (!strcmp(how, "both"))
        answer = ask(to_open("given/f", O_RDWR, 0, 700));
    else if (!strcmp(how, "truncate"))
        answer = ask(request(CALL, SYS_truncate, put("given/f"), 1, 0, 0, 0));
    else
        answer = ask(request(CALL, SYS_pwrite64, 600, PLACE, how[0] == 'p' ? 1 : 500000, 0, 0));
    dprintf(1, "fifo: answered %d\n", answer.how != 0);
}

/* Asks and asks, and takes no answers. */
static void flood(void)
{
    struct request look = request(CALL, SYS_getcwd, PLACE, 100, 0, 0, 0);
    struct pollfd ready = {link_fd, POLLOUT, 0};

    while (say(&look, MSG_DONTWAIT) >= 0 || (errno == EAGAIN && RAW(SYS_poll, &ready, 1, 20000) > 0))
        continue;
    dprintf(1, "flood: %s\n", strerrorname_np(errno));
}

/* Asks, and runs a set-user-id program before the answer: who is it when it is looked at? */
static void rise(const char *program)
{
    char *const arguments[] = {"sleep", "3", 0}, *const none[] = {0};
    struct pollfd ready = {0, POLLIN, 0};
    struct request open, read, here = request(HERE, 0, 0, 0, 0, 0, 0);
    int slow = opens("pub/slow", O_RDWR | O_CREAT, 0600), queued = 0;
    long process = RAW(SYS_clone, SIGCHLD, 0, 0, 0, 0);

    ready.fd = link_fd;
    if (process == 0) {
        /* It keeps the connection, and hears the answers. */
        while (RAW(SYS_poll, &ready, 1, 4000) > 0 && hear().how != OVER)
            continue;
        dprintf(1, "rise: %.6s\n", strstr(window + 1024, "secret") ? "secret" : "nothing");
        _exit(0);
    }
    memset(window + 1024, 0, 64);
    strcpy(window + PLACE, "secret");
    struct request busy = request(CALL, SYS_pwrite64, slow, 4096, 900000, 0, 0);
    while (queued < 60 && say(&busy, MSG_DONTWAIT) >= 0)
        queued++;
    open = request(CALL, SYS_openat, AT_FDCWD, PLACE, O_RDONLY, 0, 0);
    open.chosen = 650;
    read = request(CALL, SYS_read, 650, 1024, 32, 0, 0);
    say(&here, 0);
    say(&open, 0);
    say(&read, 0);
    RAW(SYS_execve, program, arguments, none);
    die("execve");
}

/* What it might do once, and may not do any more. */
static void late(void)
{
    struct answer answer;
    char byte;
    int fd = opens("for-all", O_RDWR, 0);

    told("before", fd);
    int ready = RAW(SYS_open, "pub/ready", O_WRONLY), go = RAW(SYS_open, "pub/go", O_RDONLY);
    RAW(SYS_read, go, &byte, 1);
    RAW(SYS_close, ready);
    fd = opens("for-all", O_RDWR, 0);
    told("after", fd < 0 ? -errno : 0);
    answer = ask(request(CALL, SYS_pread64, fd, PLACE, 32, 0, 0));
    dprintf(1, "late: %s\n", fd >= 0 && answer.answer > 0 && strstr(window + PLACE, "secret") ? "secret" : "nothing");
}

/* Signals to somebody whom this user may not signal: they are held, and go with this user's rights. */
static void signals(int pid)
{
    static const struct {
        const char *what;
        long number, words[4];
    } wrong[] = {
        {"no signal", SYS_kill, {1, 65}},
        {"asks", SYS_kill, {1, 0}},
        {"no group", SYS_kill, {0, SIGUSR1}},
        {"no thread", SYS_tgkill, {1, 0, SIGUSR1}},
        {"nobody", SYS_tkill, {-1, SIGUSR1}},
        {"outside of the window", SYS_rt_sigqueueinfo, {1, SIGUSR1, WINDOW - 8}},
        {"before it", SYS_rt_tgsigqueueinfo, {1, 1, SIGUSR1, 8}},
        {"no descriptor", SYS_pidfd_send_signal, {3, SIGUSR1}},
        {"no signal's call", SYS_reboot, {1, SIGUSR1}},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const long *words = wrong[i].words;
        told(wrong[i].what, ask(request(SIGNAL, wrong[i].number, words[0], words[1], words[2], words[3], 0)).answer);
    }
    told("kill", ask(request(SIGNAL, SYS_kill, pid, SIGUSR1, 0, 0, 0)).answer);
    told("tgkill", ask(request(SIGNAL, SYS_tgkill, pid, pid, SIGUSR2, 0, 0)).answer);
    /* As if the kernel had sent it. */
    memset(window + PLACE, 0, 128);
    told("queue", ask(request(SIGNAL, SYS_rt_sigqueueinfo, pid, SIGUSR1, PLACE, 0, 0)).answer);
}

/* The processes that send signals for this user are stopped, whenever there is one. */
static void stops(int pid)
{
    struct ucred server;
    socklen_t room = sizeof server;
    RAW(SYS_getsockopt, link_fd, SOL_SOCKET, SO_PEERCRED, &server, &room);
    long answers = 0, process = RAW(SYS_clone, SIGCHLD, 0, 0, 0, 0);

    if (process == 0) {
        RAW(SYS_close, link_fd);
        RAW(SYS_close, 1);
        RAW(SYS_close, 2);
        RAW(SYS_prctl, PR_SET_NAME, "stops", 0, 0, 0);
        char path[64], all[4096];
        snprintf(path, sizeof path, "/proc/%d/task/%d/children", server.pid, server.pid);
        int children = RAW(SYS_open, path, O_RDONLY);
        for (long began = time(0); time(0) < began + 6;) {
            memset(all, 0, sizeof all);
            if (RAW(SYS_pread64, children, all, sizeof all - 1, 0) < 0)
                break;
            for (char *number = strtok(all, " "); number; number = strtok(0, " "))
                RAW(SYS_kill, atoi(number), SIGSTOP);
        }
        RAW(SYS_exit_group, 0);
    }
    for (int i = 0; i < 1000; i++)
        answers += ask(request(SIGNAL, SYS_kill, pid, SIGUSR1, 0, 0, 0)).how != 0;
    dprintf(1, "stops: %ld\n", answers);
}

int main(int argc, char **argv)
{
    const char *attack = argc > 1 ? argv[1] : "", *more = argc > 2 ? argv[2] : "";

    if (!strcmp(attack, "inherits"))
        inherits();
    leave_dispatch();
    find_link();
    if (!strcmp(attack, "numbers"))
        numbers();
    else if (!strcmp(attack, "magic"))
        magic();
    else if (!strcmp(attack, "descriptors"))
        descriptors();
    else if (!strcmp(attack, "nonsense"))
        nonsense();
    else if (!strcmp(attack, "connection"))
        connection();
    else if (!strcmp(attack, "mailbox"))
        mailbox();
    else if (!strcmp(attack, "scribbles"))
        scribbles();
    else if (!strcmp(attack, "fifo"))
        fifo(more);
    else if (!strcmp(attack, "flood"))
        flood();
    else if (!strcmp(attack, "rise"))
        rise(more);
    else if (!strcmp(attack, "late"))
        late();
    else if (!strcmp(attack, "signals"))
        signals(atoi(more));
    else if (!strcmp(attack, "stops"))
        stops(atoi(more));
    else
        die("attack");
    /* Nothing of the library's is to run at the end. */
    RAW(SYS_exit_group, 0);
    return 0;
}
