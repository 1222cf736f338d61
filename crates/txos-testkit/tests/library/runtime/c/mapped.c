/* What a program has mapped to memory, or locked, since before a transaction; where standard error leads to a file; terminals; a single look. One scenario for
 * each argument; each exits with 0 if all is as the documentation says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define SIZE 8192

static int make(const char *name) {
    char bytes[SIZE];
    memset(bytes, 'a', sizeof bytes);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, bytes, sizeof bytes) == SIZE);
    return fd;
}

static char first(const char *name) {
    char byte = 0;
    int fd = open(name, O_RDONLY);
    CHECK(fd >= 0 && read(fd, &byte, 1) == 1 && close(fd) == 0);
    return byte;
}

/* Whether a transaction that changes a file in two places commits; if not, because of what can't be part of it. */
static int commits(int fd) {
    CHECK(sys_xbegin(0) == 0);
    ssize_t one = pwrite(fd, "b", 1, 0), two = pwrite(fd, "b", 1, 5000);
    if (sys_xend() == 0) {
        CHECK(one == 1 && two == 1);
        return 1;
    }
    struct txos_abort why = {.size = sizeof why};
    CHECK(errno == ENOTSUP && txos_abort_reason(&why) == 0 && why.reason == TXOS_UNSUPPORTED);
    CHECK(strstr(txos_strerror(), "mapped to memory since before"));
    return 0;
}

/* A database that reads by a mapping and writes by calls. */
static void reads(void) {
    int fd = make("data");
    CHECK(mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
    CHECK(!commits(fd) && first("data") == 'a');
    /* It stays so. */
    CHECK(!commits(fd) && first("data") == 'a');
}

/* One that has its locks and its index in another file. */
static void locks(void) {
    int data = make("data"), index = make("index");
    CHECK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, index, 0) != MAP_FAILED);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    /* Who only reads may take its locks. */
    char byte;
    CHECK(sys_xbegin(0) == 0 && fcntl(index, F_SETLK, &lock) == 0 && pread(data, &byte, 1, 0) == 1);
    CHECK(pread(data, &byte, 1, 5000) == 1 && sys_xend() == 0);
    CHECK(sys_xbegin(0) == 0 && fcntl(index, F_SETLK, &lock) == 0);
    CHECK(pwrite(data, "b", 1, 0) == -1 && pwrite(data, "b", 1, 5000) == -1);
    CHECK(sys_xend() == -1 && errno == ENOTSUP && first("data") == 'a');
}

/* Mapped within, privately, or not at all. */
static void others(void) {
    int fd = make("private");
    CHECK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) != MAP_FAILED);
    CHECK(commits(fd) && first("private") == 'b');
    fd = make("plain");
    CHECK(commits(fd) && first("plain") == 'b');
    make("within");
    CHECK(sys_xbegin(0) == 0);
    CHECK((fd = open("within", O_RDWR)) >= 0);
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED && pwrite(fd, "b", 1, 0) == 1 && at[0] == 'b');
    at[1] = 'c';
    CHECK(sys_xend() == 0 && first("within") == 'b');
}

/* The library warns, and the program writes to standard error: both are there, and nobody is in the other's way. */
static void warned(void) {
    CHECK(sys_xbegin(0) == 0);
    fprintf(stderr, "within\n");
    int fd = open("/dev/null", O_WRONLY);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1);
    fd = open(getenv("OUTSIDE"), O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1);
    make("made");
    CHECK(sys_xend() == 0);
    CHECK(sys_xbegin(0) == 0);
    fprintf(stderr, "aborted\n");
    sys_xabort(1);
}

/* What a child writes to its terminal ends when that is closed. */
static void terminal(void) {
    char text[100];
    int master;
    CHECK(sys_xbegin(0) == 0);
    pid_t child = forkpty(&master, NULL, NULL, NULL);
    CHECK(child >= 0);
    if (child == 0) {
        if (write(1, "said", 4) != 4)
            _exit(1);
        _exit(4);
    }
    CHECK(read(master, text, sizeof text) == 4 && !memcmp(text, "said", 4));
    CHECK(read(master, text, sizeof text) == -1 && errno == EIO);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 4);
    CHECK(close(master) == 0 && sys_xend() == 0);
}

/* A transaction of a single look, at something that nobody has to do with. */
static void look(void) {
    struct stat stat_;
    CHECK(sys_xbegin(0) == 0 && stat(".", &stat_) == 0 && sys_xend() == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    if (!strcmp(argv[1], "look"))
        look();
    else if (!strcmp(argv[1], "terminal"))
        terminal();
    else if (!strcmp(argv[1], "reads"))
        reads();
    else if (!strcmp(argv[1], "locks"))
        locks();
    else if (!strcmp(argv[1], "others"))
        others();
    else
        warned();
    return 0;
}
