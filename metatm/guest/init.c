/*
 * The first and only program of the guest: runs one workload, which the kernel's command line names
 * (workload=NAME size=N), prints one line of figures, and powers off.
 *
 * The workloads are those of Ramadan et al. (IEEE Micro 2008), as near as a machine without a
 * distribution comes to them. What each does stands above it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long cpus;

static void off(int failed)
{
    fflush(stdout);
    sync();
    /* Without a message the host sees that no figures were printed. */
    if (failed)
        printf("FAILED\n");
    fflush(stdout);
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}

static void fail(const char *what)
{
    printf("workload: %s: %s\n", what, strerror(errno));
    off(1);
}

static void pin(long cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % cpus, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        fail(path);
    close(fd);
}

static void path(char *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(to, 256, format, args);
    va_end(args);
}

/* A file of so many bytes, none of them the same for long. */
static void fill(const char *name, long bytes, unsigned seed)
{
    static char block[4096];
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        fail(name);
    for (unsigned i = 0; i < sizeof block; i++)
        block[i] = ' ' + (seed = seed * 1103515245 + 12345) / 65536 % 90;
    while (bytes > 0) {
        long n = bytes < (long)sizeof block ? bytes : (long)sizeof block;
        if (write(fd, block, n) != n)
            fail(name);
        bytes -= n;
    }
    close(fd);
}

static long search(const char *name, char wanted)
{
    static char block[4096];
    long found = 0, n;
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        fail(name);
    while ((n = read(fd, block, sizeof block)) > 0)
        for (long i = 0; i < n; i++)
            found += block[i] == wanted;
    close(fd);
    return found;
}

/* Everything below a directory: looked at, and read if `wanted` is a character. */
static long walk(const char *dir, char wanted)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    long found = 0;
    if (!d)
        fail(dir);
    while ((e = readdir(d))) {
        char name[256];
        struct stat s;
        if (e->d_name[0] == '.')
            continue;
        path(name, "%s/%s", dir, e->d_name);
        if (lstat(name, &s) < 0)
            fail(name);
        if (S_ISDIR(s.st_mode))
            found += walk(name, wanted);
        else
            found += wanted ? search(name, wanted) : 1;
    }
    closedir(d);
    return found;
}

/* counter: one thread for each processor adds to a counter behind a spinlock. */
static void counter(long size, int me)
{
    char text[32];
    int fd = open("/proc/txcounter", O_WRONLY);
    pin(me);
    snprintf(text, sizeof text, "%ld", 20000 * size);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        fail("/proc/txcounter");
    close(fd);
}

/* The compiler (cc.c), and the one thing that it does not do itself. */
long cc_main(long argc, char **argv);

long sys(long number, long a, long b, long c, long d)
{
    long done = syscall(number, a, b, c, d);
    return done < 0 ? -errno : done;
}

/* Executes a program; its process. */
static pid_t start(const char *program, char **args)
{
    pid_t pid = fork();
    if (pid == 0) {
        execv(program, args);
        _exit(127);
    }
    return pid;
}

/* Executes a program, and waits; what it exits with. */
static int execute(const char *program, char **args)
{
    int status;
    waitpid(start(program, args), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

enum { SOURCES = 48, FUNCTIONS = 8, JOBS = 8, ROUNDS = 40 };

/* Writes a function to a source; what it returns for ROUNDS. */
static long function_of(FILE *f, int source, int number)
{
    static const char words[] = "the quick brown fox jumps over the lazy dog";
    unsigned r = source * 7919 + number * 104729 + 1;
    long a = r % 89 + 2, b = r / 89 % 1000, limit = 100000 + r % 50000, from = r % 20, table[16], sum = b;
    const char *word = words + from;
    long letters = sizeof words - 1 - from;
    fprintf(f,
            "/* Function %d of source %d: a sum over a table and the letters of a word. */\n"
            "long f%d_%d(long rounds)\n{\n    long table[16], i, sum = %ld;\n    char *word = \"%s\";\n\n"
            "    for (i = 0; i < TABLE; i++)\n        table[i] = i * %ld + %ld;\n    for (i = 0; i < rounds; i++) {\n"
            "        if ((sum ^ i) & 1) {\n            /* What was there is mixed with the table. */\n"
            "            sum = (sum * %ld + table[i & (TABLE - 1)]) %% LARGEST;\n        } else if (i %% 3 == 1) {\n"
            "            sum += word[i %% %ld] << 2;\n        } else {\n            sum = sum - (i & table[(i + 5) & 15]);\n        }\n"
            "        while (sum > %ld || sum < 0 - %ld)\n            sum = sum / 2;\n    }\n    return sum;\n}\n\n",
            number, source, source, number, b, word, a, b, a, letters, limit, limit);
    for (long i = 0; i < 16; i++)
        table[i] = i * a + b;
    for (long i = 0; i < ROUNDS; i++) {
        if ((sum ^ i) & 1)
            sum = (sum * a + table[i & 15]) % 1000003;
        else if (i % 3 == 1)
            sum += word[i % letters] << 2;
        else
            sum -= i & table[(i + 5) & 15];
        while (sum > limit || sum < -limit)
            sum /= 2;
    }
    return sum;
}

static FILE *source_file(const char *name)
{
    FILE *f = fopen(name, "w");
    if (!f)
        fail(name);
    return f;
}

static void pmake_prepare(long size)
{
    long sources = SOURCES * size;
    char name[256];
    mkdir("/tmp/project", 0755);
    FILE *header = source_file("/tmp/project/project.h"), *last;
    path(name, "/tmp/project/s%ld.c", sources);
    last = source_file(name);
    fprintf(header, "/* What all sources share. */\nenum { TABLE = 16, LARGEST = 1000003, ROUNDS = %d };\n\n", ROUNDS);
    fprintf(last, "#include \"project.h\"\n\nlong main(void)\n{\n");
    for (long s = 0; s < sources; s++) {
        path(name, "/tmp/project/s%ld.c", s);
        FILE *f = source_file(name);
        fprintf(f, "#include \"project.h\"\n\n");
        for (int n = 0; n < FUNCTIONS; n++) {
            fprintf(header, "long f%ld_%d(long rounds);\n", s, n);
            fprintf(last, "    if (f%ld_%d(ROUNDS) != %ld)\n        return 1;\n", s, n, function_of(f, s, n));
        }
        fclose(f);
    }
    fprintf(last, "    return 0;\n}\n");
    fclose(last);
    fclose(header);
}

/* pmake: as make -j 8: eight compilers at a time, each for one source; then their objects are linked, and the program must be right. */
static void pmake(long size, int me)
{
    long sources = SOURCES * size + 1, begun = 0, done = 0;
    char **link = calloc(sources + 4, sizeof *link);
    (void)me;
    link[0] = "cc";
    link[1] = "-l";
    link[2] = "/tmp/project/program";
    while (done < sources) {
        for (; begun < sources && begun - done < JOBS; begun++) {
            char source[256], object[256];
            path(source, "/tmp/project/s%ld.c", begun);
            path(object, "/tmp/project/s%ld.o", begun);
            link[3 + begun] = strdup(object);
            start("/init", (char *[]){"cc", source, object, NULL});
        }
        int status;
        if (wait(&status) < 0 || status)
            fail("cc");
        done++;
    }
    if (execute("/init", link) || execute(link[2], (char *[]){"program", NULL}))
        fail("the program that was built");
    _exit(0);
}

static int same_files(const char *a, const char *b)
{
    FILE *f = fopen(a, "r"), *g = fopen(b, "r");
    int c = 0, d = 0;
    long n = 0;
    while (f && g && c == d && c != EOF) {
        c = getc(f);
        d = getc(g);
        n++;
    }
    return f && g && c == d && n > 10000;
}

/* bootstrap: the compiler compiles itself, and what comes of it compiles it to the same bytes; sources that are none are refused. */
static void bootstrap(long size, int me)
{
    static const char *const wrong[] = {
        "long main(void) { return x; }", "long main(void) { 1 = 2; }", "long f(long a); long main(void) { return f(); }", "long main(", "char *s = \"",
        "#include \"nothing.h\"", "#define X 1", "long main(void) { break; }", "/*", "long f(void) {} long f(void) {}", "}", "long x[", "'",
    };
    (void)size, (void)me;
    if (execute("/init", (char *[]){"cc", "/cc.c", "/tmp/a.o", NULL}) ||
        execute("/init", (char *[]){"cc", "-l", "/tmp/a", "/tmp/a.o", NULL}) ||
        execute("/tmp/a", (char *[]){"cc", "/cc.c", "/tmp/b.o", NULL}) || !same_files("/tmp/a.o", "/tmp/b.o"))
        fail("the compiler's own source");
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put("/tmp/wrong.c", wrong[i]);
        if (execute("/init", (char *[]){"cc", "/tmp/wrong.c", "/tmp/wrong.o", NULL}) != 1)
            fail(wrong[i]);
    }
    put("/tmp/wrong.c", "long f(void); long main(void) { return f(); }");
    if (execute("/init", (char *[]){"cc", "/tmp/wrong.c", "/tmp/wrong.o", NULL}) != 0 ||
        execute("/init", (char *[]){"cc", "-l", "/tmp/wrong", "/tmp/wrong.o", NULL}) != 1 ||
        execute("/init", (char *[]){"cc", "-l", "/tmp/wrong", "/cc.c", NULL}) != 1)
        fail("what can't be linked");
}

static void interface(const char *name, const char *address)
{
    struct ifreq r = {0};
    struct sockaddr_in in = {.sin_family = AF_INET};
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    strncpy(r.ifr_name, name, IFNAMSIZ - 1);
    inet_aton(address, &in.sin_addr);
    memcpy(&r.ifr_addr, &in, sizeof in);
    if (ioctl(s, SIOCSIFADDR, &r) < 0)
        fail(name);
    inet_aton("255.255.255.0", &in.sin_addr);
    memcpy(&r.ifr_addr, &in, sizeof in);
    ioctl(s, SIOCSIFNETMASK, &r);
    r.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(s, SIOCSIFFLAGS, &r) < 0)
        fail(name);
    close(s);
}

/* Moves a network interface to the namespace of a process (RTM_NEWLINK with IFLA_NET_NS_PID). */
static void move_interface(const char *name, pid_t to)
{
    struct {
        struct { unsigned len; unsigned short type, flags; unsigned seq, pid; } header;
        struct { unsigned char family, pad; unsigned short type; int index; unsigned flags, change; } info;
        struct { unsigned short len, type; int value; } pid;
    } m = {0};
    int s = socket(AF_NETLINK, SOCK_RAW, 0);
    m.header.len = sizeof m;
    m.header.type = 16;
    m.header.flags = 1 | 4;
    m.info.index = if_nametoindex(name);
    m.pid.len = 8;
    m.pid.type = 19;
    m.pid.value = to;
    char answer[256];
    if (send(s, &m, sizeof m, 0) < 0 || recv(s, answer, sizeof answer, 0) < 20 || *(int *)(answer + 16) != 0)
        fail("moving eth1");
    close(s);
}

/* netcat: a stream over TCP, from one interface over the wire to the other, which is in a namespace of its own. */
static void netcat(long size)
{
    static char block[16384];
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(7)};
    int up[2], moved[2], done[2];
    char c = 0;
    if (pipe(up) < 0 || pipe(moved) < 0 || pipe(done) < 0)
        fail("pipe");
    interface("eth0", "10.0.0.1");
    pid_t pid = fork();
    if (pid == 0) {
        long n, all = 0;
        if (unshare(CLONE_NEWNET) < 0 || write(up[1], &c, 1) != 1 || read(moved[0], &c, 1) != 1)
            fail("a namespace");
        interface("eth1", "10.0.0.2");
        int s = socket(AF_INET, SOCK_STREAM, 0);
        inet_aton("10.0.0.2", &in.sin_addr);
        if (bind(s, (void *)&in, sizeof in) < 0 || listen(s, 1) < 0 || write(done[1], &c, 1) != 1)
            fail("listen");
        int fd = accept(s, NULL, NULL);
        while ((n = read(fd, block, sizeof block)) > 0)
            all += n;
        _exit(all != size * 2000000);
    }
    if (read(up[0], &c, 1) != 1)
        fail("a namespace");
    move_interface("eth1", pid);
    if (write(moved[1], &c, 1) != 1 || read(done[0], &c, 1) != 1)
        fail("a namespace");
    inet_aton("10.0.0.2", &in.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0), status;
    if (connect(s, (void *)&in, sizeof in) < 0)
        fail("connect");
    for (long left = size * 2000000; left > 0;) {
        long n = write(s, block, left < (long)sizeof block ? left : (long)sizeof block);
        if (n < 0)
            fail("write");
        left -= n;
    }
    close(s);
    waitpid(pid, &status, 0);
    if (status)
        fail("the stream");
}

/* mab: the phases of the modified Andrew benchmark but the compilation: directories, copies, looks, reads. */
static void mab(long size, int me)
{
    char dir[256], name[256];
    path(dir, "/tmp/mab%d", me);
    mkdir(dir, 0755);
    for (int d = 0; d < 5 * size; d++) {
        path(name, "%s/d%d", dir, d);
        mkdir(name, 0755);
        for (int f = 0; f < 14; f++) {
            path(name, "%s/d%d/f%d", dir, d, f);
            fill(name, 3000, me + f);
        }
    }
    for (int i = 0; i < 3; i++)
        walk(dir, 0);
    walk(dir, 'x');
}

/* configure: what such a script does: a process for each question, with small files. */
static void configure(long size, int me)
{
    char name[256];
    for (int i = 0; i < 25 * size; i++) {
        path(name, "/tmp/conf%d-%d.c", me, i);
        put(name, "int main(void) { return 0; }\n");
        for (int j = 0; j < 2; j++) {
            pid_t pid = fork();
            if (pid == 0) {
                execl("/init", "true", NULL);
                _exit(127);
            }
            int status;
            waitpid(pid, &status, 0);
        }
        search(name, 'm');
        unlink(name);
    }
}

/* find: all look for something in one tree of 29 directories and 968 files. */
static void find_prepare(long size)
{
    char name[256];
    (void)size;
    mkdir("/tmp/tree", 0755);
    for (int d = 0; d < 29; d++) {
        path(name, "/tmp/tree/d%d", d);
        mkdir(name, 0755);
    }
    for (int f = 0; f < 968; f++) {
        path(name, "/tmp/tree/d%d/f%d", f % 29, f);
        fill(name, 8000, f);
    }
}

static void find(long size, int me)
{
    for (int i = 0; i < size; i++)
        walk("/tmp/tree", 'a' + me);
}

/* dpunish: names are made, linked, moved and removed in one directory by all. */
static void dpunish(long size, int me)
{
    unsigned r = me + 1;
    for (int i = 0; i < 400 * size; i++) {
        char a[256], b[256];
        r = r * 1103515245 + 12345;
        path(a, "/tmp/p%u", r / 65536 % 50);
        path(b, "/tmp/p%u", r / 1024 % 50);
        switch (r / 7 % 5) {
        case 0: close(open(a, O_CREAT | O_WRONLY, 0644)); break;
        case 1: if (link(a, b) < 0) {} break;
        case 2: rename(a, b); break;
        case 3: unlink(a); break;
        default: mkdir(b, 0755); rmdir(b);
        }
    }
}

/* bonnie: as bonnie++ for a Web cache, on the disk: a file is written, rewritten, read in order and at random; then small files. */
static void bonnie_prepare(long size)
{
    (void)size;
    mkdir("/tmp/disk", 0755);
    if (mount("/dev/vda", "/tmp/disk", "ext2", 0, NULL) < 0)
        fail("/dev/vda (the workload bonnie needs a disk with an ext2 file system)");
}

static void bonnie(long size, int me)
{
    static char block[8192];
    const long blocks = 8 * size, files = 16 * size;
    char dir[256], name[256];
    unsigned r = me + 1;
    struct stat s;
    path(dir, "/tmp/disk/b%d", me);
    mkdir(dir, 0755);
    path(name, "%s/large", dir);
    fill(name, blocks * sizeof block, me);
    int fd = open(name, O_RDWR);
    if (fd < 0)
        fail(name);
    for (long i = 0; i < 5 * blocks; i++) {
        /* Each block once in order, and then four times as many at random, of which one in ten is written. */
        r = r * 1103515245 + 12345;
        long at = (i < blocks ? i : r / 65536 % blocks) * (long)sizeof block;
        if (pread(fd, block, sizeof block, at) != sizeof block)
            fail(name);
        block[r / 65536 % sizeof block]++;
        if ((i < blocks || r / 256 % 10 == 0) && pwrite(fd, block, sizeof block, at) != sizeof block)
            fail(name);
    }
    if (fsync(fd) < 0)
        fail(name);
    close(fd);
    search(name, 'a');
    for (long i = 0; i < files; i++) {
        path(name, "%s/f%ld", dir, i);
        fill(name, 1000, i);
    }
    for (long i = 0; i < files; i++) {
        path(name, "%s/f%ld", dir, i * 7 % files);
        if (stat(name, &s) < 0 || s.st_size != 1000 || unlink(name) < 0)
            fail(name);
    }
}

static void times_now(long *to)
{
    char line[512];
    long nice, system, irq[2], idle, user, wait;
    FILE *f = fopen("/proc/stat", "r");
    if (!f || !fgets(line, sizeof line, f) ||
        sscanf(line, "cpu %ld %ld %ld %ld %ld %ld %ld", &user, &nice, &system, &idle, &wait, irq, irq + 1) != 7)
        fail("/proc/stat");
    fclose(f);
    to[0] = user + nice;
    to[1] = system + irq[0] + irq[1];
    to[2] = idle + wait;
}

struct workload { const char *name; void (*run)(long, int); void (*prepare)(long); int processes; };

static const struct workload workloads[] = {
    {"counter", counter, NULL, 0}, {"pmake", pmake, pmake_prepare, 1}, {"mab", mab, NULL, 16},
    {"configure", configure, NULL, 8}, {"find", find, find_prepare, 8}, {"dpunish", dpunish, NULL, 8},
    {"bonnie", bonnie, bonnie_prepare, 8}, {"bootstrap", bootstrap, NULL, 1},
};

int main(int argc, char **argv)
{
    static char line[4096];
    char name[64] = "none";
    long size = 1;
    if (strcmp(argv[0], "cc") == 0)
        return cc_main(argc, argv);
    if (getpid() != 1)
        return 0;
    mount("proc", "/proc", "proc", 0, NULL);
    mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int fd = open("/proc/cmdline", O_RDONLY);
    if (fd < 0 || read(fd, line, sizeof line - 1) < 0)
        fail("/proc/cmdline");
    char *at = strstr(line, "workload=");
    if (at)
        sscanf(at, "workload=%63s", name);
    at = strstr(line, "size=");
    if (at)
        sscanf(at, "size=%ld", &size);

    const struct workload *w = NULL;
    for (unsigned i = 0; i < sizeof workloads / sizeof *workloads; i++)
        if (strcmp(workloads[i].name, name) == 0)
            w = &workloads[i];
    if (!w && strcmp(name, "netcat") != 0) {
        printf("workload: there is no %s; up with %ld processors\n", name, cpus);
        off(0);
    }
    if (w && w->prepare)
        w->prepare(size);
    struct timespec from, to;
    long before[3], after[3];
    times_now(before);
    clock_gettime(CLOCK_MONOTONIC, &from);
    printf("BEGIN %s\n", name);
    fflush(stdout);
    if (w) {
        int processes = w->processes ? w->processes : (int)cpus;
        for (int i = 0; i < processes; i++)
            if (fork() == 0) {
                w->run(size, i);
                _exit(0);
            }
        int status;
        while (wait(&status) > 0)
            if (status)
                fail(name);
    } else {
        netcat(size);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    times_now(after);
    long us = (to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000;
    if (w && w->run == counter) {
        char text[32] = "";
        fd = open("/proc/txcounter", O_RDONLY);
        if (fd < 0 || read(fd, text, sizeof text - 1) < 0 || atol(text) != cpus * 20000 * size) {
            printf("workload: the counter is wrong: %s", text);
            off(1);
        }
    }
    printf("\nEND %s us=%ld user=%ld system=%ld idle=%ld\n", name, us, after[0] - before[0], after[1] - before[1],
           after[2] - before[2]);
    off(0);
}
