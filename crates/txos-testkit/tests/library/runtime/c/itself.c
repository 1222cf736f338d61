/* What the C library does for itself while a program is in a transaction: it takes and gives memory, loads libraries, reads what
 * it needs of the system, and logs. One scenario for each pair of arguments: what is done, and how the transaction ends. Each exits with
 * 0 if the process goes on as it is to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <iconv.h>
#include <locale.h>
#include <malloc.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "check.h"
#include "files.h"

/* In debug builds of the library: a conflict that the transaction learns of by a later call. */
#define LOSE_LATER ioctl(-1, LOSE + 1)

/* What no checkpoint puts back. */
static struct {
    int attempts, held;
} *outside;

static const char *how;

static int is(const char *what) {
    return strcmp(how, what) == 0;
}

/* Does something in a transaction that ends as the arguments say, and answers whether it has committed. */
static int in_transaction(void (*work)(void)) {
    int flags = (strstr(how, "again") ? TX_RESTART : 0) | (strstr(how, "kept") ? TX_CHECKPOINT : 0);
    outside->attempts = 0;
    long begun = sys_xbegin(flags);
    if (begun == -1) {
        /* With memory put back this is where an abort leads to. */
        CHECK(errno == ECANCELED && is("kept-aborted") && outside->attempts == 1);
        return 0;
    }
    outside->attempts++;
    put("changed", how, O_CREAT);
    /* The conflict is there before, and it is the work that learns of it. */
    if (strstr(how, "within") && outside->attempts == 1)
        CHECK(LOSE_LATER == 0);
    work();
    if (strstr(how, "again") && outside->attempts == 1) {
        ioctl(-1, LOSE);
        CHECK(!"it begins again by then");
    }
    if (strstr(how, "aborted")) {
        sys_xabort(1);
        CHECK(is("aborted"));
        return 0;
    }
    CHECK(sys_xend() == 0);
    CHECK(outside->attempts == (strstr(how, "again") ? 2 : 1));
    return 1;
}

/* Begins and ends: the process is whole. */
static void goes_on(int committed) {
    CHECK(holds("changed", how) == committed);
    how = "committed";
    CHECK(sys_xbegin(TX_STRICT) == 0);
    put("changed", "later", O_CREAT | O_TRUNC);
    CHECK(sys_xend() == 0 && holds("changed", "later") && unlink("changed") == 0);
}

/* ---- the allocator ---- */

enum { BLOCKS = 400 };

static struct {
    unsigned char *at;
    size_t size;
} blocks[BLOCKS];

static void fill(int i) {
    if (blocks[i].at)
        memset(blocks[i].at, i, blocks[i].size);
}

static void check(int i) {
    for (size_t n = 0; blocks[i].at && n < blocks[i].size; n++)
        CHECK(blocks[i].at[n] == (unsigned char)i);
}

/* Blocks of every size come, grow and go. */
static void takes_memory(void) {
    static unsigned seed = 1;
    for (int n = 0; n < 4 * BLOCKS; n++) {
        int i = rand_r(&seed) % BLOCKS;
        check(i);
        if (blocks[i].at && rand_r(&seed) % 2) {
            free(blocks[i].at);
            blocks[i].at = NULL;
            continue;
        }
        size_t size = 1UL << (rand_r(&seed) % 19);
        size += rand_r(&seed) % size;
        unsigned char *at = realloc(blocks[i].at, size);
        CHECK(at != NULL);
        if (blocks[i].at) {
            size_t kept = size < blocks[i].size ? size : blocks[i].size;
            for (size_t b = 0; b < kept; b++)
                CHECK(at[b] == (unsigned char)i);
        }
        blocks[i].at = at;
        blocks[i].size = size;
        fill(i);
        if (n % 400 == 0)
            malloc_trim(0);
    }
}

/* Frees so much in an arena of a thread's own that the C library gives some of it back. */
static void gives_memory_back(void) {
    static char *volatile many[200];
    for (int i = 0; i < 200; i++)
        CHECK((many[i] = malloc(8000)) != NULL);
    if (strstr(how, "within") && outside->attempts == 1)
        CHECK(LOSE_LATER == 0);
    for (int i = 0; i < 200; i++)
        free(many[i]);
}

static void *in_an_arena(void *work) {
    void *own = malloc(100);
    goes_on(in_transaction(work));
    free(own);
    /* The arena's lock is nobody's. */
    takes_memory();
    return NULL;
}

static atomic_int is_over;

/* Another thread takes memory meanwhile, in an arena that it gets then. */
static void *takes_meanwhile(void *unused) {
    (void)unused;
    while (!is_over) {
        char *some = malloc(5000), *large = malloc(200000);
        CHECK(some && large);
        memset(some, 1, 5000);
        memset(large, 1, 200000);
        free(some);
        free(large);
    }
    return NULL;
}

static void allocator(void) {
    pthread_t other;
    int alone = strstr(how, "kept") != NULL;
    struct mallinfo2 before, after;
    takes_memory();
    if (!alone)
        CHECK(pthread_create(&other, NULL, takes_meanwhile, NULL) == 0);
    before = mallinfo2();
    int committed = in_transaction(takes_memory);
    after = mallinfo2();
    if (alone && !committed)
        CHECK(before.uordblks == after.uordblks && before.hblkhd == after.hblkhd);
    for (int i = 0; i < BLOCKS; i++)
        check(i);
    takes_memory();
    goes_on(committed);
    is_over = 1;
    CHECK(alone || pthread_join(other, NULL) == 0);
}

static void arena(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_an_arena, gives_memory_back) == 0 && pthread_join(thread, NULL) == 0);
}

/* ---- the loader ---- */

static void *library;

static int answer_of(void *library) {
    int (*one)(void) = (int (*)(void))dlsym(library, "one");
    CHECK(one != NULL);
    return one();
}

/* It needs a second one, which is found where the first one is; its constructor makes a file. */
static void loads(void) {
    library = dlopen("lib/libone.so", RTLD_LAZY);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL && answer_of(library) == 1);
}

static void loads_and_unloads(void) {
    loads();
    CHECK(dlclose(library) == 0);
    library = NULL;
}

static int is_loaded(void) {
    void *there = dlopen("lib/libone.so", RTLD_LAZY | RTLD_NOLOAD);
    return there != NULL && dlclose(there) == 0;
}

static void *loads_as_well(void *unused) {
    loads_and_unloads();
    return unused;
}

/* The locks of the loader are nobody's. */
static void another_thread_loads(void) {
    pthread_t other;
    CHECK(pthread_create(&other, NULL, loads_as_well, NULL) == 0 && pthread_join(other, NULL) == 0);
}

static void loader(void) {
    int committed = in_transaction(loads);
    /* Loaded as ever, or cleanly not: by memory that was put back. */
    CHECK(is_loaded() == (committed || !strstr(how, "kept")));
    /* What the constructor does is part of the transaction; of the one, that is, by which it was run. */
    CHECK(is_there("constructed") == (committed && (!strstr(how, "again") || strstr(how, "kept"))));
    if (!is_loaded())
        loads();
    else
        CHECK(answer_of(library) == 1);
    /* Memory that is not put back counts what each attempt has loaded. */
    for (int i = 0; i < 2 && is_loaded(); i++)
        CHECK(dlclose(library) == 0);
    CHECK(!is_loaded());
    unlink("constructed");
    goes_on(committed);
    loads_and_unloads();
    another_thread_loads();
    CHECK(is_there("constructed") && unlink("constructed") == 0);
}

static void unloader(void) {
    int committed = in_transaction(loads_and_unloads);
    CHECK(!is_loaded() && is_there("constructed") == committed);
    unlink("constructed");
    goes_on(committed);
    loads_and_unloads();
    CHECK(unlink("constructed") == 0);
}

/* One that only the transaction has. */
static void loads_own(void) {
    CHECK(rename("lib/libone.so", "lib/libthree.so") == 0);
    CHECK(dlopen("lib/libone.so", RTLD_LAZY) == NULL);
    void *own = dlopen("lib/libthree.so", RTLD_LAZY);
    CHECK(own != NULL && answer_of(own) == 1 && dlclose(own) == 0);
    CHECK(rename("lib/libthree.so", "lib/libone.so") == 0);
    CHECK(link("lib/other", "lib/new.so") == 0);
    own = dlopen("lib/new.so", RTLD_LAZY);
    CHECK(own != NULL && answer_of(own) == 7 && dlclose(own) == 0);
    /* By a link, and by the directory above one. */
    CHECK(symlink("lib", "way") == 0);
    own = dlopen("way/../way/other", RTLD_LAZY);
    CHECK(own != NULL && answer_of(own) == 7 && dlclose(own) == 0);
    CHECK(unlink("way") == 0 && mkdir("way", 0700) == 0 && rename("lib/other", "way/other") == 0);
    CHECK(dlopen("lib/other", RTLD_LAZY) == NULL);
    own = dlopen("way/other", RTLD_LAZY);
    CHECK(own != NULL && answer_of(own) == 7 && dlclose(own) == 0);
    CHECK(rename("way/other", "lib/other") == 0 && rmdir("way") == 0 && unlink("lib/new.so") == 0);
    unlink("constructed");
}

static void own(void) {
    goes_on(in_transaction(loads_own));
}

/* What is read as part of the transaction: it loads the library, or learns of the conflict only when the linker is done. */
static void loads_elsewhere(void) {
    CHECK(chdir("lib") == 0);
    if (is("again-midway") && outside->attempts == 1)
        CHECK(LOSE_LATER == 0);
    void *one = dlopen("./libone.so", RTLD_LAZY);
    CHECK((one == NULL) == (is("again-midway") && outside->attempts == 1));
    if (one)
        CHECK(answer_of(one) == 1 && dlclose(one) == 0 && unlink("constructed") == 0);
    CHECK(chdir("..") == 0);
}

static void elsewhere(void) {
    int committed = in_transaction(loads_elsewhere);
    another_thread_loads();
    CHECK(is_there("constructed") && unlink("constructed") == 0);
    goes_on(committed);
}

/* In a transaction that has lost. */
static void lost(void) {
    CHECK(sys_xbegin(is("threads") ? TX_THREADS : 0) == 0);
    put("changed", "x", O_CREAT);
    CHECK(ioctl(-1, LOSE) == -1 && errno == ECANCELED);
    loads_and_unloads();
    CHECK(sys_xend() == -1 && errno == ECANCELED && !is_there("constructed"));
    goes_on(0);
    another_thread_loads();
    CHECK(is_there("constructed") && unlink("constructed") == 0);
}

/* By a thread that the transaction has made, which is in it. */
static void by_a_member(void) {
    CHECK(sys_xbegin(TX_THREADS) == 0);
    another_thread_loads();
    CHECK(is_there("constructed"));
    sys_xabort(1);
    CHECK(!is_there("constructed"));
    goes_on(0);
}

/* Somebody outside changes what the loader has read meanwhile, by the command that is the third argument. */
static const char *command;
static int asked[2], done[2];

static void somebody_outside(void) {
    char byte;
    CHECK(pipe(asked) == 0 && pipe(done) == 0);
    if (fork() == 0) {
        close(asked[1]);
        while (read(asked[0], &byte, 1) == 1) {
            int status = system(command);
            byte = (char)WEXITSTATUS(status);
            CHECK(write(done[1], &byte, 1) == 1);
        }
        _exit(0);
    }
}

static void loads_beside(void) {
    char byte = 0;
    loads();
    long id = strstr(how, "kept") ? 0 : sys_xpause();
    CHECK(write(asked[1], "x", 1) == 1 && read(done[0], &byte, 1) == 1);
    if (id)
        CHECK(sys_xresume(id) == 0);
    CHECK(byte == 0);
}

static void beside(void) {
    somebody_outside();
    goes_on(in_transaction(loads_beside));
}

/* The same of one that is found by the cache of libraries. */
static void loads_cached_beside(void) {
    void *cached = dlopen("libanl.so.1", RTLD_LAZY);
    CHECK(cached != NULL && dlclose(cached) == 0);
    loads_beside();
}

static void cached(void) {
    somebody_outside();
    goes_on(in_transaction(loads_cached_beside));
}

/* ---- what it reads of the system ---- */

static void looks_up(void) {
    char in[] = "\xe4", out[8], *from = in, *to = out;
    size_t left = 1, room = sizeof out;
    void *frames[8];
    struct passwd *root = getpwnam("root");
    CHECK(root != NULL && root->pw_uid == 0);
    CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL || setlocale(LC_ALL, "C.utf8") != NULL);
    iconv_t made = iconv_open("UTF-16LE", "ISO-8859-15");
    CHECK(made != (iconv_t)-1);
    CHECK(iconv(made, &from, &left, &to, &room) == 0 && room == 6 && out[0] == '\xe4');
    CHECK(iconv_close(made) == 0);
    /* It loads the library that unwinds. */
    CHECK(backtrace(frames, 8) > 1);
}

static void system_(void) {
    int committed = in_transaction(looks_up);
    CHECK((strcmp(setlocale(LC_ALL, NULL), "C") != 0) == (committed || !strstr(how, "kept")));
    goes_on(committed);
    looks_up();
    goes_on(in_transaction(looks_up));
}

/* ---- logs ---- */

static int log_socket, log_file;

static void writes_logs(void) {
    CHECK(write(log_file, "line\n", 5) == 5);
    syslog(LOG_INFO, "line");
    fprintf(stderr, "line\n");
}

/* How often it says so. */
static int lines(char *text) {
    int count = 0;
    for (char *at = text; (at = strstr(at, "line")); at += 4)
        count++;
    return count;
}

static int logged(void) {
    char text[400];
    int count = 0;
    ssize_t n;
    while ((n = recv(log_socket, text, sizeof text - 1, MSG_DONTWAIT)) > 0) {
        text[n] = 0;
        count += lines(text);
    }
    return count;
}

static int in_file(void) {
    char text[400] = "";
    int fd = open("log", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) >= 0 && close(fd) == 0);
    return lines(text);
}

static void logs(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    log_socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(bind(log_socket, (void *)&at, sizeof at) == 0);
    log_file = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(log_file >= 0);
    int committed = in_transaction(writes_logs);
    CHECK(logged() == committed && in_file() == committed);
    goes_on(committed);
    /* What has the number now of a connection that the abort has closed is nobody's but ours. */
    int mine[8];
    for (int i = 0; i < 8; i++)
        CHECK((mine[i] = open("mine", O_RDWR | O_CREAT, 0600)) >= 0);
    writes_logs();
    CHECK(logged() == 1 && in_file() == committed + 1);
    for (int i = 0; i < 8; i++) {
        struct stat s;
        CHECK(fstat(mine[i], &s) == 0 && S_ISREG(s.st_mode) && close(mine[i]) == 0);
    }
    CHECK(unlink("mine") == 0);
    goes_on(in_transaction(writes_logs));
    CHECK(logged() == 1);
}

static void appends(const char *word) {
    int fd = open("log", O_WRONLY | O_APPEND);
    CHECK(fd >= 0 && write(fd, word, strlen(word)) == (ssize_t)strlen(word) && close(fd) == 0);
}

/* A log to which somebody else appends meanwhile: a conflict, unless the line is no part of the transaction. */
static void appended(void) {
    log_file = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(log_file >= 0);
    for (int paused = 0; paused < 2; paused++) {
        CHECK(sys_xbegin(0) == 0);
        put("changed", "x", O_CREAT);
        long id = paused ? sys_xpause() : 0;
        CHECK(write(log_file, "line\n", 5) == 5);
        if (!paused)
            id = sys_xpause();
        CHECK(id > 0);
        appends("other\n");
        CHECK(sys_xresume(id) == 0);
        int ended = sys_xend();
        CHECK(paused ? ended == 0 : ended == -1 && errno == ECANCELED);
        CHECK(is_there("changed") == paused && holds("log", paused ? "other\nline\nother\n" : "other\n"));
    }
    CHECK(unlink("changed") == 0 && unlink("log") == 0);
}

/* ---- exceptions ---- */

/* A library in C++ throws for the first time. */
static void throws(void) {
    void *thrower = dlopen("lib/libthrow.so", RTLD_LAZY);
    CHECK(thrower != NULL);
    int (*thrown)(int) = (int (*)(int))dlsym(thrower, "thrown");
    CHECK(thrown != NULL && thrown(7) == 7);
}

static void exceptions(void) {
    goes_on(in_transaction(throws));
    throws();
    goes_on(in_transaction(throws));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"allocator", allocator}, {"arena", arena}, {"loader", loader}, {"unloader", unloader},
               {"own", own}, {"elsewhere", elsewhere}, {"lost", lost}, {"member", by_a_member}, {"beside", beside}, {"cached", cached}, {"system", system_}, {"logs", logs}, {"appended", appended}, {"exceptions", exceptions}};
    if (argc < 3)
        return 99;
    how = argv[2];
    command = argv[3];
    outside = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(outside != MAP_FAILED && madvise(outside, 4096, MADV_DONTFORK) == 0);
    /* What the C library keeps for the library in the program's heap is made by the first one. */
    CHECK(sys_xbegin(0) == 0 && sys_xend() == 0);
    /* What is locked for ever is found here. */
    alarm(30);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(argv[1], all[i].name) == 0) {
            all[i].run();
            return 0;
        }
    return 99;
}
