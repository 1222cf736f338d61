/* ipc list
 * ipc CALL natively|commit|abort|strict
 *
 * System V and POSIX IPC, in a namespace of its own, in a transaction of a thread, which has TX_STRICT with "strict". A
 * process outside of the transaction says what it sees of the objects: before it, when the call was made, and
 * afterwards; and what the call was answered. "natively" makes the call without a transaction.
 */
#include "cases.h"

#include <fcntl.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>

enum { KEY = 0x7478736d, NEW_KEY };

static struct { volatile int step; long said_by; char said[256]; } *shared;
static int memory, set, queue;
static mqd_t named; /* open since before */
static struct { long type; char text[16]; } message = {1, "hello"};
static char name[32] = "txos-there", new_name[32] = "txos-new";

static void prepare(void)
{
    memory = shmget(KEY, 4096, IPC_CREAT | 0600);
    set = semget(KEY, 2, IPC_CREAT | 0600);
    queue = msgget(KEY, IPC_CREAT | 0600);
    semctl(set, 1, SETVAL, 3);
    struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 16};
    named = mq_open("/txos-there", O_CREAT | O_RDWR, 0600, &attr);
    if (memory < 0 || set < 0 || queue < 0 || named < 0)
        exit(3);
}

/* What there is, as others see it. */
static void look(void)
{
    struct shmid_ds m;
    struct msqid_ds q;
    struct mq_attr attr;
    int fd = mq_open("/txos-there", O_RDONLY), new_one = mq_open("/txos-new", O_RDONLY);
    printf("memory %d %o %d;", shmget(KEY, 0, 0) >= 0, shmctl(memory, IPC_STAT, &m) ? 0 : m.shm_perm.mode, shmget(NEW_KEY, 0, 0) >= 0);
    printf(" semaphores %d %d %d %d;", semget(KEY, 0, 0) >= 0, semctl(set, 0, GETVAL), semctl(set, 1, GETVAL), semget(NEW_KEY, 0, 0) >= 0);
    printf(" queue %d %ld %d;", msgget(KEY, 0) >= 0, msgctl(queue, IPC_STAT, &q) ? -1 : (long)q.msg_qnum, msgget(NEW_KEY, 0) >= 0);
    printf(" named %d %ld %d\n", fd >= 0, mq_getattr(named, &attr) ? -1 : attr.mq_curmsgs, new_one >= 0);
    fflush(stdout);
    if (fd >= 0)
        close(fd);
    if (new_one >= 0)
        close(new_one);
}

static long operate(short which, short adds, short how)
{
    struct sembuf one = {(unsigned short)which, adds, how};
    return RAW(SYS_semop, set, &one, 1);
}

/* Making: again in the same transaction it is found. */
CASE(shmget, INSIDE) { done(RAW(SYS_shmget, NEW_KEY, 4096, IPC_CREAT | 0600)); done(RAW(SYS_shmget, NEW_KEY, 0, IPC_CREAT)); done(RAW(SYS_shmget, KEY, 0, IPC_CREAT)); is(RAW(SYS_shmget, NEW_KEY, 1, IPC_CREAT | IPC_EXCL)); }
CASE(semget, INSIDE) { done(RAW(SYS_semget, NEW_KEY, 1, IPC_CREAT | 0600)); done(RAW(SYS_semget, KEY, 0, IPC_CREAT)); is(RAW(SYS_semget, NEW_KEY, 1, IPC_CREAT | IPC_EXCL)); }
CASE(msgget, INSIDE) { done(RAW(SYS_msgget, NEW_KEY, IPC_CREAT | 0600)); done(RAW(SYS_msgget, KEY, IPC_CREAT)); is(RAW(SYS_msgget, NEW_KEY, IPC_CREAT | IPC_EXCL)); }
CASE(mq_open, INSIDE)
{
    int fd = (int)RAW(SYS_mq_open, new_name, O_CREAT | O_RDWR, 0600, 0);
    is(RAW(SYS_mq_timedsend, fd, "x", 1, 0, 0)); /* at once: it goes with the queue */
    char got[8192];
    is(RAW(SYS_mq_timedreceive, fd, got, sizeof got, 0, 0));
    is(RAW(SYS_mq_open, new_name, O_CREAT | O_EXCL | O_RDWR, 0600, 0));
    done(RAW(SYS_mq_open, name, O_CREAT | O_RDWR, 0600, 0));
}
/* What it has made itself is used and removed at once. */
CASE(ipc_of_its_own, INSIDE)
{
    int id = (int)RAW(SYS_msgget, IPC_PRIVATE, 0600), sems = (int)RAW(SYS_semget, IPC_PRIVATE, 1, 0600);
    struct sembuf add = {0, 2, 0}, take = {0, -1, 0};
    char got[32];
    is(RAW(SYS_msgsnd, id, &message, 5, 0));
    is(RAW(SYS_msgrcv, id, got, 16, 0, IPC_NOWAIT) == 5 ? 0 : 1);
    is(RAW(SYS_semop, sems, &add, 1));
    is(RAW(SYS_semop, sems, &take, 1));
    is(RAW(SYS_semctl, sems, 0, GETVAL, 0));
    is(RAW(SYS_semctl, sems, 0, SETVAL, 7));
    is(RAW(SYS_semctl, sems, 0, GETVAL, 0));
    is(RAW(SYS_msgctl, id, IPC_RMID, 0));
    is(RAW(SYS_semctl, sems, 0, IPC_RMID, 0));
    is(RAW(SYS_semctl, sems, 0, IPC_RMID, 0));
}
/* Removing: it is gone for the transaction. */
CASE(shmctl, INSIDE)
{
    struct shmid_ds m;
    RAW(SYS_shmctl, memory, IPC_STAT, &m);
    m.shm_perm.mode = 0640;
    is(RAW(SYS_shmctl, memory, IPC_SET, &m));
    memset(&m, 0, sizeof m);
    is(RAW(SYS_shmctl, memory, 99, &m));
}
CASE(shmctl_that_removes, INSIDE) { is(RAW(SYS_shmctl, memory, IPC_RMID, 0)); is(RAW(SYS_shmget, KEY, 0, 0)); }
CASE(semctl, INSIDE) { is(RAW(SYS_semctl, set, 0, IPC_RMID, 0)); is(RAW(SYS_semget, KEY, 0, 0)); is(RAW(SYS_semctl, set, 0, GETVAL, 0)); is(operate(0, 1, 0)); }
CASE(semctl_that_sets, INSIDE)
{
    unsigned short values[2] = {5, 6};
    is(RAW(SYS_semctl, set, 0, SETALL, values));
    memset(values, 0, sizeof values);
    is(RAW(SYS_semctl, set, 1, SETVAL, 9));
    is(RAW(SYS_semctl, set, 2, SETVAL, 9));
    is(RAW(SYS_semctl, set, 1, SETVAL, -1));
    is(RAW(SYS_semctl, set, 0, SETALL, -1));
}
CASE(msgctl, INSIDE) { is(RAW(SYS_msgctl, queue, IPC_RMID, 0)); is(RAW(SYS_msgget, KEY, 0)); is(RAW(SYS_msgsnd, queue, &message, 5, 0)); is(RAW(SYS_msgctl, -1, IPC_RMID, 0)); }
CASE(mq_unlink, INSIDE) { is(RAW(SYS_mq_unlink, name)); is(RAW(SYS_mq_open, name, O_RDONLY, 0, 0)); is(RAW(SYS_mq_unlink, name)); is(RAW(SYS_mq_unlink, "none")); }
/* Sending. */
CASE(msgsnd, INSIDE)
{
    is(RAW(SYS_msgsnd, queue, &message, 5, 0));
    message.type = 0;
    is(RAW(SYS_msgsnd, queue, &message, 5, 0));
    is(RAW(SYS_msgsnd, queue, &message, 1L << 40, 0));
    is(RAW(SYS_msgsnd, queue, -1, 5, 0));
    is(RAW(SYS_msgsnd, -1, &message, 5, 0));
}
CASE(mq_timedsend, INSIDE)
{
    is(RAW(SYS_mq_timedsend, named, "hello", 5, 7, 0));
    is(RAW(SYS_mq_timedsend, named, message.text, 17, 0, 0));
    is(RAW(SYS_mq_timedsend, named, "x", 1, 99999, 0));
    is(RAW(SYS_mq_timedsend, named, -1, 5, 0, 0));
    is(RAW(SYS_mq_timedsend, -1, "x", 1, 0, 0));
}
/* Semaphores: what is added is held; what is taken is taken, and given back. */
CASE(semop, INSIDE)
{
    is(operate(0, 2, 0));
    is(operate(7, 1, 0));
    struct sembuf more[2] = {{0, 1, 0}, {1, 1, 0}};
    is(RAW(SYS_semop, set, more, 2));
    is(RAW(SYS_semop, set, more, 0));
    is(RAW(SYS_semop, set, -1, 1));
    is(RAW(SYS_semop, -1, more, 1));
}
CASE(semtimedop, INSIDE) { struct sembuf one = {1, 2, 0}; is(RAW(SYS_semtimedop, set, &one, 1, 0)); }
CASE(semop_that_takes, INSIDE) { is(operate(1, -2, 0)); is(operate(1, -2, IPC_NOWAIT)); is(operate(0, 0, 0)); }
/* A lock that is let go of and taken again, and a group of operations. */
CASE(semop_that_locks, INSIDE)
{
    is(operate(1, -1, SEM_UNDO));
    is(operate(1, 1, SEM_UNDO));
    is(operate(1, -1, SEM_UNDO));
    struct sembuf both[2] = {{1, -1, 0}, {0, 4, 0}};
    is(RAW(SYS_semop, set, both, 2));
    operate(1, 1, SEM_UNDO);
}
/* Settings of a descriptor from before, which others share. */
CASE(mq_getsetattr, INSIDE)
{
    struct mq_attr now = {.mq_flags = O_NONBLOCK}, before;
    is(RAW(SYS_mq_getsetattr, named, &now, &before));
    say(" %ld", before.mq_flags);
    char got[16];
    is(RAW(SYS_mq_timedreceive, named, got, sizeof got, 0, 0));
}
CASE(mq_notify, INSIDE)
{
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    is(RAW(SYS_mq_notify, named, &event));
    is(RAW(SYS_mq_notify, named, &event));
}
/* It waits for an answer: what it has sent goes out before. */
CASE(semop_that_waits, INSIDE)
{
    is(operate(0, 1, 0));
    is(operate(1, -9, 0));
}

/* Somebody who answers: takes what is added to the first semaphore, and adds to the second. */
static void answer(void)
{
    if (operate(0, -1, 0) == 0)
        operate(1, 9, 0);
    _exit(0);
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
        return fprintf(stderr, "ipc: %s\n", txos_strerror()), 125;
    one->make();
    strncpy(shared->said, said, sizeof shared->said - 1);
    step_to(1);
    until(2);
    if (!strcmp(how, "abort"))
        sys_xabort(1);
    else if (inside && sys_xend() != 0)
        return fprintf(stderr, "ipc: %s\n", txos_strerror()), 125;
    /* What only the process itself sees. */
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    struct mq_attr attr;
    bool told = RAW(SYS_mq_notify, named, &event) != 0;
    RAW(SYS_mq_getsetattr, named, 0, &attr);
    printf("told %d, waits %d\n", told, !(attr.mq_flags & O_NONBLOCK));
    fflush(stdout);
    step_to(3);
    until(4);
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
        shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (unshare(CLONE_NEWIPC) != 0 || shared == MAP_FAILED)
            return 3;
        prepare();
        look();
        pid_t helper = 0;
        if (!strcmp(call, "semop_that_waits") && (helper = fork()) == 0)
            answer();
        int status;
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(&cases[i], how));
        while (shared->step < 1 && waitpid(pid, &status, WNOHANG) == 0)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        look();
        step_to(2);
        while (shared->step < 3 && waitpid(pid, &status, WNOHANG) == 0)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        look();
        step_to(4);
        printf("%s\n", shared->said);
        if (helper > 0) {
            semctl(set, 0, IPC_RMID);
            waitpid(helper, NULL, 0);
        }
        waitpid(pid, &status, 0);
        return 0;
    }
    return strcmp(call, "list") ? 2 : 0;
}
