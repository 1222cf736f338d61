/* Transactions and an entry cache for OpenLDAP's back-ldif, which back-ldif.patch has ldif.c include.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Invariants:
 * - Every look at the database's files and every change of them is within a transaction. A request is one transaction, but for
 *   its look for referrals, and a simple bind, which are transactions of their own.
 * - Nothing is sent to a client within a transaction. What an attempt has made is freed by that attempt, so any attempt may be the last.
 * - The cache maps a path and the version of the file there to the entry that str2entry() makes of it, without its parent's name. The
 *   version is looked at within the transaction that uses the entry, before the file is read. A version whose change was a
 *   moment ago is not cached, so no two contents of a path have the same one.
 * - What is cached is not changed. A search sends its attributes as they are, under the entry's whole name; all else has a copy.
 */
#ifndef LDIF_TX_H
#define LDIF_TX_H

#include <sys/stat.h>
#include <time.h>
#include <txos.h>

/* So many lost conflicts are answered with LDAP_BUSY. */
#define LDIF_TX_ATTEMPTS_MAX 200
/* The longest pause between two attempts, in microseconds. */
#define LDIF_TX_PAUSE_US_MAX 16000
/* A file that was changed less than this before it was read is not cached: more than a tick of the clock that the kernel
 * takes times of files from, which is 10 ms at most. In nanoseconds. */
#define LDIF_TX_YOUNG_NS 20000000LL
/* Entries of the cache; each hash has one place. */
#define LDIF_TX_CACHE (1 << 16)
/* Locks of the cache; each is that of many places. */
#define LDIF_TX_LOCKS 64

/* The loop around what is to be a transaction: `LDIF_TX( flags, &rc, &text ) { ... rc = ...; }`. An attempt whose rc is LDAP_SUCCESS
 * is committed, any other is aborted. One that lost a conflict is made again, whatever its rc. */
struct ldif_tx {
	int flags;
	int attempts;
	int nested;
};
#define LDIF_TX( flags, rc, text ) \
	for ( struct ldif_tx tx_ = { (flags), 0, 0 }; ldif_tx_next( &tx_, (rc), (text) ); )

static __thread unsigned ldif_tx_random = 1;
/* Whether this thread's transaction may have changed what it reads. */
static __thread int ldif_tx_writes;

/* Ends the attempt before, if there was one. Returns whether another one has begun. */
static int
ldif_tx_next( struct ldif_tx *tx, int *rc, const char **text )
{
	struct txos_abort why = { .size = sizeof( why ) };

	if ( tx->nested )
		return 0;
	if ( tx->attempts == 0 ) {
		/* Part of the transaction that asks, such as for access control. */
		tx->nested = txos_in_transaction();
		if ( tx->nested )
			return 1;
	} else if ( *rc == LDAP_SUCCESS && sys_xend() == 0 ) {
		return 0;
	} else {
		int error = errno;

		if ( *rc != LDAP_SUCCESS && txos_in_transaction() )
			sys_xabort( 1 );
		if ( txos_abort_reason( &why ) != 0 || why.reason != TXOS_CONFLICT ) {
			if ( *rc == LDAP_SUCCESS ) {
				*rc = LDAP_OTHER;
				if ( text )
					*text = error == ENOSPC
						? "internal error (no space)" : "internal error (nothing was changed)";
			}
			return 0;
		}
		if ( tx->attempts == LDIF_TX_ATTEMPTS_MAX ) {
			*rc = LDAP_BUSY;
			if ( text )
				*text = "others were changing the same, nothing was changed";
			return 0;
		} else {
			unsigned limit = 100u << ( tx->attempts < 8 ? tx->attempts : 8 );

			if ( limit > LDIF_TX_PAUSE_US_MAX )
				limit = LDIF_TX_PAUSE_US_MAX;
			ldif_tx_random = ldif_tx_random * 1103515245u + 12345u + (unsigned)(size_t)&why;
			usleep( ( ldif_tx_random >> 8 ) % limit );
		}
	}
	if ( text )
		*text = NULL;
	if ( sys_xbegin( tx->flags ) != 0 ) {
		*rc = LDAP_OTHER;
		if ( text )
			*text = "internal error (no transaction could be begun)";
		return 0;
	}
	ldif_tx_writes = tx->flags & TX_DURABLE;
	tx->attempts++;
	return 1;
}

/* An entry in the cache, in entries that searches send, or both. The last that drops it frees it. */
struct ldif_shared {
	int users;
	Entry *entry;
};

struct ldif_cached {
	char *path;
	struct stat version;
	struct ldif_shared *shared;
};

/* What a search has found, to be sent when its transaction has ended. */
struct ldif_found {
	struct ldif_found_entry { Entry *entry; int scope; } *entries;
	size_t count, size;
};

/* That of the search which this thread collects for, or NULL. */
static __thread struct ldif_found *ldif_found;

static struct ldif_cached ldif_cache[LDIF_TX_CACHE];
static pthread_mutex_t ldif_cache_locks[LDIF_TX_LOCKS] = { [0 ... LDIF_TX_LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER };

static unsigned
ldif_hash( const char *bytes, size_t size )
{
	unsigned hash = 2166136261u;

	while ( size-- > 0 )
		hash = ( hash ^ (unsigned char) *bytes++ ) * 16777619u;
	return hash ^ hash >> 16;
}

static unsigned
ldif_cache_place( const char *path )
{
	return ldif_hash( path, strlen( path ) ) % LDIF_TX_CACHE;
}

static int
ldif_same_version( const struct stat *a, const struct stat *b )
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size
		&& a->st_ctim.tv_nsec == b->st_ctim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec;
}

static void
ldif_shared_drop( struct ldif_shared *shared )
{
	if ( __atomic_sub_fetch( &shared->users, 1, __ATOMIC_ACQ_REL ) == 0 ) {
		entry_free( shared->entry );
		ch_free( shared );
	}
}

/* Whether an entry's attributes are the cache's, and must not be changed. */
static int
ldif_is_shared( Entry *e )
{
	return e->e_private != NULL;
}

/* An entry with the cache's attributes and names of its own, which are another's. Takes the reference. */
static Entry *
ldif_with_names( struct ldif_shared *shared, Entry *named )
{
	Entry *entry = entry_alloc();

	*entry = *shared->entry;
	ber_dupbv( &entry->e_name, &named->e_name );
	ber_dupbv( &entry->e_nname, &named->e_nname );
	entry->e_private = shared;
	return entry;
}

/* The entry of a kept result that this thread is sending, or NULL: not its to free. */
static __thread Entry *ldif_lent;

/* Frees an entry, but not what is the cache's. */
static void
ldif_entry_free( Entry *e )
{
	struct ldif_shared *shared = e->e_private;

	if ( e == ldif_lent )
		return;
	if ( shared != NULL ) {
		e->e_attrs = NULL;
		e->e_private = NULL;
	}
	entry_free( e );
	if ( shared != NULL )
		ldif_shared_drop( shared );
}

/* The entry that is cached of this version, or NULL: with names of its own, and for what does not collect attributes of its own. */
static Entry *
ldif_cache_find( const char *path, const struct stat *version )
{
	unsigned place = ldif_cache_place( path );
	struct ldif_cached *cached = &ldif_cache[place];
	struct ldif_shared *shared = NULL;
	Entry *found = NULL;

	pthread_mutex_lock( &ldif_cache_locks[place % LDIF_TX_LOCKS] );
	if ( cached->path && ldif_same_version( &cached->version, version ) && !strcmp( cached->path, path ) ) {
		shared = cached->shared;
		__atomic_add_fetch( &shared->users, 1, __ATOMIC_RELAXED );
	}
	pthread_mutex_unlock( &ldif_cache_locks[place % LDIF_TX_LOCKS] );
	if ( shared == NULL )
		return NULL;
	if ( ldif_found == NULL ) {
		found = entry_dup( shared->entry );
		ldif_shared_drop( shared );
		return found;
	}
	return ldif_with_names( shared, shared->entry );
}

/* Caches a copy of what was read after this version was looked at. (If the file changed in between, the copy is under a version
 * that does not come back.) What a transaction reads that changes something may be its own; a file of several names can be changed
 * where it is not watched. */
static void
ldif_cache_note( const char *path, const struct stat *version, Entry *entry )
{
	unsigned place = ldif_cache_place( path );
	struct ldif_cached *cached = &ldif_cache[place], old, new = { NULL };
	struct timespec now;

	clock_gettime( CLOCK_REALTIME, &now );
	if ( ldif_tx_writes || version->st_nlink != 1 || ( now.tv_sec - version->st_ctim.tv_sec ) * 1000000000LL + now.tv_nsec - version->st_ctim.tv_nsec
			< LDIF_TX_YOUNG_NS )
		return;
	new.path = ch_strdup( path );
	new.version = *version;
	new.shared = ch_malloc( sizeof( *new.shared ) );
	new.shared->users = 1;
	new.shared->entry = entry_dup( entry );
	pthread_mutex_lock( &ldif_cache_locks[place % LDIF_TX_LOCKS] );
	old = *cached;
	*cached = new;
	pthread_mutex_unlock( &ldif_cache_locks[place % LDIF_TX_LOCKS] );
	if ( old.path ) {
		ch_free( old.path );
		ldif_shared_drop( old.shared );
	}
}

/* Whether a name in a directory may be that of a directory, with the entries below an entry. (It has no dot: those of an entry's name are
 * escaped.) Where there is none, nothing is looked for below. A transaction depends on the names of a directory that it lists, and
 * not on its link count, which says the same: that may be of another moment than the names. */
static int
ldif_is_dir_name( const char *name )
{
	return strchr( name, '.' ) == NULL;
}

/* Takes an entry if this thread collects. */
static int
ldif_collect( Entry *e, int scope )
{
	if ( ldif_found == NULL )
		return 0;
	if ( ldif_found->count == ldif_found->size ) {
		ldif_found->size = ldif_found->size ? 2 * ldif_found->size : 16;
		ldif_found->entries =
			ch_realloc( ldif_found->entries, ldif_found->size * sizeof( *ldif_found->entries ) );
	}
	ldif_found->entries[ldif_found->count].entry = e;
	ldif_found->entries[ldif_found->count++].scope = scope;
	return 1;
}

/* Begins to collect anew. */
static void
ldif_collect_into( struct ldif_found *found )
{
	ldif_found = found;
	while ( found->count > 0 )
		ldif_entry_free( found->entries[--found->count].entry );
}

/* Makes a copy of entries of the cache. */
static void
ldif_found_copy( struct ldif_found *copy, const struct ldif_found *found )
{
	size_t i;

	copy->entries = ch_malloc( found->count * sizeof( *copy->entries ) );
	copy->count = copy->size = found->count;
	for ( i = 0; i < found->count; i++ ) {
		struct ldif_shared *shared = found->entries[i].entry->e_private;

		__atomic_add_fetch( &shared->users, 1, __ATOMIC_RELAXED );
		copy->entries[i].entry = ldif_with_names( shared, found->entries[i].entry );
		copy->entries[i].scope = found->entries[i].scope;
	}
}

#include "ldif_watch.h"

#endif
