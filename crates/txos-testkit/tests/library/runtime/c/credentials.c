/* Credentials that a transaction changes are after its commit as without it, and after its abort as before, where the kernel lets a
 * process have them again. Random calls, each script in a process of its own: `credentials SEED SCRIPTS`, as root. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

struct who {
    uid_t users[4];
    gid_t groups[4];
    gid_t others[8];
    int count, told;
    struct __user_cap_data_struct caps[2];
    int answers;
};

static unsigned state;

static unsigned chance(unsigned n) {
    state = state * 1103515245 + 12345;
    return (state >> 16) % n;
}

static struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};

static void look(struct who *who) {
    CHECK(getresuid(&who->users[0], &who->users[1], &who->users[2]) == 0);
    CHECK(getresgid(&who->groups[0], &who->groups[1], &who->groups[2]) == 0);
    who->users[3] = (uid_t)setfsuid(-1);
    who->groups[3] = (gid_t)setfsgid(-1);
    who->count = getgroups(8, who->others);
    CHECK(syscall(SYS_capget, &header, who->caps) == 0);
    who->told = 1;
}

static void drop(int capability) {
    struct __user_cap_data_struct caps[2];
    CHECK(syscall(SYS_capget, &header, caps) == 0);
    caps[0].effective &= ~(1u << capability);
    caps[0].permitted &= ~(1u << capability);
    CHECK(syscall(SYS_capset, &header, caps) == 0);
}

/* One call that may change who the process is. */
static int change(void) {
    static const unsigned ids[] = {0, 1000, 1001, -1u};
    unsigned a = ids[chance(3)], b = ids[chance(4)], c = ids[chance(4)];
    gid_t others[2] = {1000, 1002};
    switch (chance(11)) {
    case 0: return setuid(a);
    case 1: return setgid(a);
    case 2: return seteuid(a);
    case 3: return setegid(a);
    case 4: return setreuid(b, c);
    case 5: return setregid(b, c);
    case 6: return setresuid(b, c, ids[chance(4)]);
    case 7: return setresgid(b, c, ids[chance(4)]);
    case 8: return setgroups(chance(3), others);
    case 9: return setfsuid(a) >= 0 ? setfsgid(ids[chance(3)]) : 0;
    default: return chance(2) ? drop(chance(2) ? CAP_SETGID : CAP_SETUID), 0 : 0;
    }
}

/* The same calls, natively (-1) or in a transaction that commits or aborts. */
static int does(unsigned seed, int flags, int aborts, struct who *who) {
    state = seed;
    if (flags >= 0 && sys_xbegin(flags) != 0)
        return 2;
    int answers = 0;
    for (unsigned i = 0, calls = 1 + chance(4); i < calls; i++)
        answers = (answers * 3 + change() + 1) * 2 + (access("/", R_OK) == 0);
    int ended = 0;
    if (flags >= 0 && aborts)
        sys_xabort(1);
    else if (flags >= 0)
        ended = sys_xend() == 0 ? 0 : 3;
    look(who);
    who->answers = answers;
    return ended;
}

static int in_child(unsigned seed, int flags, int aborts, struct who *who) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(does(seed, flags, aborts, who));
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static void show(const char *what, const struct who *who) {
    fprintf(stderr, "%s: %d users %d %d %d %d groups %d %d %d %d others %d caps %x %x\n", what, who->answers, who->users[0], who->users[1],
            who->users[2], who->users[3], who->groups[0], who->groups[1], who->groups[2], who->groups[3], who->count,
            who->caps[0].effective, who->caps[0].permitted);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    unsigned first = (unsigned)atoi(argv[1]), scripts = (unsigned)atoi(argv[2]), unlike = 0, lost = 0;
    struct who *who = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(who != MAP_FAILED && setgroups(0, NULL) == 0);
    static struct who before;
    look(&before);
    before.answers = 0;
    for (unsigned seed = first; seed < first + scripts; seed++) {
        memset(who, 0, 4096);
        CHECK(in_child(seed, -1, 0, &who[0]) == 0);
        for (int keeps = 0; keeps < 2; keeps++) {
            int flags = keeps ? TX_KEEP_CREDENTIALS : 0;
            memset(&who[1], 0, 2 * sizeof who[1]);
            int committed = in_child(seed, flags, 0, &who[1]);
            if (committed != 0 || memcmp(&who[0], &who[1], sizeof who[0]) != 0) {
                unlike++;
                fprintf(stderr, "seed %u, flags %x: committed with %x\n", seed, flags, committed);
                show("natively", &who[0]), show("here", &who[1]);
            }
            int aborted = in_child(seed, flags, 1, &who[2]);
            who[2].answers = 0;
            int is_as_before = memcmp(&before, &who[2], sizeof before) == 0;
            /* What is given up for good is as natively then. */
            who[0].answers = 0;
            int is_as_natively = memcmp(&who[0], &who[2], sizeof before) == 0;
            who[0].answers = who[1].answers;
            lost += !is_as_before;
            if (aborted != 0 || !(is_as_before || (!keeps && is_as_natively))) {
                unlike++;
                fprintf(stderr, "seed %u, flags %x: aborted with %x\n", seed, flags, aborted);
                show("natively", &who[0]), show("here", &who[2]);
            }
        }
    }
    printf("%u unlike, %u given up for good\n", unlike, lost);
    return unlike != 0;
}
