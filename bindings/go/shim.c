//go:build linux && amd64 && cgo

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static struct {
    int (*begin)(int, ...);
    int (*end)(void);
    void (*abort)(int);
    long (*pause)(void);
    int (*resume)(long);
    const char *(*strerror)(void);
    int (*in_transaction)(void);
    int (*abort_reason)(struct txos_go_abort *);
    int (*stats)(struct txos_go_stats *);
    int (*abort_if)(const volatile int *);
    int (*at_once)(int, int);
    int (*share)(void);
    int (*join)(int);
    long (*exclude)(const char *, const char *);
    const char *(*version)(void);
    int (*name)(const char *);
} lib;

/* What this thread is in. */
static __thread int here;
/* The goroutines that take part in its transaction; 0: there are none. */
static __thread uint64_t group;

static const char *bind_all(void *handle) {
    static const struct {
        const char *name;
        void *at;
    } functions[] = {
        {"txos_version", &lib.version},
        {"sys_xbegin", &lib.begin},
        {"sys_xend", &lib.end},
        {"sys_xabort", &lib.abort},
        {"sys_xpause", &lib.pause},
        {"sys_xresume", &lib.resume},
        {"txos_strerror", &lib.strerror},
        {"txos_in_transaction", &lib.in_transaction},
        {"txos_abort_reason", &lib.abort_reason},
        {"txos_stats", &lib.stats},
        {"txos_abort_if", &lib.abort_if},
        {"txos_signal_at_once", &lib.at_once},
        {"txos_share", &lib.share},
        {"sys_xjoin", &lib.join},
        {"txos_exclude", &lib.exclude},
        {"txos_name", &lib.name},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(handle, functions[i].name);
        if (!function)
            return functions[i].name;
        *(void **)functions[i].at = function;
    }
    return NULL;
}

int txos_go_load(const char *path, int already, char *why, size_t size) {
    void *handle = dlopen(path, RTLD_NOW | (already ? RTLD_NOLOAD : 0));
    if (!handle) {
        const char *words = dlerror();
        snprintf(why, size, "%s", words ? words : path);
        return 1;
    }
    const char *missing = bind_all(handle);
    if (missing) {
        const char *version = lib.version ? lib.version() : "unknown";
        snprintf(why, size, "%s, version %s, lacks %s", path, version, missing);
        return 2;
    }
    /* Go's runtime stops its threads with the one, and looks where they are with the other. */
    lib.at_once(SIGURG, 1);
    lib.at_once(SIGPROF, 1);
    return 0;
}

int txos_go_name(const char *name) {
    return lib.name(name) == 0 ? 0 : -errno;
}

int txos_go_begin(int flags, uint64_t sequence, const char *after, const int *flag) {
    if (here != TXOS_GO_OUTSIDE)
        return TXOS_GO_WITHIN;
    if ((after ? lib.begin(flags, after) : lib.begin(flags, sequence)) < 0)
        return -errno;
    if (flag)
        lib.abort_if(flag);
    here = TXOS_GO_INSIDE;
    group = 0;
    return TXOS_GO_BEGUN;
}

void txos_go_spoil(void) {
    if (here != TXOS_GO_OUTSIDE)
        here = TXOS_GO_SPOILED;
}

int txos_go_end(int commit) {
    int spoiled = here == TXOS_GO_SPOILED;
    if (commit && group)
        return TXOS_GO_OTHERS;
    here = TXOS_GO_OUTSIDE;
    if (!lib.in_transaction())
        return TXOS_GO_GONE;
    if (commit && !spoiled)
        return lib.end() == 0 ? TXOS_GO_DONE : TXOS_GO_LOST;
    lib.abort(1);
    return commit ? TXOS_GO_WAS_SPOILED : TXOS_GO_LOST;
}

int txos_go_share(uint64_t number) {
    int fd = lib.share();
    if (fd < 0)
        return -errno;
    group = number;
    return fd;
}

uint64_t txos_go_group(void) {
    return group;
}

void txos_go_set_group(uint64_t number) {
    group = number;
}

void txos_go_close(int fd) {
    close(fd);
}

int txos_go_join(int fd, uint64_t number) {
    if (lib.join(fd) != 0)
        return -errno;
    here = TXOS_GO_INSIDE;
    group = number;
    return 0;
}

void txos_go_leave(int good) {
    good = good && here != TXOS_GO_SPOILED;
    here = TXOS_GO_OUTSIDE;
    group = 0;
    if (!lib.in_transaction())
        return;
    if (good)
        lib.end();
    else
        lib.abort(1);
}

/* The state of a paused transaction is kept by its id: the lowest bit says whether it is spoiled. */
long txos_go_pause(void) {
    if (here == TXOS_GO_OUTSIDE)
        return 0;
    long id = lib.pause();
    if (id < 0)
        return -errno;
    int spoiled = here == TXOS_GO_SPOILED;
    here = TXOS_GO_OUTSIDE;
    return id << 1 | spoiled;
}

int txos_go_resume(long id) {
    if (lib.resume(id >> 1) != 0)
        return -errno;
    here = id & 1 ? TXOS_GO_SPOILED : TXOS_GO_INSIDE;
    return 0;
}

int txos_go_here(void) {
    return here;
}

int txos_go_inside(void) {
    return lib.in_transaction && lib.in_transaction();
}

void txos_go_abort_reason(struct txos_go_abort *out) {
    out->size = sizeof *out;
    lib.abort_reason(out);
}

void txos_go_stats(struct txos_go_stats *out) {
    out->size = sizeof *out;
    lib.stats(out);
}

long txos_go_exclude(const char *path, const char *suffix) {
    long count = lib.exclude(path, suffix);
    return count >= 0 ? count : -errno;
}

const char *txos_go_words(void) {
    return lib.strerror();
}

const char *txos_go_version(void) {
    return lib.version();
}
