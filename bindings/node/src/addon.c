/* What JavaScript calls, each with all that has to be done at once. The library is loaded by `load`.
 * Everything is the calling thread's: a worker has transactions of its own. */
#define _GNU_SOURCE
#define NAPI_VERSION 8
#include <dlfcn.h>
#include <errno.h>
#include <node_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "txos.h"

/* Threads of workers may load at the same time; all write the same. */
static struct {
    int (*begin)(int, ...);
    int (*end)(void);
    void (*abort)(int);
    long (*pause)(void);
    int (*resume)(long);
    const char *(*strerror)(void);
    int (*in_transaction)(void);
    int (*abort_reason)(struct txos_abort *);
    int (*stats)(struct txos_stats *);
    int (*abort_if)(const volatile int *);
    int (*share)(void);
    int (*join)(int);
    long (*exclude)(const char *, const char *);
    const char *(*version)(void);
    int (*name)(const char *);
} lib;

/* This thread's transactions: one in a pause of another is a level of its own. */
#define NESTED 64
static __thread struct level {
    volatile int called_off;
    /* Requests that libuv's loop waited for when the transaction began. */
    unsigned requests;
    /* Calls it off when its time is over. */
    bool timed, over;
    /* This thread takes part in a transaction of another one. */
    bool member;
    /* The id of the transaction while it is paused, else 0. */
    long paused;
    pthread_t timer;
    pthread_mutex_t mutex;
    pthread_cond_t end;
    struct timespec until;
} levels[NESTED];
static __thread int depth;

static const char *bind_all(void *handle) {
    const struct {
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

static napi_value number(napi_env env, double value) {
    napi_value made = NULL;
    napi_create_double(env, value, &made);
    return made;
}

static napi_value text(napi_env env, const char *value) {
    napi_value made = NULL;
    napi_create_string_utf8(env, value, NAPI_AUTO_LENGTH, &made);
    return made;
}

static size_t arguments(napi_env env, napi_callback_info info, napi_value *values, size_t count) {
    size_t given = count;
    napi_get_cb_info(env, info, &given, values, NULL, NULL);
    return given;
}

/* load(path, already): null, or [code, words]: 1: not found, 2: too old. */
static napi_value load(napi_env env, napi_callback_info info) {
    napi_value values[2], answer = NULL;
    char path[4096], words[4400];
    size_t length = 0;
    bool already = false;
    arguments(env, info, values, 2);
    if (napi_get_value_string_utf8(env, values[0], path, sizeof path, &length) != napi_ok)
        return NULL;
    napi_get_value_bool(env, values[1], &already);
    void *handle = dlopen(path, RTLD_NOW | (already ? RTLD_NOLOAD : 0));
    int code = 0;
    if (!handle) {
        const char *why = dlerror();
        code = 1;
        snprintf(words, sizeof words, "%s", why ? why : path);
    } else {
        const char *missing = bind_all(handle);
        if (missing) {
            code = 2;
            snprintf(words, sizeof words, "%s, version %s, lacks %s", path,
                     lib.version ? lib.version() : "unknown", missing);
        }
    }
    if (code == 0) {
        napi_get_null(env, &answer);
        return answer;
    }
    napi_create_array_with_length(env, 2, &answer);
    napi_set_element(env, answer, 0, number(env, code));
    napi_set_element(env, answer, 1, text(env, words));
    return answer;
}

/* How many requests the thread's loop waits for. A synchronous call makes none, and none ends before the
 * loop goes on: what was added in a transaction was started in it, and runs on other threads. */
static unsigned requests(napi_env env) {
    uv_loop_t *loop = NULL;
    return napi_get_uv_event_loop(env, &loop) == napi_ok ? loop->active_reqs.count : 0;
}

static void *count_down(void *argument) {
    struct level *level = argument;
    pthread_mutex_lock(&level->mutex);
    while (!level->over && pthread_cond_timedwait(&level->end, &level->mutex, &level->until) == 0)
        ;
    if (!level->over)
        __atomic_store_n(&level->called_off, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&level->mutex);
    return NULL;
}

/* A thread of its own: this one's event loop stands still in the transaction. */
static int start_timer(struct level *level, double milliseconds) {
    pthread_condattr_t clock;
    clock_gettime(CLOCK_MONOTONIC, &level->until);
    double nanoseconds = level->until.tv_nsec + milliseconds * 1e6;
    level->until.tv_sec += (time_t)(nanoseconds / 1e9);
    level->until.tv_nsec = (long)(nanoseconds - (double)(time_t)(nanoseconds / 1e9) * 1e9);
    level->over = false;
    pthread_mutex_init(&level->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&level->end, &clock);
    int error = pthread_create(&level->timer, NULL, count_down, level);
    level->timed = error == 0;
    return error;
}

static void stop_timer(struct level *level) {
    if (!level->timed)
        return;
    pthread_mutex_lock(&level->mutex);
    level->over = true;
    pthread_cond_signal(&level->end);
    pthread_mutex_unlock(&level->mutex);
    pthread_join(level->timer, NULL);
    pthread_cond_destroy(&level->end);
    pthread_mutex_destroy(&level->mutex);
    level->timed = false;
}

/* A string as UTF-8, to be freed; or null, also if there is no memory. */
static char *string_of(napi_env env, napi_value value) {
    size_t length = 0;
    if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok)
        return NULL;
    char *made = malloc(length + 1);
    if (made && napi_get_value_string_utf8(env, value, made, length + 1, &length) != napi_ok) {
        free(made);
        return NULL;
    }
    return made;
}

/* name(string or null): gives the thread's next transaction a name, or takes it back. 0, or -errno. */
static napi_value name_it(napi_env env, napi_callback_info info) {
    napi_value value;
    napi_valuetype type = napi_null;
    arguments(env, info, &value, 1);
    napi_typeof(env, value, &type);
    char *name = type == napi_string ? string_of(env, value) : NULL;
    if (type == napi_string && !name)
        return number(env, -ENOMEM);
    int error = lib.name(name) == 0 ? 0 : errno;
    free(name);
    return number(env, -error);
}

/* begin(flags, timeout, second): 0, or -errno. Milliseconds, 0: no end; the sequence number, a BigInt, or what it comes after,
 * one a line, if there is one. */
static napi_value begin(napi_env env, napi_callback_info info) {
    napi_value values[3];
    int32_t flags = 0;
    double timeout = 0;
    uint64_t sequence = 0;
    bool whole;
    napi_valuetype type = napi_undefined;
    size_t given = arguments(env, info, values, 3);
    napi_get_value_int32(env, values[0], &flags);
    napi_get_value_double(env, values[1], &timeout);
    if (given > 2)
        napi_typeof(env, values[2], &type);
    if (type == napi_bigint)
        napi_get_value_bigint_uint64(env, values[2], &sequence, &whole);
    if (depth == NESTED)
        return number(env, -ENOMEM);
    char *after = type == napi_string ? string_of(env, values[2]) : NULL;
    if (type == napi_string && !after)
        return number(env, -ENOMEM);
    struct level *level = &levels[depth];
    level->called_off = 0;
    level->timed = level->member = false;
    level->paused = 0;
    int error = timeout > 0 ? start_timer(level, timeout) : 0;
    if (error == 0 && (after ? lib.begin(flags, after) : lib.begin(flags, sequence)) < 0) {
        error = errno;
        stop_timer(level);
    }
    free(after);
    if (error != 0)
        return number(env, -error);
    lib.abort_if(&level->called_off);
    level->requests = requests(env);
    depth++;
    return number(env, 0);
}

/* end(commit): what became of it: 0: committed, 1: not, 2: there was none any more, 3: not, since
 * something asynchronous was started in it; 4: not, its time was over. */
static napi_value end(napi_env env, napi_callback_info info) {
    napi_value value;
    bool commit = false;
    arguments(env, info, &value, 1);
    napi_get_value_bool(env, value, &commit);
    if (depth == 0)
        return number(env, 2);
    struct level *level = &levels[--depth];
    bool started = requests(env) > level->requests;
    int became = 1;
    if (!lib.in_transaction())
        became = 2;
    else if (commit && !started && lib.end() == 0)
        became = 0;
    else
        lib.abort(1);
    bool late = level->called_off;
    stop_timer(level);
    if (became == 1 && started)
        became = 3;
    else if (became == 1 && late)
        became = 4;
    return number(env, became);
}

/* share(): a descriptor by which workers join, or -errno. */
static napi_value share(napi_env env, napi_callback_info info) {
    (void)info;
    int shown = lib.share();
    return number(env, shown >= 0 ? shown : -errno);
}

/* hide(descriptor) */
static napi_value hide(napi_env env, napi_callback_info info) {
    napi_value value;
    int32_t shown = -1;
    arguments(env, info, &value, 1);
    napi_get_value_int32(env, value, &shown);
    close(shown);
    return NULL;
}

/* join(descriptor): 0, or -errno. `end` leaves it. */
static napi_value join(napi_env env, napi_callback_info info) {
    napi_value value;
    int32_t shown = -1;
    arguments(env, info, &value, 1);
    napi_get_value_int32(env, value, &shown);
    if (depth == NESTED)
        return number(env, -ENOMEM);
    if (lib.join(shown) != 0)
        return number(env, -errno);
    struct level *level = &levels[depth++];
    level->called_off = 0;
    level->timed = false;
    level->member = true;
    level->paused = 0;
    level->requests = requests(env);
    return number(env, 0);
}

/* exclude(path, suffix): how many files, or -errno. */
static napi_value exclude(napi_env env, napi_callback_info info) {
    napi_value values[2];
    char path[4096], suffix[256];
    size_t length;
    arguments(env, info, values, 2);
    if (napi_get_value_string_utf8(env, values[0], path, sizeof path, &length) != napi_ok ||
        napi_get_value_string_utf8(env, values[1], suffix, sizeof suffix, &length) != napi_ok)
        return number(env, -EINVAL);
    long count = lib.exclude(path, suffix);
    return number(env, count >= 0 ? (double)count : -errno);
}

/* The thread, or the process, ends in a transaction: process.exit(), or a worker that is stopped. No JavaScript runs
 * any more that could end it, and a worker that takes part must not seem to have done its part. */
static void abandon(void *nothing) {
    (void)nothing;
    while (depth > 0) {
        struct level *level = &levels[--depth];
        if (level->paused > 0)
            lib.resume(level->paused);
        if (lib.in_transaction())
            lib.abort(1);
        stop_timer(level);
    }
}

static napi_value pause_it(napi_env env, napi_callback_info info) {
    (void)info;
    if (depth == 0)
        return number(env, -EINVAL);
    /* What is started in the pause is no concern of the transaction's. */
    levels[depth - 1].requests -= requests(env);
    long id = lib.pause();
    if (id < 0) {
        int error = errno;
        levels[depth - 1].requests += requests(env);
        return number(env, -error);
    }
    levels[depth - 1].paused = id;
    return number(env, id);
}

static napi_value resume(napi_env env, napi_callback_info info) {
    napi_value value;
    int64_t id = 0;
    arguments(env, info, &value, 1);
    napi_get_value_int64(env, value, &id);
    int error = lib.resume(id) == 0 ? 0 : errno;
    levels[depth - 1].paused = 0;
    levels[depth - 1].requests += requests(env);
    return number(env, -error);
}

static napi_value in_transaction(napi_env env, napi_callback_info info) {
    (void)info;
    napi_value made = NULL;
    napi_get_boolean(env, lib.in_transaction(), &made);
    return made;
}

/* [reason, errno, pid, what, path as a Buffer] */
static napi_value why(napi_env env, napi_callback_info info) {
    (void)info;
    struct txos_abort abort = {.size = sizeof abort};
    napi_value made = NULL, path = NULL;
    lib.abort_reason(&abort);
    napi_create_array_with_length(env, 5, &made);
    napi_set_element(env, made, 0, number(env, abort.reason));
    napi_set_element(env, made, 1, number(env, abort.error));
    napi_set_element(env, made, 2, number(env, abort.pid));
    napi_set_element(env, made, 3, text(env, abort.what));
    napi_create_buffer_copy(env, strlen(abort.path), abort.path, NULL, &path);
    napi_set_element(env, made, 4, path);
    return made;
}

static napi_value words(napi_env env, napi_callback_info info) {
    (void)info;
    return text(env, lib.strerror());
}

static napi_value version(napi_env env, napi_callback_info info) {
    (void)info;
    return text(env, lib.version());
}

static napi_value stats(napi_env env, napi_callback_info info) {
    (void)info;
    struct txos_stats now = {.size = sizeof now};
    napi_value made = NULL;
    lib.stats(&now);
    const uint64_t counters[] = {now.begun, now.committed, now.aborted,     now.restarted,
                                 now.calls, now.trapped,   now.unsupported, now.short_cuts};
    napi_create_array_with_length(env, 8, &made);
    for (uint32_t i = 0; i < 8; i++)
        napi_set_element(env, made, i, number(env, (double)counters[i]));
    return made;
}

NAPI_MODULE_INIT() {
    napi_add_env_cleanup_hook(env, abandon, NULL);
    const struct {
        const char *name;
        napi_callback function;
    } functions[] = {
        {"load", load},         {"begin", begin},     {"end", end},
        {"pause", pause_it},
        {"resume", resume},     {"why", why},         {"words", words},
        {"inTransaction", in_transaction},            {"version", version},
        {"stats", stats},       {"share", share},     {"hide", hide},
        {"join", join},         {"exclude", exclude}, {"name", name_it},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        napi_value function;
        if (napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].function,
                                 NULL, &function) != napi_ok ||
            napi_set_named_property(env, exports, functions[i].name, function) != napi_ok)
            return NULL;
    }
    return exports;
}
