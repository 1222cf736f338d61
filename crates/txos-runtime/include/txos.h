/* System transactions: everything between sys_xbegin() and sys_xend() is one atomic, isolated,
 * and if asked durable operation. See sys_xbegin(2txos) for each of these functions.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef TXOS_H
#define TXOS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of sys_xbegin(). */
#define TX_RESTART     0x01 /* after an abort by conflict, sys_xbegin() returns once more */
#define TX_DURABLE     0x02 /* when sys_xend() returns 0, the changes survive a power cut */
#define TX_STRICT      0x04 /* a call that can't be made transactional aborts (else: one warning) */
#define TX_CHECKPOINT  0x08 /* an abort puts memory back, and goes on at sys_xbegin(), see below */
#define TX_NONBLOCK    0x10 /* never wait for another transaction: abort instead */
#define TX_ORDERED     0x20 /* commit in the order of the sequence number, the second argument */
#define TX_ORDER_RESET 0x40 /* begin the sequence of this process group at that number */
#define TX_THREADS     0x80 /* threads that are made in the transaction are members of it */
#define TX_PROCESSES   0x200 /* processes that are made in the transaction are members of it */
#define TX_AFTER       0x400 /* commit after what has the names in the second argument, see below */
#define TX_KEEP_CREDENTIALS 0x800 /* what is given up for good is given up by the commit, see below */
#define TX_RETRY       0x1000 /* the program itself begins again, see below */
#define TX_MANAGED     0x100 /* for languages whose objects close descriptors late, see below */

/* Begins a transaction in the calling thread.
 *
 * Returns 0; with TX_RESTART, each time the transaction begins again it returns once more, with the
 * number of the attempt (1, 2, ...). On failure returns -1 and sets errno; txos_strerror() says more.
 * Within a transaction it begins a nested one, which is flattened into the outer one.
 *
 * With TX_ORDERED the second argument is the sequence number, an uint64_t.
 *
 * With TX_AFTER the second argument is a const char *, the names of what this transaction, the consumer, comes after, one
 * a line: producers. They are runs of commands (`txos run --name`), transactions of programs that have a name (txos_name())
 * and ids of commands' transactions; of several of one name, all. The consumer begins at once. It waits where it looks at
 * what a producer has changed, for as long as that takes, and sys_xend() waits until all of them have committed; if they
 * have changed what it had looked at before, that is a conflict, and TX_RESTART begins again when no producer runs. If a
 * producer does not commit, nor does the consumer: sys_xend() gives ECANCELED, with the reason TXOS_PRODUCER; with
 * TX_RESTART it begins again, after the next run of that name, for which sys_xbegin() waits for 60 s. sys_xbegin() gives
 * ESRCH if there is none of a name, and no command of that name has committed; ECANCELED if it has just failed; EBUSY if it is
 * pending; EDEADLK if it comes after this one or is this thread's own; EINVAL with TX_ORDERED and without names; EFAULT for a pointer
 * that leads nowhere.
 *
 * TX_RETRY is for a program that begins again by a loop around sys_xbegin(), as the bindings of languages do. A transaction that
 * was not committed keeps its name, and what it comes after, for the thread's next transaction with TX_RETRY, which is a
 * further attempt. What comes after it goes on waiting, and is not told of a failure. The attempt begins when no producer runs;
 * the names in its second argument are not looked for again. sys_xbegin() gives ECANCELED if a producer has failed meanwhile. A
 * program that does not begin again says so by txos_name(). Without a name and TX_AFTER the flag changes nothing.
 *
 * With TX_MANAGED an abort leaves descriptors as the program's objects have them: those that were closed
 * stay closed, and the number of one that was opened stays taken, by an object that answers EBADF, until
 * the program closes it. So an object that a collector finds later can't close another file. What is
 * no file (pipes, sockets, devices, event descriptors) stays open as it is, and handlers of signals,
 * settings of descriptors and timers stay. After a conflict was lost, the runtime can still make event descriptors and pipes, use
 * pipes to itself, and start threads.
 *
 * With TX_CHECKPOINT an abort puts registers and memory back to what they are now: the stack, variables, the
 * heap, mappings, and with them what the C library keeps there, such as buffers of streams. The program goes on
 * where sys_xbegin() returns: with TX_RESTART in the next attempt; else it returns -1 with ECANCELED. So no call
 * within the transaction, nor sys_xend() or sys_xabort(), is seen to fail or return after an abort. Memory that is
 * shared with others stays as it is. The process may have one thread only (EBUSY), and makes no others until the
 * end. The program must be linked with libtxos.so, not with libtxos.a (ENOTSUP).
 */
int sys_xbegin(int flags, ...)
#if defined(__GNUC__)
    __attribute__((returns_twice))
#endif
    ;

/* With TX_KEEP_CREDENTIALS an abort gives back also what the process could not have again by itself: users, groups and
 * capabilities that it gave up for good. They are given up by the commit; until then they only seem to be, to the program and to
 * the kernel's checks of what it does, but code that somebody has it run meanwhile could have them again. They never reach another
 * program, process or thread: before one is made, or run, they are given up. The process may have one thread only (EBUSY), and
 * CAP_SETUID and CAP_SETGID: else they are given up at once. Excludes TX_THREADS and TX_PROCESSES. */

/* With TX_THREADS, a thread that is made in the transaction is a member of it from its beginning on; any thread can
 * join by sys_xjoin(). A member sees and makes the transaction's changes, until it calls sys_xend(), which leaves
 * and does not wait, or ends. sys_xabort(), by any member, aborts for all; so does a conflict. Each is told by its
 * calls, which fail with ECANCELED until it leaves. */

/* With TX_PROCESSES, a process that is made in the transaction is a member of it, as are the processes that it makes
 * and the programs that they run. It sees and makes the transaction's changes, until it ends or calls sys_xend(),
 * which leaves: it goes on outside, without what the transaction opened. When the transaction is aborted, which any
 * member can do by sys_xabort(), the processes are killed; if it begins again, they have been waited for as well.
 * Excludes TX_CHECKPOINT. */

/* Ends the transaction: commits it, once all other members have left. Returns 0 if everything it did is published, or -1 with errno
 * (ECANCELED: a conflict; txos_abort_reason() says which) and nothing of it has happened. */
int sys_xend(void);

/* Aborts the transaction: nothing of it has happened. If it was begun with TX_RESTART and
 * no_restart is 0, it begins again at sys_xbegin(); else execution goes on after this call. */
void sys_xabort(int no_restart);

/* Leaves the transaction for a while; what follows is not part of it. Returns its id, or -1. */
long sys_xpause(void);

/* Goes on with a transaction that this process paused. Returns 0, or -1 with errno. */
int sys_xresume(long id);

/* Shows the transaction of the calling thread to other threads of the process that run already, and with TX_PROCESSES to
 * other processes, to which the program sends it. Returns a descriptor, which is closed on exec, or -1 with errno (EPERM: this command runs as one transaction as a whole).
 * The descriptor is no part of the transaction; close it when that has ended. */
int txos_share(void);

/* Enters the transaction that a descriptor of txos_share() shows, as a member. Returns 0, or -1 with errno:
 * EBUSY (the thread is in a transaction, or another thread of the process in another process's), EINVAL (no such descriptor,
 * or the transaction is over), EPERM (another user, other groups or capabilities, other descriptors or directories than the
 * thread that began, or other namespaces), ENOENT, EACCES, EXDEV (the working directory is not there, or another one, in the
 * transaction), ENOTSUP (it is another process's, which has begun it without TX_PROCESSES).
 *
 * A process that joins makes the files and directories that it has open the transaction's. An abort does not kill it: its
 * calls fail with ECANCELED until sys_xend(), which gives it back its working directory, file mode mask and descriptors. */
int sys_xjoin(int fd);

/* What the last failed function of this thread failed at, in words: what, on which path, why, what
 * is unchanged. Never NULL; valid until the thread's next call of a function of this header. */
const char *txos_strerror(void);

/* Whether the calling thread is in a transaction (and has not paused it). */
int txos_in_transaction(void);

/* Why a transaction was aborted. */
enum txos_reason {
    TXOS_NOT_ABORTED = 0,
    TXOS_ASKED = 1,       /* sys_xabort() */
    TXOS_CONFLICT = 2,    /* somebody else changed, or won, what it touched */
    TXOS_UNSUPPORTED = 3, /* TX_STRICT, and a call that can't be made transactional */
    TXOS_FAILED = 4,      /* publishing failed (no space, an I/O error); it was undone */
    TXOS_EXITED = 5,      /* the thread or the process ended */
    TXOS_REFUSED = 6,     /* a participant refused to commit with it */
    TXOS_IN_DOUBT = 7,    /* it is committed; a participant failed in its commit */
    TXOS_PRODUCER = 8     /* what it comes after (TX_AFTER) was not committed */
};

/* The last abort of the calling thread. */
struct txos_abort {
    uint32_t size;      /* set to sizeof(struct txos_abort) by the caller */
    uint32_t reason;    /* enum txos_reason */
    int32_t  error;     /* errno of sys_xend(), or 0 */
    int32_t  pid;       /* the process that won, or 0 if it is not known */
    char     what[256]; /* what happened, in words */
    char     path[4096];/* where, or empty; "descriptor 5" for a number that threads share */
};

/* Fills in why the last transaction of this thread was aborted. Returns 0, or -1 with EINVAL. */
int txos_abort_reason(struct txos_abort *out);

/* Counters of the calling thread since it started. */
struct txos_stats {
    uint32_t size;          /* set to sizeof(struct txos_stats) by the caller */
    uint32_t version;       /* 1 */
    uint64_t begun;         /* transactions, restarts not counted */
    uint64_t committed;
    uint64_t aborted;
    uint64_t restarted;
    uint64_t calls;         /* system calls made within transactions */
    uint64_t trapped;       /* of those, that came by Syscall User Dispatch */
    uint64_t unsupported;   /* of those, that passed through with a warning */
    uint64_t short_cuts;    /* commits of one call, or without changes */
};

/* Returns 0, or -1 with EINVAL. */
int txos_stats(struct txos_stats *out);

/* For the runtime of a language: leaves a file, or every file below a directory whose name ends with
 * suffix (NULL: any), as it is now, out of the transactions of this process as long as it is only read.
 * Such a file is opened, read and closed as without a transaction, also in one that has failed, and its
 * descriptor outlives an abort. For libraries and class files; devices as well. It is known by its
 * identity: one that replaces it is part of transactions. The path is absolute, as the program opens it. Returns how
 * many files, or -1 with errno (EBUSY in a transaction, EINVAL for another path). */
long txos_exclude(const char *path, const char *suffix);

/* Has the transaction that the calling thread is in aborted as soon as *flag is not 0: by its next
 * call for a file, while it waits for another transaction, or by sys_xend(). The reason is
 * TXOS_ASKED. Any thread may set the flag, which must stay where it is until the transaction has
 * ended. NULL: there is none any more. Returns 0, or -1 with EINVAL: not in a transaction. */
int txos_abort_if(const volatile int *flag);

/* Whether the handler of a signal runs at once in transactions of this process that begin later,
 * instead of after their end. What it does is part of the transaction. It is for the signals with
 * which the runtime of a language stops its own threads. Returns 0, or -1 with EINVAL. */
int txos_signal_at_once(int signal, int at_once);

/* Gives the next transaction that the calling thread begins a name, by which others can come after it (TX_AFTER, and
 * `txos run --after`), through all of its attempts. A transaction without one has no cost for that. The name is UTF-8, has
 * 255 bytes at the most and no control characters; NULL takes it back. Either way, what the thread has not committed with
 * TX_RETRY has failed for those that come after it. Returns 0, or -1 with errno: EINVAL (no such name),
 * EBUSY (in a transaction). */
int txos_name(const char *name);

/* What decides together with a transaction: memory of a transactional memory, a database. */
struct txos_participant {
    uint32_t size;              /* set to sizeof(struct txos_participant) by the caller */
    uint32_t flags;             /* 0 */
    const char *name;           /* for messages, or NULL */
    int (*prepare)(void *);     /* 0: it can commit, whatever comes; else an errno: it refuses. NULL: it can */
    int (*commit)(void *);      /* 0, or an errno: it could not, see below. May be NULL */
    void (*abort)(void *);      /* May be NULL */
    void *argument;             /* what they are called with */
};

/* Has a participant decide with the transaction of the calling thread, which began it. sys_xend() calls prepare when the
 * files are published and validated, and nobody can stop the transaction any more but participants; then, when it is
 * committed, commit. If it is aborted, by whom or what ever, abort is called instead, also of one that has refused or
 * was not asked, at the end of the transaction or before it begins again, for which participants enlist anew. All are
 * called in the thread that began. What they do is no part of the transaction. They return, and prepare takes at most
 * 256 KiB of stack and does not wait: until it returns, other commits of the same user wait.
 *
 * prepare refuses with EAGAIN: that is a conflict, after which TX_RESTART begins again; with another errno: the reason
 * is TXOS_REFUSED, and sys_xend() gives that errno. If commit fails, sys_xend() gives EREMOTEIO, and the reason is
 * TXOS_IN_DOUBT: the files are committed, and the participant is to be, by the program. When the process dies before the
 * transaction is committed, nothing of it has happened; what a participant keeps for longer finds that out by a file that
 * the transaction makes or changes. Where sys_xend() gives EINPROGRESS, it calls neither.
 *
 * The structure is copied; its name as well. Returns 0, or -1 with errno: EINVAL (not in a transaction), ECANCELED (it has
 * failed), EPERM (another thread began it, or another process, or it is a whole command), ENOTSUP (with TX_CHECKPOINT,
 * TX_PROCESSES or TX_KEEP_CREDENTIALS). */
int txos_enlist(const struct txos_participant *participant);

/* Where something else coordinates: does all of sys_xend() but the commit. Returns 0 if nothing but txos_finish(0), the end
 * of the thread or of the process, or an error of the disk can keep the transaction from being committed; the thread is
 * outside of it from then on, can't begin another one (EBUSY) and calls txos_finish(). Else returns -1 as sys_xend() does, and
 * begins again with TX_RESTART. Outsiders can see what is published already; other commits of the same user wait until it is
 * decided. With TX_NONBLOCK such a commit that is in the way is a conflict instead. As txos_enlist() gives EPERM and
 * ENOTSUP; EINVAL within a transaction within another. Descriptors are as the transaction leaves them after txos_finish(). */
int txos_prepare(void);

/* Decides what this thread has prepared: commits it, or aborts it (0). Returns 0, or -1 with errno: EINVAL (there is
 * nothing), EREMOTEIO as above; else it was to be committed, and nothing has happened. */
int txos_finish(int commit);

/* The library's version, for example "0.1.0". */
const char *txos_version(void);

#ifdef __cplusplus
}
#endif

#endif
