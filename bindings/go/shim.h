/* What Go calls: each with all that has to be done on the thread at once. */
#ifndef TXOS_GO_SHIM_H
#define TXOS_GO_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* struct txos_abort and struct txos_stats of txos.h. */
struct txos_go_abort {
    uint32_t size, reason;
    int32_t error, pid;
    char what[256], path[4096];
};
struct txos_go_stats {
    uint32_t size, version;
    uint64_t counters[8];
};

/* Where a thread is. */
enum { TXOS_GO_OUTSIDE, TXOS_GO_INSIDE, TXOS_GO_SPOILED };

/* Loads the library from there (already: the one that the process has). Returns 0, or 1 if it was not
 * found, 2 if it is too old; then `why` says so. */
int txos_go_load(const char *path, int already, char *why, size_t size);

/* How the calling thread's transaction came to be: 0: by this call; 1: it was there already. */
enum { TXOS_GO_BEGUN, TXOS_GO_WITHIN };
/* Begins, unless the thread is in a transaction of ours. Less than 0: -errno. `flag`, which may be NULL,
 * calls it off. `after`: what it comes after, one a line, or NULL. */
int txos_go_begin(int flags, uint64_t sequence, const char *after, const int *flag);
/* Gives the thread's next transaction a name, or, with NULL, takes it back. Returns 0, or -errno. */
int txos_go_name(const char *name);
/* A transaction within that of the thread has failed. */
void txos_go_spoil(void);
/* What became of it. LOST: the library knows why. */
enum { TXOS_GO_DONE, TXOS_GO_LOST, TXOS_GO_WAS_SPOILED, TXOS_GO_GONE, TXOS_GO_OTHERS };
/* Ends the thread's transaction: commits, or aborts. OTHERS: there are goroutines that take part; they are to be
 * waited for before it can be committed. */
int txos_go_end(int commit);

/* The number that the thread's transaction has for the goroutines that take part; 0: there are none. */
uint64_t txos_go_group(void);
void txos_go_set_group(uint64_t number);
/* Gives it that number. Returns a descriptor by which others join, or -errno. */
int txos_go_share(uint64_t number);
void txos_go_close(int fd);
/* Has the thread take part. Returns 0, or -errno. */
int txos_go_join(int fd, uint64_t number);
/* It has done its part, or aborts for all. */
void txos_go_leave(int good);

/* Returns the id, or 0 if the thread is in no transaction of ours, or -errno. */
long txos_go_pause(void);
int txos_go_resume(long id);

/* How many files, or -errno. */
long txos_go_exclude(const char *path, const char *suffix);

/* What the thread is in. */
int txos_go_here(void);
int txos_go_inside(void);
void txos_go_abort_reason(struct txos_go_abort *out);
void txos_go_stats(struct txos_go_stats *out);
const char *txos_go_words(void);
const char *txos_go_version(void);

#endif
