/* System transactions for Dovecot's maildir: preloaded into Debian's imap, after libtxos.so. Dovecot stays as it is.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Three functions of its storage are transactions: a sync of a mailbox, the commit of messages that were saved or copied, and
 * the sync by which a message is looked for that is no longer at its name. Their symbols can be preempted (also those
 * in the table of the maildir's functions), so the definitions here take their place. What is saved or copied and the sync that
 * follows are one transaction; with that a move is one as well, from its first link.
 *
 * Invariants:
 * - Within a transaction nobody takes the maildir's lock file; the transaction looks whether it is there. If it is, the
 *   transaction begins again. So a program that holds the lock file excludes transactions.
 * - Outside of one (where no transaction can be begun, or to write the attributes of a mailbox) the lock file is taken, by a
 *   transaction of its own, which other transactions wait for.
 * - A transaction of saved messages ends with the next sync of a mailbox, which takes them into the index and removes what was moved; or, if
 *   none follows, before anything is sent to the client, and before the next event is waited for.
 * - A move begins before Dovecot links the message's file into the other mailbox, so that it commits only if the file is there until
 *   then, at the name that was linked. If another session was first, Dovecot finds it gone in the next attempt, and moves nothing.
 * - A sync that Dovecot has not look at the maildir, since it did so a moment ago (MAILBOX_SYNC_FLAG_FAST), is no transaction.
 * - An abort puts memory back, so that the list of UIDs and the index in memory are those from before the attempt.
 *   The index must be in memory (`INDEX=MEMORY`): a shared one is also written outside of these three.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <txos.h>
#include <unistd.h>

/* How long a transaction waits for a lock file before it is taken for one that somebody left, in seconds. Then Dovecot's own
 * code for old lock files decides. */
#define LOCK_WAIT_S 2
/* How long a lock is waited for outside of a transaction, in seconds, and how often it is looked for, in microseconds. */
#define LOCK_TIMEOUT_S 120
#define LOCK_PAUSE_US 5000
/* How much the event loop may ask the kernel to watch within one transaction. */
#define WATCHES_MAX 16
/* DOTLOCK_CREATE_FLAG_NONBLOCK */
#define NONBLOCK 1

struct mail;
struct mailbox;
struct save;
struct dotlock;
struct dotlock_settings;
struct ioloop;
struct ostream;

static void *(*real_sync_init)(struct mailbox *, int);
static int (*real_sync_force)(struct mailbox *, uint32_t);
static int (*real_move)(struct save **, struct mail *);
static int (*real_commit_pre)(struct save *);
static int (*is_synced)(struct mailbox *);
static bool (*real_want_full)(struct mailbox *, int);
static void (*real_update_flags)(void *, int, int);
static void (*real_update_keywords)(void *, int, void *);
static void (*real_expunge)(void *);
static void (*real_uncork)(struct ostream *);
static void (*real_handler_run)(struct ioloop *);
static int (*real_epoll_ctl)(int, int, int, struct epoll_event *);
static int (*real_dotlock_create)(const struct dotlock_settings *, const char *, int, struct dotlock **);
static int (*real_dotlock_delete)(struct dotlock **);
static int (*real_dotlock_touch)(struct dotlock *);
static bool (*real_dotlock_is_locked)(struct dotlock *);

static int flags;
/* With neither transactions nor lock files, to see that the tests find what then goes wrong. */
static bool unprotected;
/* Whether the index in memory may have changes that the maildir does not have yet. */
static bool unsynced;
/* Whether the transaction that has saved messages, or is moving some, is still open. */
static bool save_is_open;
/* What Dovecot has decided about the sync that begins: whether it looks at the maildir. UNDECIDED: it is asked. */
static enum { UNDECIDED = -1, INDEX_ONLY, FULL } decided = UNDECIDED;
/* Stands for the lock that a transaction need not take. */
static char elided;
#define ELIDED ((struct dotlock *)&elided)

__attribute__((constructor)) static void find(void)
{
	const struct { void *to; const char *name; } names[] = {
		{ &real_sync_init, "maildir_storage_sync_init" },
		{ &real_sync_force, "maildir_storage_sync_force" },
		{ &real_move, "mailbox_move" },
		{ &real_commit_pre, "maildir_transaction_save_commit_pre" },
		{ &is_synced, "maildir_sync_is_synced" },
		{ &real_want_full, "index_mailbox_want_full_sync" },
		{ &real_update_flags, "mail_update_flags" },
		{ &real_update_keywords, "mail_update_keywords" },
		{ &real_expunge, "mail_expunge" },
		{ &real_uncork, "o_stream_uncork" },
		{ &real_handler_run, "io_loop_handler_run" },
		{ &real_epoll_ctl, "epoll_ctl" },
		{ &real_dotlock_create, "file_dotlock_create" },
		{ &real_dotlock_delete, "file_dotlock_delete" },
		{ &real_dotlock_touch, "file_dotlock_touch" },
		{ &real_dotlock_is_locked, "file_dotlock_is_locked" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		*(void **)names[i].to = dlsym(RTLD_NEXT, names[i].name);
	flags = TX_CHECKPOINT | TX_RESTART | (getenv("MAILDIR_TX_DURABLE") ? TX_DURABLE : 0);
	unprotected = getenv("MAILDIR_TX_UNPROTECTED") != NULL;
}

/* What the event loop has asked the kernel to watch within a transaction. It waits for the end, since an abort would not put it back. */
static struct {
	int set, op, fd;
	struct epoll_event event;
} watches[WATCHES_MAX];
static int watches_count;

/* Begins a transaction, unless the caller is in one. If it can't be begun, or fails for another reason than a conflict, the
 * caller goes on without one, as Dovecot would, with the lock file. */
static bool begin(void)
{
	return !unprotected && !txos_in_transaction() && sys_xbegin(flags) != -1;
}

/* Commits. After a conflict or another failure execution goes on in begin(), with memory as it was there. */
static void end(void)
{
	if (sys_xend() != 0) {
		fprintf(stderr, "maildir_tx: it is undecided whether a transaction has happened: %s\n", txos_strerror());
		_exit(75);
	}
	/* (What was closed since is watched no more.) */
	for (int i = 0; i < watches_count; i++)
		(void)real_epoll_ctl(watches[i].set, watches[i].op, watches[i].fd, &watches[i].event);
	watches_count = 0;
}

/* Ends the transaction of a save, if it is open. */
static void end_save(void)
{
	if (save_is_open) {
		save_is_open = false;
		end();
	}
}

/* Each answer for the same sync is to be the same, and Dovecot notes when it has given one. */
bool index_mailbox_want_full_sync(struct mailbox *box, int how)
{
	return decided == UNDECIDED ? real_want_full(box, how) : decided == FULL;
}

void *maildir_storage_sync_init(struct mailbox *box, int how)
{
	bool full = real_want_full(box, how);
	bool in_transaction = save_is_open || (full && (unsynced || is_synced(box) != 1) && begin());
	void *sync;

	save_is_open = false;
	decided = full ? FULL : INDEX_ONLY;
	sync = real_sync_init(box, how);
	decided = UNDECIDED;
	if (in_transaction)
		end();
	if (full)
		unsynced = false;
	return sync;
}

int maildir_storage_sync_force(struct mailbox *box, uint32_t uid)
{
	bool in_transaction = begin();
	int result = real_sync_force(box, uid);

	if (in_transaction)
		end();
	return result;
}

int mailbox_move(struct save **save, struct mail *mail)
{
	if (begin())
		save_is_open = true;
	return real_move(save, mail);
}

int maildir_transaction_save_commit_pre(struct save *save)
{
	bool in_transaction = save_is_open || begin();
	int result = real_commit_pre(save);

	if (in_transaction) {
		save_is_open = result == 0;
		if (!save_is_open)
			end();
	}
	return result;
}

void o_stream_uncork(struct ostream *stream)
{
	end_save();
	real_uncork(stream);
}

void io_loop_handler_run(struct ioloop *loop)
{
	end_save();
	real_handler_run(loop);
}

int epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
	if (!txos_in_transaction() || watches_count == WATCHES_MAX) {
		end_save();
		return real_epoll_ctl(set, op, fd, event);
	}
	watches[watches_count].set = set;
	watches[watches_count].op = op;
	watches[watches_count].fd = fd;
	if (event != NULL)
		watches[watches_count].event = *event;
	watches_count++;
	return 0;
}

/* Changes that the next sync has to write. */

void mail_update_flags(void *mail, int how, int which)
{
	unsynced = true;
	real_update_flags(mail, how, which);
}

void mail_update_keywords(void *mail, int how, void *keywords)
{
	unsynced = true;
	real_update_keywords(mail, how, keywords);
}

void mail_expunge(void *mail)
{
	unsynced = true;
	real_expunge(mail);
}

/* The lock file. */

/* In a transaction: goes on without the lock if nobody has it. A name that comes and goes within the transaction is never in the
 * maildir, but until the end no other transaction can make it: so of two that want the lock one waits before it has looked at anything that
 * the other one changes. */
static int elide(const char *path, struct dotlock **lock)
{
	char name[PATH_MAX];
	struct stat st;

	if (snprintf(name, sizeof(name), "%s.lock", path) >= (int)sizeof(name)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (symlink("elided", name) == 0) {
		(void)unlink(name);
	} else if (errno == EEXIST && lstat(name, &st) == 0) {
		usleep(LOCK_PAUSE_US);
		sys_xabort(time(NULL) - st.st_mtime > LOCK_WAIT_S);
	}
	*lock = ELIDED;
	return 1;
}

int file_dotlock_create(const struct dotlock_settings *set, const char *path, int how, struct dotlock **lock)
{
	time_t until = time(NULL) + LOCK_TIMEOUT_S;
	int result;

	if (unprotected) {
		*lock = ELIDED;
		return 1;
	}
	if (txos_in_transaction())
		return elide(path, lock);
	do {
		if (!begin())
			return real_dotlock_create(set, path, how, lock);
		result = real_dotlock_create(set, path, how | NONBLOCK, lock);
		end();
		if (result != 0 || how & NONBLOCK)
			return result;
		usleep(LOCK_PAUSE_US);
	} while (time(NULL) < until);
	return 0;
}

int file_dotlock_delete(struct dotlock **lock)
{
	if (*lock != ELIDED)
		return real_dotlock_delete(lock);
	*lock = NULL;
	return 1;
}

int file_dotlock_touch(struct dotlock *lock)
{
	return lock == ELIDED ? 0 : real_dotlock_touch(lock);
}

bool file_dotlock_is_locked(struct dotlock *lock)
{
	return lock == ELIDED || real_dotlock_is_locked(lock);
}
