/* What searches have found, kept for as long as nothing below the database's directory has changed. Included by ldif_tx.h.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Invariants:
 * - The kernel queues an event (inotify(7)) for each change of a watched directory or of a file by a name in it, before the call that
 *   makes the change returns. So a search that finds the queue empty, and a result no directory of which had an event, answers with what is
 *   there, or was there when a change that is still being made began.
 * - Events are taken from the queue and a result is looked up under one lock: no thread finds the queue empty before another one
 *   has noted what it took.
 * - A result is what a committed transaction has found. Before the transaction began, all directories that it looked at were watched, and
 *   none of them had an event until the result is kept.
 * - A directory is watched after the one that holds it. So its path leads to another directory only after an event there. The database's own
 *   directory has none that is watched: it is looked at with each search.
 * - An event about a directory itself, which may lead paths elsewhere, makes all results and watches void, as does an overflow of the queue.
 * - inotify does not tell of what is written by a name in another directory, or to a shared mapping. No result has an entry of a file of more
 *   than one name (see ldif_cache_note()), and none is kept for longer than a second: then a transaction looks at all versions again.
 */
#ifndef LDIF_WATCH_H
#define LDIF_WATCH_H

#include <sys/inotify.h>

/* Directories that are watched at most; a search that looks at more of them is not kept, nor is one that finds more entries. */
#define LDIF_WATCH_DIRS 4096
#define LDIF_WATCH_ENTRIES 4096
/* Results that are kept; each hash has one place. */
#define LDIF_WATCH_RESULTS (1 << 12)
/* For how long, in milliseconds. */
#define LDIF_WATCH_KEPT_MS 1000
/* Events of files and their names; those of a directory itself beside them. */
#define LDIF_WATCH_NAMES ( IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO )
#define LDIF_WATCH_EVENTS ( LDIF_WATCH_NAMES | IN_DELETE_SELF | IN_MOVE_SELF )

struct ldif_dir {
	struct ldif_dir *next;		/* of the same hash */
	int wd;
	unsigned long changed;		/* the clock at its last event, or when it was first watched */
	dev_t dev;			/* of the database's directory */
	ino_t ino;
	char path[];
};

struct ldif_result {
	int users;
	unsigned long clock;		/* when it was kept */
	long until_ms;			/* of CLOCK_MONOTONIC_COARSE */
	void *backend;
	int scope;
	struct berval dn, ndn;		/* as the search has them */
	struct ldif_found found;
	struct ldif_dir **dirs;		/* the database's own first */
	size_t dir_count;
};

/* The directories that a search looks at. */
struct ldif_looked {
	char **paths;
	size_t count;
	size_t base_len;		/* of the path of the database's directory */
	unsigned long clock;		/* before the transaction */
};

static __thread struct ldif_looked *ldif_looked;
/* What this thread's look for referrals has found for an operation, or NULL. */
static __thread struct ldif_result *ldif_known;
static __thread struct { Operation *op; time_t time; int tincr; } ldif_known_by;

static pthread_mutex_t ldif_watch_lock = PTHREAD_MUTEX_INITIALIZER;
static int ldif_watch_fd = -1;
static unsigned long ldif_watch_clock = 1;
static struct ldif_dir *ldif_dirs[LDIF_WATCH_DIRS];
static struct ldif_dir *ldif_dirs_by_wd[LDIF_WATCH_DIRS];
static size_t ldif_dir_count;
static struct ldif_result *ldif_results[LDIF_WATCH_RESULTS];

static long
ldif_now_ms( void )
{
	struct timespec now;

	clock_gettime( CLOCK_MONOTONIC_COARSE, &now );
	return now.tv_sec * 1000L + now.tv_nsec / 1000000;
}

static void
ldif_result_drop( struct ldif_result *result )
{
	if ( __atomic_sub_fetch( &result->users, 1, __ATOMIC_ACQ_REL ) != 0 )
		return;
	while ( result->found.count > 0 )
		ldif_entry_free( result->found.entries[--result->found.count].entry );
	ch_free( result->found.entries );
	ch_free( result->dirs );
	ch_free( result->dn.bv_val );
	ch_free( result->ndn.bv_val );
	ch_free( result );
}

/* Makes all void. */
static void
ldif_watch_reset( void )
{
	size_t i;

	for ( i = 0; i < LDIF_WATCH_RESULTS; i++ ) {
		if ( ldif_results[i] != NULL )
			ldif_result_drop( ldif_results[i] );
		ldif_results[i] = NULL;
	}
	for ( i = 0; i < LDIF_WATCH_DIRS; i++ ) {
		while ( ldif_dirs[i] != NULL ) {
			struct ldif_dir *dir = ldif_dirs[i];

			ldif_dirs[i] = dir->next;
			ch_free( dir );
		}
		ldif_dirs_by_wd[i] = NULL;
	}
	ldif_dir_count = 0;
	if ( ldif_watch_fd >= 0 )
		close( ldif_watch_fd );
	ldif_watch_fd = -1;
	ldif_watch_clock++;
}

/* Takes what has happened from the queue. Returns whether directories are watched. */
static int
ldif_watch_drain( void )
{
	char buf[16384] __attribute__(( aligned( __alignof__( struct inotify_event ) ) ));
	ssize_t got;

	if ( ldif_watch_fd < 0 )
		return 0;
	while ( ( got = read( ldif_watch_fd, buf, sizeof( buf ) ) ) > 0 ) {
		char *at = buf;

		ldif_watch_clock++;
		while ( at < buf + got ) {
			struct inotify_event *event = (struct inotify_event *) at;

			/* (Attributes of a directory lead no path elsewhere.) */
			if ( ( event->mask & ~(unsigned) LDIF_WATCH_NAMES && event->mask != ( IN_ATTRIB | IN_ISDIR ) )
				|| event->wd < 0 || event->wd >= LDIF_WATCH_DIRS || ldif_dirs_by_wd[event->wd] == NULL )
			{
				ldif_watch_reset();
				return 0;
			}
			ldif_dirs_by_wd[event->wd]->changed = ldif_watch_clock;
			at += sizeof( *event ) + event->len;
		}
	}
	if ( got < 0 && errno == EAGAIN )
		return 1;
	ldif_watch_reset();
	return 0;
}

static struct ldif_dir *
ldif_dir_find( const char *path )
{
	struct ldif_dir *dir = ldif_dirs[ldif_hash( path, strlen( path ) ) % LDIF_WATCH_DIRS];

	while ( dir != NULL && strcmp( dir->path, path ) != 0 )
		dir = dir->next;
	return dir;
}

/* Watches a directory. */
static void
ldif_dir_watch( const char *path, int is_base )
{
	struct ldif_dir **place = &ldif_dirs[ldif_hash( path, strlen( path ) ) % LDIF_WATCH_DIRS], *dir;
	struct stat st = { 0 };
	int wd;

	if ( ldif_watch_fd < 0 )
		ldif_watch_fd = inotify_init1( IN_NONBLOCK | IN_CLOEXEC );
	if ( ldif_watch_fd < 0 || ldif_dir_count == LDIF_WATCH_DIRS || ( is_base && stat( path, &st ) != 0 ) )
		return;
	wd = inotify_add_watch( ldif_watch_fd, path, LDIF_WATCH_EVENTS | IN_ONLYDIR );
	/* (Without a watch nothing is kept. A directory that has one already has two paths.) */
	if ( wd < 0 || wd >= LDIF_WATCH_DIRS || ldif_dirs_by_wd[wd] != NULL )
		return;
	dir = ch_malloc( sizeof( *dir ) + strlen( path ) + 1 );
	strcpy( dir->path, path );
	dir->wd = wd;
	dir->changed = ++ldif_watch_clock;
	dir->dev = st.st_dev;
	dir->ino = st.st_ino;
	dir->next = *place;
	*place = dir;
	ldif_dirs_by_wd[wd] = dir;
	ldif_dir_count++;
}

/* Whether a result is that of a search: of the same names, in the same scope. */
static int
ldif_result_is_of( const struct ldif_result *result, Operation *op )
{
	return result->backend == op->o_bd->be_private && result->scope == op->ors_scope
		&& bvmatch( &result->ndn, &op->o_req_ndn ) && bvmatch( &result->dn, &op->o_req_dn );
}

static struct ldif_result **
ldif_result_place( Operation *op )
{
	return &ldif_results[( ldif_hash( op->o_req_ndn.bv_val, op->o_req_ndn.bv_len ) + op->ors_scope ) % LDIF_WATCH_RESULTS];
}

/* What is known to be found by this search, for the caller to drop, or NULL. Sets the clock. */
static struct ldif_result *
ldif_result_find( Operation *op, unsigned long *clock )
{
	struct ldif_result *result = ldif_known;
	struct stat st;
	size_t i;
	int watched;

	*clock = 0;
	/* The same operation's look for referrals has found it. */
	ldif_known = NULL;
	if ( result != NULL && ldif_known_by.op == op && ldif_known_by.time == op->o_time && ldif_known_by.tincr == op->o_tincr
			&& ldif_result_is_of( result, op ) )
		return result;
	if ( result != NULL )
		ldif_result_drop( result );
	result = NULL;
	/* Within a transaction all is looked at again. */
	if ( txos_in_transaction() )
		return NULL;
	pthread_mutex_lock( &ldif_watch_lock );
	watched = ldif_watch_drain();
	*clock = ldif_watch_clock;
	if ( watched ) {
		result = *ldif_result_place( op );
		if ( result != NULL && ( !ldif_result_is_of( result, op ) || ldif_now_ms() >= result->until_ms ) )
			result = NULL;
		for ( i = 0; result != NULL && i < result->dir_count; i++ )
			if ( result->dirs[i]->changed > result->clock )
				result = NULL;
		if ( result != NULL && ( stat( result->dirs[0]->path, &st ) != 0 || st.st_dev != result->dirs[0]->dev
				|| st.st_ino != result->dirs[0]->ino ) )
		{
			ldif_watch_reset();
			result = NULL;
		}
		if ( result != NULL )
			__atomic_add_fetch( &result->users, 1, __ATOMIC_RELAXED );
	}
	pthread_mutex_unlock( &ldif_watch_lock );
	return result;
}

static void
ldif_looked_free( struct ldif_looked *looked )
{
	while ( looked->count > 0 )
		ch_free( looked->paths[--looked->count] );
	ch_free( looked->paths );
	looked->paths = NULL;
}

/* Begins to note the directories that a search looks at, whose database's directory has a path of this length. */
static void
ldif_look_into( struct ldif_looked *looked, size_t base_len )
{
	ldif_looked_free( looked );
	ldif_looked = looked;
	looked->base_len = base_len;
}

/* Notes a directory, after all above it. */
static void
ldif_looks_at( const char *path, size_t len )
{
	struct ldif_looked *looked = ldif_looked;
	size_t i;
	char *copy;

	if ( looked == NULL || len < looked->base_len )
		return;
	for ( i = looked->count; i > 0; i-- )
		if ( strlen( looked->paths[i - 1] ) == len && memcmp( looked->paths[i - 1], path, len ) == 0 )
			return;
	if ( len > looked->base_len ) {
		size_t above = len;

		while ( above > looked->base_len && path[above - 1] != LDAP_DIRSEP[0] )
			above--;
		while ( above > looked->base_len && path[above - 1] == LDAP_DIRSEP[0] )
			above--;
		ldif_looks_at( path, above );
	}
	copy = ch_malloc( len + 1 );
	memcpy( copy, path, len );
	copy[len] = 0;
	looked->paths = ch_realloc( looked->paths, ( looked->count + 1 ) * sizeof( *looked->paths ) );
	looked->paths[looked->count++] = copy;
}

/* Keeps what a committed transaction has found, if that can be said to be so still. */
static void
ldif_result_keep( Operation *op, struct ldif_found *found, struct ldif_looked *looked )
{
	struct ldif_result *result, **place;
	struct ldif_dir **dirs = NULL;
	size_t i;

	if ( looked->clock == 0 || looked->count == 0 || looked->count > LDIF_WATCH_DIRS || found->count == 0
			|| found->count > LDIF_WATCH_ENTRIES )
		return;
	for ( i = 0; i < found->count; i++ )
		if ( !ldif_is_shared( found->entries[i].entry ) )
			return;
	dirs = ch_calloc( looked->count, sizeof( *dirs ) );
	pthread_mutex_lock( &ldif_watch_lock );
	(void) ldif_watch_drain();
	for ( i = 0; i < looked->count; i++ ) {
		dirs[i] = ldif_dir_find( looked->paths[i] );
		if ( dirs[i] == NULL || dirs[i]->changed > looked->clock )
			break;
	}
	if ( i < looked->count ) {
		/* From now on they are watched, for the next search. */
		for ( i = 0; i < looked->count; i++ )
			if ( ldif_dir_find( looked->paths[i] ) == NULL )
				ldif_dir_watch( looked->paths[i], i == 0 );
		pthread_mutex_unlock( &ldif_watch_lock );
		ch_free( dirs );
		return;
	}
	result = ch_calloc( 1, sizeof( *result ) );
	result->users = 1;
	result->clock = ldif_watch_clock;
	result->until_ms = ldif_now_ms() + LDIF_WATCH_KEPT_MS;
	result->dirs = dirs;
	result->dir_count = looked->count;
	result->backend = op->o_bd->be_private;
	result->scope = op->ors_scope;
	ber_dupbv( &result->dn, &op->o_req_dn );
	ber_dupbv( &result->ndn, &op->o_req_ndn );
	ldif_found_copy( &result->found, found );
	place = ldif_result_place( op );
	if ( *place != NULL )
		ldif_result_drop( *place );
	*place = result;
	pthread_mutex_unlock( &ldif_watch_lock );
}

/* Whether a search is known to begin at an entry that is no referral. What it will find is left for it. */
static int
ldif_is_known_plain( Operation *op )
{
	struct ldif_result *result;
	unsigned long clock;
	int plain;

	if ( op->o_tag != LDAP_REQ_SEARCH )
		return 0;
	if ( ldif_known != NULL )
		ldif_result_drop( ldif_known );
	ldif_known = NULL;
	result = ldif_result_find( op, &clock );
	if ( result == NULL )
		return 0;
	plain = get_manageDSAit( op ) || !is_entry_referral( result->found.entries[0].entry );
	ldif_known = result;
	ldif_known_by.op = op;
	ldif_known_by.time = op->o_time;
	ldif_known_by.tincr = op->o_tincr;
	return plain;
}

#endif
