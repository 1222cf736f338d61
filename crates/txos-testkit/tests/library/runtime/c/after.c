/* after STEP...
 *
 * One of several programs that come after each other, in these steps:
 *
 *   name=NAME unname     txos_name, with NULL
 *   begin[=FLAGS[:NAMES]]   sys_xbegin; FLAGS: r TX_RESTART, n TX_NONBLOCK, c TX_CHECKPOINT, o TX_ORDERED, t TX_RETRY,
 *                        a TX_AFTER, which comes after NAMES, separated by '+'
 *   nowhere=HOW          sys_xbegin with TX_AFTER and a pointer that leads nowhere, from the beginning or (end) in its middle
 *   put=FILE:TEXT        writes a file
 *   copy=FROM:TO         copies a file; if there is none, the copy holds "none"
 *   need=FILE            sys_xabort(0) if there is no such file
 *   mark=FILE            makes "../FILE", outside of the transaction
 *   await=FILE           waits until "../FILE" is there, outside of the transaction
 *   end abort prepare finish commit   sys_xend, sys_xabort, txos_prepare, txos_finish(0) and (1)
 *   pause resume         sys_xpause, sys_xresume
 *   fork                 makes a child that only sleeps, and says so by the file "../child"
 *   kill                 SIGKILL to itself
 *   reason=N             the transaction was aborted for this
 *
 * "STEP!ERROR" fails with this errno, or the program does. It prints, at its end, the number of the last attempt and what
 * the last failure was in words.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "raw.h"

static void fail(const char *step)
{
    char why[1024];
    int error = errno;
    snprintf(why, sizeof why, "%s", txos_strerror());
    if (txos_in_transaction())
        sys_xabort(1);
    fprintf(stderr, "%s: %s; %s\n", step, strerrorname_np(error), why);
    exit(1);
}

static bool is_there(const char *name)
{
    return access(name, F_OK) == 0;
}

static int put(const char *name, const char *text)
{
    size_t size = strlen(text);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, text, size) != (ssize_t)size)
        return -1;
    return close(fd);
}

static int copy(const char *from, const char *to)
{
    char text[256] = "none";
    int fd = open(from, O_RDONLY);
    if (fd >= 0) {
        ssize_t n = read(fd, text, sizeof text - 1);
        close(fd);
        if (n < 0)
            return -1;
        text[n] = 0;
    } else if (errno != ENOENT)
        return -1;
    return put(to, text);
}

/* Outside of the transaction, if there is one. */
static int outside(const char *name, bool waits)
{
    char path[256];
    long id = txos_in_transaction() ? sys_xpause() : 0;
    snprintf(path, sizeof path, "../%s", name);
    for (int n = 0; waits && !is_there(path); n++) {
        if (n == 6000)
            return errno = ETIMEDOUT, -1;
        usleep(10000);
    }
    if (!waits && put(path, "") != 0)
        return -1;
    return id == 0 ? 0 : sys_xresume(id);
}

static int flags_of(const char *text)
{
    int flags = 0;
    for (; *text; text++)
        flags |= *text == 'r'   ? TX_RESTART
                 : *text == 'n' ? TX_NONBLOCK
                 : *text == 'c' ? TX_CHECKPOINT
                 : *text == 'a' ? TX_AFTER
                 : *text == 'o' ? TX_ORDERED
                 : *text == 't' ? TX_RETRY
                                : 0;
    return flags;
}

static int sleeper(void)
{
    pid_t child = fork();
    if (child != 0)
        return child < 0 ? -1 : 0;
    put("../child", "");
    while (!is_there("../over"))
        usleep(10000);
    _exit(0);
}

static int nowhere(const char *how)
{
    char *at = (char *)8;
    if (!strcmp(how, "end")) {
        at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            return errno = ENOMEM, -1;
        memset(at, 'x', 8192);
        /* It is known to be there, and then it is not. */
        if (sys_xbegin(TX_AFTER, at + 8190) != -1 || munmap(at + 4096, 4096) != 0)
            return errno = ENOMEM, -1;
    }
    return sys_xbegin(TX_AFTER, at) == -1 ? -1 : 0;
}

static long paused;

static int step(const char *what, const char *one, const char *two)
{
    if (!strcmp(what, "name"))
        return txos_name(one);
    if (!strcmp(what, "unname"))
        return txos_name(NULL);
    if (!strcmp(what, "nowhere"))
        return nowhere(one);
    if (!strcmp(what, "put"))
        return put(one, two);
    if (!strcmp(what, "copy"))
        return copy(one, two);
    if (!strcmp(what, "need"))
        return is_there(one) ? 0 : (sys_xabort(0), -1);
    if (!strcmp(what, "mark") || !strcmp(what, "await"))
        return outside(one, what[0] == 'a');
    if (!strcmp(what, "end"))
        return sys_xend();
    if (!strcmp(what, "abort"))
        return sys_xabort(1), 0;
    if (!strcmp(what, "prepare"))
        return txos_prepare();
    if (!strcmp(what, "finish") || !strcmp(what, "commit"))
        return txos_finish(what[0] == 'c');
    if (!strcmp(what, "pause"))
        return (paused = sys_xpause()) == -1 ? -1 : 0;
    if (!strcmp(what, "resume"))
        return sys_xresume(paused);
    if (!strcmp(what, "fork"))
        return sleeper();
    if (!strcmp(what, "kill"))
        return kill(getpid(), SIGKILL);
    if (!strcmp(what, "reason")) {
        static struct txos_abort abort;
        abort.size = sizeof abort;
        if (txos_abort_reason(&abort) != 0 || (int)abort.reason != atoi(one))
            return errno = EINVAL, -1;
        return 0;
    }
    return errno = ENOSYS, -1;
}

int main(int argc, char **argv)
{
    static volatile int attempt, begun;

    for (volatile int i = 1; i < argc; i++) {
        static char text[1024], *error, *one, *two;
        int done;

        snprintf(text, sizeof text, "%s", argv[i]);
        if ((error = strchr(text, '!')))
            *error++ = 0;
        one = strchr(text, '=') ?: "";
        if (*one)
            *one++ = 0;
        two = strchr(one, ':') ?: "";
        if (*two)
            *two++ = 0;
        if (!strcmp(text, "begin")) {
            int flags = flags_of(one);
            for (char *at = two; *at; at++)
                *at = *at == '+' ? '\n' : *at;
            begun = i;
            done = flags & TX_AFTER ? sys_xbegin(flags, two) : sys_xbegin(flags, (uint64_t)1);
            /* Perhaps once more. */
            i = begun;
            if (done > 0)
                attempt = done, done = 0;
            /* What the error is of the first time. */
            error = strchr(argv[i], '!');
            error = error ? error + 1 : NULL;
        } else
            done = step(text, one, two);
        if (error ? done != -1 || strcmp(strerrorname_np(errno) ?: "", error) : done != 0)
            fail(argv[i]);
    }
    printf("%d\n%s\n", attempt, txos_strerror());
    return 0;
}
