/* One random sequence of system calls, natively or in transactions: what each call answers is
 * written down, and must not depend on which.
 *
 * main.c     modes, the sequence
 * log.c      what is written down, and how it is made comparable
 * prepare.c  the tree at the beginning
 * pick.c     random arguments
 * open.c io.c list.c stat.c names.c attributes.c descriptors.c map.c effects.c   the calls
 */
#ifndef DIFFER_H
#define DIFFER_H

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#include "../raw.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* --- The call that is being made ------------------------------------------------------------- */

extern uint64_t seed;
extern int call;   /* its number */
extern bool raw;   /* by the program's own instruction, not by the C library's function */
extern long R;     /* its answer */
extern int E;      /* its errno; 0 if it succeeded */

/* Makes a call one way or the other. */
#define DO(libc, number, ...)                                                     \
    do {                                                                          \
        errno = 0;                                                                \
        R = raw && (number) != NO_CALL ? RAW(number, __VA_ARGS__) : (long)(libc); \
        E = R == -1 ? errno : 0;                                                  \
    } while (0)

/* One kind of call. */
struct kind {
    const char *name;
    const char *class; /* what --without and --only name */
    unsigned weight;
    void (*make)(void);
};

extern const struct kind opening[], io[], listing[], stating[], naming[], attributes[], descriptors[],
    mapping[], effects[];
bool class_is_on(const char *class);
bool is_within(int call);                  /* in the transaction, if there is one */

/* --- log.c ------------------------------------------------------------------------------------ */

void log_open(void);
void log_close(void);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void answer(void);                         /* " = 3" or " = -1 ENOENT" */
void say_path(const char *path);
void say_bytes(const void *bytes, size_t size); /* length and hash */
void say_stat(const struct stat *stat);
void say_time(int64_t seconds, int64_t nanoseconds);
unsigned inode_number(uint64_t dev, uint64_t ino); /* by order of first appearance */
void forget_inodes(void);
void say_state(const char *when);          /* descriptors, working directory, umask */
const char *type_name(mode_t mode);

/* --- pick.c ----------------------------------------------------------------------------------- */

void pick_from(uint64_t a, uint64_t b);    /* what follows depends on these only */
uint64_t bits(void);
unsigned below(unsigned n);
bool chance(unsigned percent);
#define PICK(array) ((array)[below(LENGTH(array))])

extern char base[2048];                    /* the directory it all is in */
const char *name(void);
const char *path(void);
void look_around(void);                    /* once, at the beginning, in the base */
int dir(void);                             /* AT_FDCWD, or a descriptor */
int descriptor(void);
int file(void);                            /* a descriptor, likely of a file */
int listed(void);                          /* likely of a directory */
int at_flags(int some);
unsigned some_size(void);
int64_t some_offset(void);
mode_t some_mode(void);
const void *data(size_t size);             /* bytes that only this call writes */

#define SLOTS 8
extern int slot[SLOTS];
void keep(int fd);                         /* a new descriptor, instead of an older one */
void forget(int fd);                       /* it is closed */
mode_t type_of(int fd);                    /* S_IFREG etc.; 0 if it is not open */
bool may_block(int fd);                    /* reading or writing it could wait */

#define BAD ((void *)8)                    /* no memory is there */
#define ROOM (256 * 1024)
extern char room[ROOM];                    /* for what calls write to memory */

void effects_begin(void);                  /* the process outside begins */
void effects_end(void);                    /* and ends: what it has got */
void say_identity(void);

void prepare(int uid, int gid);

#endif
