/* others list
 * others CALL natively|commit|abort|strict|unmapped|ended
 *
 * A process outside of a transaction, whose memory and descriptors the transaction's calls concern. It says what is in its memory and
 * where its open file is read from: before the transaction, when the calls were made, and afterwards. Then come what the calls
 * were answered, and the end of the transaction. "natively" makes the calls without one; with "unmapped" and "ended" the process has
 * unmapped its memory, or has ended, before the commit.
 */
#include "cases.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <pthread.h>
#include <time.h>

enum { NOTHING, LOOK, UNMAP, END };
static struct { volatile int asked; volatile pid_t thread; char said[256]; } *shared;
static pid_t pid;
static char *memory; /* two pages, of which only the first stays, at the same place in both processes */
static int theirs;   /* the file that the process outside has open; here it is closed */
static char own[16] = "before";

static void nap(void)
{
    struct timespec some = {0, 1000000};
    nanosleep(&some, NULL);
}

/* Whether the process outside has ended. */
static bool is_over(void)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    return n <= 0 || strstr(line, ") Z") != NULL;
}

/* Has the process outside do something. */
static void ask(int what)
{
    shared->asked = what;
    for (int i = 0; i < 20000 && (what == END ? !is_over() : shared->asked != NOTHING); i++)
        nap();
    if (what != END && shared->asked != NOTHING)
        exit(3);
}

static void outside(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;; nap()) {
        switch (shared->asked) {
        case LOOK: snprintf(shared->said, sizeof shared->said, "%.20s %ld", memory, (long)lseek(theirs, 0, SEEK_CUR)); break;
        case UNMAP: munmap(memory, 4096); break;
        case END: _exit(0);
        default: continue;
        }
        shared->asked = NOTHING;
    }
}

static void look(void)
{
    ask(LOOK);
    printf("%s\n", shared->said);
    fflush(stdout);
}

static long write_to(pid_t to, void *at, const char *text, size_t len)
{
    struct iovec from[2] = {{(void *)text, 2}, {(void *)(text + 2), len - 2}}, there[2] = {{at, 1}, {(char *)at + 1, len - 1}};
    return RAW(SYS_process_vm_writev, to, from, 2, there, 2, 0);
}

static void *elsewhere(void *unused)
{
    shared->thread = (pid_t)syscall(SYS_gettid);
    while (shared->thread != 0)
        nap();
    return unused;
}

CASE(process_vm_writev, INSIDE)
{
    struct iovec some = {own, 4}, none = {(void *)1, 4}, end = {memory + 4092, 16}, many = {memory, 16};
    is(write_to(pid, memory, "written!", 8));
    is(RAW(SYS_process_vm_writev, pid, &some, 1, &none, 1, 0));
    is(RAW(SYS_process_vm_writev, pid, &none, 1, &some, 1, 0));
    is(RAW(SYS_process_vm_writev, pid, &many, 1, &end, 1, 0)); /* as far as there is memory */
    is(RAW(SYS_process_vm_writev, pid, &some, 1, &some, 1, 1));
    is(RAW(SYS_process_vm_writev, pid, &some, 0, &none, 1, 0));
    is(RAW(SYS_process_vm_writev, 0x3fffffff, &some, 1, &some, 1, 0));
    some.iov_base = (void *)"constant"; /* which lies in memory that can't be written */
    is(RAW(SYS_process_vm_writev, pid, &some, 1, &some, 1, 0));
    /* The process's own memory, by its number and by that of a thread, is written at once. */
    is(write_to(getpid(), own, "at once", 8));
    say(" %s", own);
    is(write_to(shared->thread, own, "again", 6));
    say(" %s", own);
}
CASE(move_pages, INSIDE)
{
    void *pages[2] = {memory, memory + 4096};
    int nodes[2] = {0, 0}, status[2] = {7, 7}, far = 5000;
    is(RAW(SYS_move_pages, pid, 2, pages, nodes, status, 2));
    say(" %d %d", status[0], status[1]);
    is(RAW(SYS_move_pages, pid, 1, pages, 0, status, 0));
    is(RAW(SYS_move_pages, pid, 1, pages, &far, status, 2));
    is(RAW(SYS_move_pages, pid, 1, pages, nodes, status, 99));
    is(RAW(SYS_move_pages, 0x3fffffff, 1, pages, nodes, status, 2));
    is(RAW(SYS_move_pages, pid, 1, 1, nodes, status, 2));
    is(RAW(SYS_move_pages, 0, 1, &(void *){own}, nodes, status, 2));
}
CASE(migrate_pages, INSIDE)
{
    uint64_t from = 1, to = 1;
    is(RAW(SYS_migrate_pages, pid, 64, &from, &to));
    is(RAW(SYS_migrate_pages, pid, 0, &from, &to));
    is(RAW(SYS_migrate_pages, 0x3fffffff, 64, &from, &to));
    is(RAW(SYS_migrate_pages, pid, 64, 1, &to));
    is(RAW(SYS_migrate_pages, pid, 64, &from, 1));
    is(RAW(SYS_migrate_pages, 0, 64, &from, &to));
}
CASE(pidfd_getfd, INSIDE)
{
    char got[8] = "";
    int process = (int)RAW(SYS_pidfd_open, pid, 0);
    int fd = (int)is(RAW(SYS_pidfd_getfd, process, theirs, 0));
    is(RAW(SYS_fcntl, fd, F_GETFD, 0));
    is(RAW(SYS_read, fd, got, 3));
    say(" %s", got);
    is(RAW(SYS_pidfd_getfd, process, 9999, 0));
    is(RAW(SYS_pidfd_getfd, process, theirs, 1));
    is(RAW(SYS_pidfd_getfd, -1, theirs, 0));
}

static int act(const char *how, void (*make)(void))
{
    look();
    bool natively = !strcmp(how, "natively");
    if (!natively && sys_xbegin(strcmp(how, "strict") ? 0 : TX_STRICT) != 0)
        return fprintf(stderr, "others: %s\n", txos_strerror()), 125;
    make();
    look();
    if (!strcmp(how, "unmapped"))
        ask(UNMAP);
    if (!strcmp(how, "ended"))
        ask(END);
    int end = 0;
    if (!strcmp(how, "abort"))
        sys_xabort(1);
    else if (!natively)
        end = sys_xend();
    if (!strcmp(how, "unmapped") || !strcmp(how, "ended"))
        fprintf(stderr, "said: %s\n", txos_strerror());
    else
        look();
    printf("%s\nend %d, %s\n", said, end, fcntl(theirs, F_GETFD) == -1 ? "closed" : "open");
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
        memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED || memory == MAP_FAILED || munmap(memory + 4096, 4096) != 0)
            return 3;
        strcpy(memory, "nothing yet");
        theirs = open("file", O_RDWR);
        if (theirs < 0 || (pid = fork()) < 0)
            return 3;
        if (pid == 0)
            outside();
        close(theirs);
        pthread_t thread;
        if (pthread_create(&thread, NULL, elsewhere, NULL) != 0)
            return 3;
        while (shared->thread == 0)
            nap();
        int ended = act(how, cases[i].make);
        shared->thread = 0;
        pthread_join(thread, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return ended;
    }
    return strcmp(call, "list") ? 2 : 0;
}
