/* What the programs of these tests share: cases that register themselves, and calls by their numbers. */
#ifndef CASES_H
#define CASES_H

#define _GNU_SOURCE
#include "../../../library/runtime/c/raw.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

/* Calls that the C library's headers may not name yet. */
enum {
    NR_uretprobe = 335, NR_uprobe, NR_cachestat = 451, NR_fchmodat2, NR_map_shadow_stack, NR_futex_wake,
    NR_futex_wait, NR_futex_requeue, NR_statmount, NR_listmount, NR_lsm_get_self_attr,
    NR_lsm_set_self_attr, NR_lsm_list_modules, NR_mseal, NR_setxattrat, NR_getxattrat, NR_listxattrat,
    NR_removexattrat, NR_open_tree_attr, NR_file_getattr, NR_file_setattr,
};

/* Where a case may be made. */
enum where {
    BOTH = 3,
    RUN = 1,    /* natively and under `txos run`; in a thread's transaction it is passed on or refused */
    INSIDE = 2, /* the other way round */
};

struct one {
    const char *name;
    void (*make)(void);
    enum where where;
};

__attribute__((unused)) static struct one cases[512];
__attribute__((unused)) static int count;

/* CASE(NAME, WHERE) { … }: the function that makes that call. */
#define CASE(name, where)                                                   \
    static void make_##name(void);                                          \
    __attribute__((constructor)) static void register_##name(void)          \
    {                                                                       \
        cases[count++] = (struct one){#name, make_##name, where};           \
    }                                                                       \
    static void make_##name(void)

/* The name of the case that is made: the directory of its files. */
static const char *current;

/* A path in it; good for the next seven. */
static inline const char *at(const char *name)
{
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", current, name);
    return path;
}

static char said[1 << 16];
static size_t saying;

static inline void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    saying += (size_t)vsnprintf(said + saying, sizeof said - saying, format, list);
    va_end(list);
}

/* The answer of a call: the number, or the error. */
static inline long is(long answer)
{
    if (answer == -1)
        say(" E%d", errno);
    else
        say(" %ld", answer);
    return answer;
}

/* The same where the number may differ from one run to the next. */
static inline long done(long answer)
{
    if (answer == -1)
        say(" E%d", errno);
    else
        say(" done");
    return answer;
}

/* Where anything may be answered: that it was made is all. */
static inline long any(long answer)
{
    say(" made");
    return answer;
}

#endif
