/* differ MODE SEED DIR [OPTION...]
 *
 * MODE     prepare: only makes the tree in DIR, which is empty
 *          native:  makes the calls as they are
 *          commit:  in a transaction, which is committed
 *          abort:   in a transaction, which is aborted
 *          split:   in several transactions (--parts), some of them aborted if --mixed
 * OPTION   --calls N       in the transaction (80)
 *          --before N      calls before it (12)
 *          --after N       calls after it (8)
 *          --parts N       transactions in split mode (4)
 *          --skip LIST     numbers and ranges of calls to leave out: 3,5-9
 *          --without LIST  classes of calls to leave out; may be repeated
 *          --with LIST     classes that are off otherwise
 *          --only LIST     only these classes of calls
 *          --via WAY       libc, raw or mix (mix): how calls are made
 *          --flags N       of sys_xbegin
 *          --owner UID:GID whose the prepared tree mostly is
 *
 * One line for each call, and the state of the process before and after. Lines that begin with '#'
 * are not to be compared.
 */
#include "differ.h"

uint64_t seed;
int call;
bool raw;
long R;
int E;

static char without[1024];
static const char *with = "", *only;
static const char *skip_list = "";
static const char *via = "mix";
static int calls = 80, before = 12, after = 8, parts = 4, flags;

/* Off unless asked for: what a transaction may do otherwise and yet be right, or does not claim. */
static const char *const off[] = { "fifo", "holes", "rare", "closeall", "limits", "outside", "identity" };

static bool in_list(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ','))
            return true;
    return false;
}

bool class_is_on(const char *class)
{
    if (in_list(without, class))
        return false;
    for (unsigned i = 0; i < LENGTH(off); i++)
        if (strcmp(off[i], class) == 0)
            return in_list(with, class);
    return true;
}

static bool skipped(int n)
{
    for (const char *at = skip_list; *at;) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (end == at)
            return false;
        if (first <= n && n <= last)
            return true;
        at = *end == ',' ? end + 1 : end;
    }
    return false;
}

static const struct kind *const groups[] = { opening, io, listing, stating, naming, attributes,
                                             descriptors, mapping, effects };

bool is_within(int number)
{
    return number >= before && number < before + calls;
}

static const struct kind *pick_kind(void)
{
    unsigned sum = 0;
    for (int pass = 0;; pass++) {
        unsigned target = pass ? below(sum) : 0;
        for (unsigned g = 0; g < LENGTH(groups); g++)
            for (const struct kind *kind = groups[g]; kind->name; kind++) {
                if (!class_is_on(kind->class) || (only && !in_list(only, kind->class)))
                    continue;
                if (!pass)
                    sum += kind->weight;
                else if (target < kind->weight)
                    return kind;
                else
                    target -= kind->weight;
            }
        if (sum == 0) {
            fprintf(stderr, "differ: no class of calls is on\n");
            exit(2);
        }
    }
}

static void make(int from, int to)
{
    for (call = from; call < to; call++) {
        if (skipped(call))
            continue;
        pick_from(seed, (uint64_t)call);
        /* First some descriptors, or all later calls have none. */
        const struct kind *kind = call % 2 && call < 14 && !only ? &opening[0] : pick_kind();
        raw = strcmp(via, "raw") == 0 || (strcmp(via, "mix") == 0 && chance(50));
        say("%d ", call);
        kind->make();
        say("\n");
    }
}

static void give_up(const char *what)
{
    say("# %s: %s: %s\n", what, strerror(errno), txos_strerror ? txos_strerror() : "");
    log_close();
    fprintf(stderr, "differ: %s: %s: %s\n", what, strerror(errno),
            txos_strerror ? txos_strerror() : "");
    exit(3);
}

/* Not a function: a restart returns into the frame that called sys_xbegin(). */
#define BEGIN()                                                      \
    do {                                                             \
        if (!sys_xbegin) {                                           \
            fprintf(stderr, "differ: built without the library\n");  \
            exit(2);                                                 \
        }                                                            \
        if (sys_xbegin(flags) < 0)                                   \
            give_up("sys_xbegin");                                   \
    } while (0)

static void end(void)
{
    if (sys_xend() == 0)
        return;
    int error = errno;
    struct txos_abort why = { .size = sizeof why };
    if (txos_abort_reason(&why) == 0)
        say("# aborted: %u %s %s\n", why.reason, why.what, why.path);
    errno = error;
    give_up("sys_xend");
}

static void say_statistics(void)
{
    struct txos_stats stats = { .size = sizeof stats };
    if (txos_stats && txos_stats(&stats) == 0)
        say("# begun %llu committed %llu calls %llu trapped %llu unsupported %llu\n",
            (unsigned long long)stats.begun, (unsigned long long)stats.committed,
            (unsigned long long)stats.calls, (unsigned long long)stats.trapped,
            (unsigned long long)stats.unsupported);
}

/* Random paths lead everywhere, and root may do everything: what is not the test's own has to be
 * mounted read-only. */
static void must_be_contained(void)
{
    static const char *const places[] = { "/", "/dev", "/proc", "/tmp", "/etc", "/home", "/root" };
    struct statvfs st;
    for (unsigned i = 0; i < LENGTH(places); i++)
        if (statvfs(places[i], &st) == 0 && !(st.f_flag & ST_RDONLY)) {
            fprintf(stderr, "differ: %s is mounted for writing: not here\n", places[i]);
            exit(2);
        }
}

static void usage(void)
{
    fprintf(stderr, "usage: differ prepare|native|commit|abort|split SEED DIR [OPTION VALUE]...\n");
    exit(2);
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc % 2)
        usage();
    const char *mode = argv[1];
    int uid = 0, gid = 0;
    seed = strtoull(argv[2], NULL, 10);
    snprintf(base, sizeof base, "%s", argv[3]);
    for (int i = 4; i < argc; i += 2) {
        const char *option = argv[i], *value = argv[i + 1];
        if (strcmp(option, "--calls") == 0)
            calls = atoi(value);
        else if (strcmp(option, "--before") == 0)
            before = atoi(value);
        else if (strcmp(option, "--after") == 0)
            after = atoi(value);
        else if (strcmp(option, "--parts") == 0)
            parts = atoi(value);
        else if (strcmp(option, "--skip") == 0)
            skip_list = value;
        else if (strcmp(option, "--without") == 0)
            strcat(strcat(without, ","), value);
        else if (strcmp(option, "--with") == 0)
            with = value;
        else if (strcmp(option, "--only") == 0)
            only = value;
        else if (strcmp(option, "--via") == 0)
            via = value;
        else if (strcmp(option, "--flags") == 0)
            flags = (int)strtol(value, NULL, 0);
        else if (strcmp(option, "--owner") == 0)
            sscanf(value, "%d:%d", &uid, &gid);
        else
            usage();
    }
    must_be_contained();
    if (chdir(base) != 0) {
        perror(base);
        return 2;
    }
    if (strcmp(mode, "prepare") == 0) {
        prepare(uid, gid);
        return 0;
    }

    /* What a test harness may have left open. */
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    signal(SIGPIPE, SIG_IGN);
    umask(022);
    log_open();
    effects_begin();
    look_around();
    int first = before, last = before + calls;
    make(0, first);
    say_state("before");
    if (strcmp(mode, "native") == 0) {
        make(first, last);
    } else if (strcmp(mode, "commit") == 0) {
        BEGIN();
        make(first, last);
        end();
    } else if (strcmp(mode, "abort") == 0) {
        BEGIN();
        make(first, last);
        sys_xabort(1);
    } else if (strcmp(mode, "split") == 0) {
        for (int part = 0; part < parts; part++) {
            BEGIN();
            make(first + calls * part / parts, first + calls * (part + 1) / parts);
            end();
        }
    } else {
        usage();
    }
    say_state("after");
    if (strcmp(mode, "abort") != 0) {
        make(last, last + after);
        say_state("at the end");
    }
    effects_end();
    say_statistics();
    log_close();
    return 0;
}
