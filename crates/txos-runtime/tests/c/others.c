/* File handles, and what other processes have: one scenario for each argument. Each runs in a process and a directory of its own,
 * and exits with 0 if all is as txos.h says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "files.h"

/* --- File handles --- */

struct handle {
    struct file_handle head;
    char bytes[MAX_HANDLE_SZ];
};

static int name(const char *path, struct handle *handle, int flags) {
    int mount;
    handle->head.handle_bytes = MAX_HANDLE_SZ;
    return name_to_handle_at(AT_FDCWD, path, &handle->head, &mount, flags);
}

static int open_it(struct handle *handle, int flags) {
    int mount = open(".", O_RDONLY | O_DIRECTORY);
    int fd = open_by_handle_at(mount, &handle->head, flags), error = errno;
    CHECK(close(mount) == 0);
    errno = error;
    return fd;
}

static int reads(int fd, const char *text) {
    char got[64] = {0};
    return fd >= 0 && pread(fd, got, sizeof got - 1, 0) >= 0 && strcmp(got, text) == 0;
}

/* What the transaction has done to an object is what a handle of it leads to. */
static void handles(void) {
    struct handle old, moved, gone, twice, link, dir, other;
    const char *files[] = {"old", "moved", "gone", "twice"};
    for (int i = 0; i < 4; i++)
        put(files[i], "stable", O_CREAT);
    CHECK(linkat(AT_FDCWD, "twice", AT_FDCWD, "twin", 0) == 0);
    CHECK(symlink("old", "link") == 0 && mkdir("dir", 0755) == 0);
    for (int commits = 0; commits < 2; commits++) {
        CHECK(sys_xbegin(0) == 0);
        CHECK(name("old", &old, 0) == 0 && name("moved", &moved, 0) == 0 && name("gone", &gone, 0) == 0);
        CHECK(name("twice", &twice, 0) == 0 && name("dir", &dir, 0) == 0);
        /* A link, and what it leads to. */
        CHECK(name("link", &link, 0) == 0 && name("link", &other, AT_SYMLINK_FOLLOW) == 0);
        CHECK(other.head.handle_bytes == old.head.handle_bytes && memcmp(other.bytes, old.bytes, old.head.handle_bytes) == 0);
        CHECK(open_it(&link, O_RDONLY) == -1 && errno == ELOOP);
        int fd = open_it(&link, O_PATH | O_NOFOLLOW);
        CHECK(fd >= 0 && close(fd) == 0);
        /* Written: by its handle, what is written. No new handle is given of it. */
        fd = open_it(&old, O_RDWR);
        CHECK(reads(fd, "stable") && pwrite(fd, "inside", 6, 0) == 6 && close(fd) == 0);
        fd = open_it(&old, O_RDONLY | O_NOFOLLOW);
        CHECK(reads(fd, "inside") && close(fd) == 0 && holds("old", "inside"));
        CHECK(name("old", &other, 0) == -1 && errno == EOPNOTSUPP);
        /* Made: none. */
        put("new", "x", O_CREAT | O_EXCL);
        CHECK(name("new", &other, 0) == -1 && errno == EOPNOTSUPP);
        /* Renamed: it is the same object. */
        CHECK(rename("moved", "there") == 0);
        fd = open_it(&moved, O_RDONLY);
        CHECK(reads(fd, "stable") && close(fd) == 0);
        CHECK(name("there", &other, 0) == 0 && memcmp(other.bytes, moved.bytes, moved.head.handle_bytes) == 0);
        /* Replaced and removed: it is there no more, though it still is outside. */
        put("another", "another", O_CREAT);
        CHECK(rename("another", "gone") == 0 && open_it(&gone, O_RDONLY) == -1 && errno == ESTALE);
        CHECK(holds("gone", "another"));
        /* One of two names is gone, and the other is not known. */
        CHECK(unlink("twice") == 0 && open_it(&twice, O_RDONLY) == -1 && errno == EOPNOTSUPP);
        /* A directory: what is in it is what the transaction sees. */
        put("dir/in", "x", O_CREAT);
        fd = open_it(&dir, O_RDONLY | O_DIRECTORY);
        CHECK(fd >= 0 && faccessat(fd, "in", F_OK, 0) == 0);
        CHECK(open_it(&dir, O_RDWR) == -1 && errno == EISDIR);
        /* By a descriptor. */
        int mount;
        other.head.handle_bytes = MAX_HANDLE_SZ;
        CHECK(name_to_handle_at(fd, "", &other.head, &mount, AT_EMPTY_PATH) == 0);
        CHECK(memcmp(other.bytes, dir.bytes, dir.head.handle_bytes) == 0 && close(fd) == 0);
        int left = open_it(&dir, O_RDONLY | O_DIRECTORY);
        CHECK(left >= 0);
        if (commits) {
            CHECK(sys_xend() == 0);
            CHECK(fcntl(left, F_GETFD) != -1 && close(left) == 0 && holds("old", "inside") && holds("there", "stable"));
        } else {
            sys_xabort(1);
            CHECK(fcntl(left, F_GETFD) == -1 && holds("old", "stable") && holds("gone", "stable"));
        }
    }
}

/* What is opened by a handle is observed, as by a path. */
static void handles_observe(void) {
    struct handle handle;
    put("file", "before", O_CREAT);
    CHECK(name("file", &handle, 0) == 0);
    CHECK(sys_xbegin(0) == 0);
    int fd = open_it(&handle, O_RDONLY);
    CHECK(reads(fd, "before") && close(fd) == 0);
    put("made", "from it", O_CREAT);
    pid_t child = fork();
    if (child == 0) {
        put("file", "by an outsider", O_TRUNC);
        _exit(0);
    }
    CHECK(end_of(child) == 0);
    CHECK(sys_xend() == -1 && errno == ECANCELED && !is_there("made"));
}

/* What the kernel refuses is refused. */
static void handles_refused(void) {
    struct handle handle;
    int mount;
    put("file", "", O_CREAT);
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(name("none", &handle, 0) == -1 && errno == ENOENT);
    CHECK(name("file", &handle, 0x8000) == -1 && errno == EINVAL);
    CHECK(name("", &handle, 0) == -1 && errno == ENOENT);
    handle.head.handle_bytes = 0;
    CHECK(name_to_handle_at(AT_FDCWD, "file", &handle.head, &mount, 0) == -1 && errno == EOVERFLOW);
    CHECK(handle.head.handle_bytes > 0);
    CHECK(name("file", &handle, 0) == 0);
    CHECK(open_by_handle_at(9999, &handle.head, O_RDONLY) == -1 && errno == EBADF);
    handle.head.handle_bytes = MAX_HANDLE_SZ + 1;
    CHECK(open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY) == -1 && errno == EINVAL);
    CHECK(name("file", &handle, 0) == 0 && setresuid(65534, 65534, -1) == 0);
    CHECK(open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY) == -1 && errno == EPERM);
    sys_xabort(1);
}

/* A link is not followed, a connectable handle is given, and the transaction's own working directory says which mount is meant. */
static void handles_of_links(void) {
    enum { connectable = 2 };
    struct handle link, plain, with, again, far;
    char path[64], got[8] = {0};
    int mount;
    put("file", "content", O_CREAT);
    CHECK(symlink("file", "link") == 0);
    snprintf(path, sizeof path, "/dev/shm/txos-others-%d", getpid());
    put(path, "far", O_CREAT | O_EXCL);
    far.head.handle_bytes = MAX_HANDLE_SZ;
    CHECK(name_to_handle_at(AT_FDCWD, path, &far.head, &mount, 0) == 0);
    int has_connectable = name("file", &with, connectable) == 0;
    CHECK(has_connectable || errno == EINVAL);
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(name("link", &link, 0) == 0 && name("file", &plain, 0) == 0);
    int of_link = open_it(&link, O_PATH), fd;
    struct stat st;
    CHECK(of_link >= 0 && fstat(of_link, &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(open_it(&plain, O_CREAT | O_EXCL | O_RDWR) == -1 && errno == EEXIST);
    if (has_connectable) {
        CHECK(name("file", &again, connectable) == 0 && again.head.handle_bytes == with.head.handle_bytes);
        CHECK(again.head.handle_type == with.head.handle_type && memcmp(again.bytes, with.bytes, with.head.handle_bytes) == 0);
        fd = open_it(&again, O_RDONLY);
        CHECK(reads(fd, "content") && close(fd) == 0);
    }
    CHECK(chdir("/dev/shm") == 0);
    fd = open_by_handle_at(AT_FDCWD, &far.head, O_RDONLY);
    CHECK(fd >= 0 && read(fd, got, 3) == 3 && strcmp(got, "far") == 0 && close(fd) == 0);
    CHECK(sys_xend() == 0 && unlink(path) == 0);
    CHECK(fstat(of_link, &st) == 0 && S_ISLNK(st.st_mode));
}

/* Of what has no mount, as natively: a process. */
static void handles_of_processes(void) {
    enum { root_of_processes = -10002 };
    struct handle handle;
    int mount, process = (int)syscall(SYS_pidfd_open, getpid(), 0), opened[2][2], named[2];
    for (int inside = 0; inside < 2; inside++) {
        CHECK(!inside || sys_xbegin(TX_STRICT) == 0);
        handle.head.handle_bytes = MAX_HANDLE_SZ;
        named[inside] = name_to_handle_at(process, "", &handle.head, &mount, AT_EMPTY_PATH);
        int mounts[2] = {root_of_processes, process};
        for (int i = 0; i < 2; i++) {
            int fd = open_by_handle_at(mounts[i], &handle.head, O_RDONLY);
            opened[inside][i] = fd < 0 ? errno : 0;
            CHECK(fd < 0 || close(fd) == 0);
        }
        CHECK(!inside || sys_xend() == 0);
    }
    CHECK(named[0] == named[1] && opened[0][0] == opened[1][0] && opened[0][1] == opened[1][1]);
}

/* What the transaction has removed is gone, with all of its names; what was removed before is as natively. */
static void handles_of_removed(void) {
    struct handle dir, twice, before;
    CHECK(mkdir("dir", 0755) == 0);
    put("one", "twice", O_CREAT);
    CHECK(linkat(AT_FDCWD, "one", AT_FDCWD, "two", 0) == 0);
    put("before", "before", O_CREAT);
    CHECK(name("dir", &dir, 0) == 0 && name("one", &twice, 0) == 0 && name("before", &before, 0) == 0);
    int open_before = open("before", O_RDONLY);
    CHECK(unlink("before") == 0);
    int natively = open_it(&before, O_RDONLY);
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(reads(open_before, "before"));
    int fd = open_it(&before, O_RDONLY);
    CHECK((fd >= 0) == (natively >= 0) && (fd < 0 || reads(fd, "before")));
    CHECK(rmdir("dir") == 0 && open_it(&dir, O_RDONLY | O_DIRECTORY) == -1 && errno == ESTALE);
    CHECK(unlink("one") == 0 && unlink("two") == 0 && open_it(&twice, O_RDONLY) == -1 && errno == ESTALE);
    sys_xabort(1);
    CHECK(is_there("one") && is_there("dir"));
}

/* A file that has lost its name before: what is written to it by its handle is undone, as all else is. */
static void handles_without_name(void) {
    struct handle handle;
    put("file", "before", O_CREAT);
    int fd = open("file", O_RDWR);
    CHECK(name("file", &handle, 0) == 0 && unlink("file") == 0);
    CHECK(sys_xbegin(0) == 0);
    int again = open_by_handle_at(AT_FDCWD, &handle.head, O_RDWR);
    CHECK(again < 0 || pwrite(again, "inside", 6, 0) == 6);
    put("made", "inside", O_CREAT);
    sys_xabort(1);
    CHECK(reads(fd, "before") && !is_there("made"));
}

/* A directory that is not versioned: paths begin there, however it was opened. */
static void live_directories(void) {
    int pipe_[2], numbers[1], before = open("/proc/self", O_RDONLY | O_DIRECTORY);
    CHECK(before >= 0 && pipe(pipe_) == 0);
    pid_t child = fork();
    if (child == 0) {
        numbers[0] = open("/proc/self", O_RDONLY | O_DIRECTORY);
        CHECK(dup2(numbers[0], 300) == 300 && close(numbers[0]) == 0 && write(pipe_[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    char byte;
    CHECK(read(pipe_[0], &byte, 1) == 1);
    int other = (int)syscall(SYS_pidfd_open, child, 0), mount, shared = open("/dev/shm", O_RDONLY | O_DIRECTORY);
    struct handle handle;
    handle.head.handle_bytes = MAX_HANDLE_SZ;
    CHECK(shared >= 0 && name_to_handle_at(shared, "", &handle.head, &mount, AT_EMPTY_PATH) == 0);
    CHECK(other >= 0 && sys_xbegin(0) == 0);
    int by_handle = open_by_handle_at(shared, &handle.head, O_RDONLY | O_DIRECTORY);
    CHECK(by_handle >= 0 && faccessat(by_handle, "none", F_OK, 0) == -1 && errno == ENOENT);
    int fd = openat(before, "status", O_RDONLY);
    CHECK(fd >= 0 && read(fd, &byte, 1) == 1 && byte == 'N');
    int dir = (int)syscall(SYS_pidfd_getfd, other, 300, 0);
    CHECK(dir >= 0);
    fd = openat(dir, "status", O_RDONLY);
    CHECK(fd >= 0 && read(fd, &byte, 1) == 1 && byte == 'N');
    CHECK(sys_xend() == 0);
    CHECK(kill(child, SIGKILL) == 0 && end_of(child) == 256 + SIGKILL);
}

/* --- Descriptors of other processes --- */

static int of_process(pid_t process) {
    int fd = (int)syscall(SYS_pidfd_open, process, 0);
    CHECK(fd >= 0);
    return fd;
}

static int taken(int process, int number) {
    return (int)syscall(SYS_pidfd_getfd, process, number, 0);
}

/* A process that does nothing until it is killed. */
static pid_t sleeper(void) {
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    CHECK(child > 0);
    return child;
}

static void end(pid_t child) {
    CHECK(kill(child, SIGKILL) == 0 && end_of(child) == 256 + SIGKILL);
}

/* A child that has a pipe, a socket and a file open, which this process has not, until it is killed. */
static pid_t one_with(int *pipe_, int *socket_, int *file) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        int p[2], s[2], fd = open("file", O_RDWR);
        CHECK(pipe(p) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && fd >= 0);
        CHECK(write(p[1], "piped", 5) == 5 && write(s[1], "sent", 4) == 4 && lseek(fd, 2, SEEK_SET) == 2);
        int numbers[3] = {p[0], s[0], fd};
        CHECK(write(ready[1], numbers, sizeof numbers) == sizeof numbers);
        for (;;)
            pause();
    }
    int numbers[3];
    CHECK(read(ready[0], numbers, sizeof numbers) == sizeof numbers && close(ready[0]) == 0 && close(ready[1]) == 0);
    *pipe_ = numbers[0], *socket_ = numbers[1], *file = numbers[2];
    return child;
}

static void descriptors(void) {
    int pipe_, socket_, file;
    put("file", "content", O_CREAT);
    pid_t child = one_with(&pipe_, &socket_, &file);
    int low = open("file", O_RDONLY), other = of_process(child), self = of_process(getpid());
    for (int commits = 0; commits < 2; commits++) {
        char got[16] = {0};
        CHECK(sys_xbegin(TX_STRICT) == 0);
        /* The lowest number that is free: one that the transaction has closed. */
        CHECK(close(low) == 0);
        int fd = taken(other, file);
        CHECK(fd == low && fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
        CHECK(read(fd, got, 3) == 3 && strcmp(got, "nte") == 0);
        CHECK(pwrite(fd, "C", 1, 0) == 1 && holds("file", "Content"));
        int s = taken(other, socket_);
        CHECK(s > fd && recv(s, got, 4, 0) == 4 && memcmp(got, "sent", 4) == 0);
        CHECK(taken(other, 9999) == -1 && errno == EBADF);
        /* Its own: a duplicate. */
        int own = taken(self, fd);
        CHECK(own > s && lseek(own, 0, SEEK_CUR) == 5);
        if (commits) {
            CHECK(sys_xend() == 0);
            CHECK(holds("file", "Content") && read(fd, got, 16) == 2 && memcmp(got, "nt", 2) == 0);
            CHECK(lseek(own, 0, SEEK_CUR) == 7 && recv(s, got, 4, MSG_DONTWAIT) == -1 && errno == EAGAIN);
            CHECK(lseek(taken(other, file), 0, SEEK_CUR) == 7);
        } else {
            sys_xabort(1);
            CHECK(holds("file", "content") && fcntl(low, F_GETFD) == 0 && lseek(low, 0, SEEK_CUR) == 0);
            CHECK(fcntl(s, F_GETFD) == -1 && fcntl(own, F_GETFD) == -1);
            int again = taken(other, file);
            CHECK(lseek(again, 0, SEEK_CUR) == 2 && close(again) == 0);
        }
    }
    CHECK(kill(child, SIGKILL) == 0 && end_of(child) == 256 + SIGKILL);
}

/* A FIFO and a link: what others have of them is the transaction's, but for bytes. */
static void descriptors_of_others(void) {
    int ready[2];
    CHECK(mkfifo("fifo", 0644) == 0 && symlink("none", "link") == 0 && pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        int numbers[2] = {open("fifo", O_RDWR), open("link", O_PATH | O_NOFOLLOW)};
        CHECK(write(numbers[0], "piped", 5) == 5 && write(ready[1], numbers, sizeof numbers) == sizeof numbers);
        for (;;)
            pause();
    }
    int numbers[2], other = of_process(child);
    CHECK(read(ready[0], numbers, sizeof numbers) == sizeof numbers);
    for (int commits = 0; commits < 2; commits++) {
        struct stat st;
        char got[8] = {0};
        CHECK(sys_xbegin(TX_STRICT) == 0);
        int fifo = taken(other, numbers[0]), link = taken(other, numbers[1]);
        CHECK(fifo >= 0 && link >= 0 && fcntl(link, F_GETFL) & O_PATH);
        CHECK(fchmod(fifo, 0600) == 0 && fstat(fifo, &st) == 0 && S_ISFIFO(st.st_mode) && (st.st_mode & 0777) == 0600);
        CHECK(fstat(link, &st) == 0 && S_ISLNK(st.st_mode));
        struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 5}};
        CHECK(utimensat(link, "", times, AT_EMPTY_PATH) == 0);
        if (commits)
            CHECK(sys_xend() == 0 && read(fifo, got, 5) == 5 && strcmp(got, "piped") == 0);
        else
            sys_xabort(1);
        CHECK(stat("fifo", &st) == 0 && (st.st_mode & 0777) == (commits ? 0600 : 0644));
        CHECK(lstat("link", &st) == 0 && (st.st_mtime == 5) == commits);
    }
    CHECK(kill(child, SIGKILL) == 0 && end_of(child) == 256 + SIGKILL);
}

static int thread_fd, thread_end[2];

static void *one_thread(void *unused) {
    enum { of_thread = O_EXCL };
    char byte;
    thread_fd = (int)syscall(SYS_pidfd_open, (pid_t)syscall(SYS_gettid), of_thread);
    CHECK(write(thread_end[1], "x", 1) == 1);
    while (read(thread_end[0], &byte, 1) == 1 && byte != 'e')
        ;
    return unused;
}

/* By a thread of the process itself: a duplicate as well. */
static void descriptors_by_thread(void) {
    int two[2];
    pthread_t thread;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, two) == 0);
    thread_end[0] = thread_end[1] = two[0];
    CHECK(pthread_create(&thread, NULL, one_thread, NULL) == 0);
    char byte;
    CHECK(read(two[1], &byte, 1) == 1);
    put("file", "content", O_CREAT);
    if (thread_fd >= 0) {
        CHECK(sys_xbegin(TX_STRICT) == 0);
        int fd = open("file", O_RDWR), own = taken(thread_fd, fd);
        CHECK(own > fd && pwrite(fd, "C", 1, 0) == 1 && lseek(fd, 3, SEEK_SET) == 3 && lseek(own, 0, SEEK_CUR) == 3);
        CHECK(reads(own, "Content") && sys_xend() == 0);
    }
    CHECK(write(two[1], "e", 1) == 1 && pthread_join(thread, NULL) == 0 && holds("file", thread_fd >= 0 ? "Content" : "content"));
}

/* A member's own descriptor of the transaction's file: a duplicate. */
static void descriptors_of_a_member(void) {
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0);
    pid_t member = fork();
    if (member == 0) {
        int own = taken(of_process(getpid()), fd);
        CHECK(own >= 0 && pwrite(own, "member", 6, 0) == 6 && reads(fd, "member"));
        _exit(0);
    }
    CHECK(end_of(member) == 0 && sys_xend() == 0 && holds("file", "member"));
}

/* A file of memory is on no mount: it is not versioned, its own or another's. */
static void files_of_memory(void) {
    int ready[2], own = memfd_create("own", 0);
    CHECK(own >= 0 && pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        int number = memfd_create("other", 0);
        CHECK(write(ready[1], &number, sizeof number) == sizeof number);
        for (;;)
            pause();
    }
    int number;
    CHECK(read(ready[0], &number, sizeof number) == sizeof number);
    int other = of_process(child), mount, natively;
    struct handle handle;
    handle.head.handle_bytes = MAX_HANDLE_SZ;
    CHECK(name_to_handle_at(own, "", &handle.head, &mount, AT_EMPTY_PATH) == 0);
    natively = open_by_handle_at(own, &handle.head, O_RDONLY);
    CHECK(sys_xbegin(0) == 0);
    int again = open_by_handle_at(own, &handle.head, O_RDONLY);
    CHECK((again >= 0) == (natively >= 0));
    int fd = taken(other, number);
    CHECK(pwrite(own, "own", 3, 0) == 3 && pwrite(fd, "other", 5, 0) == 5);
    sys_xabort(1);
    CHECK(reads(own, "own") && reads(taken(other, number), "other"));
    end(child);
}

/* With no room for the library's own descriptors it fails, and leaves none open. */
static void descriptors_without_room(void) {
    pid_t child = sleeper();
    int other = of_process(child), low = dup(0);
    struct rlimit few = {100, 100};
    CHECK(low >= 0 && close(low) == 0 && setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(sys_xbegin(0) == 0);
    while (fcntl(0, F_DUPFD, low + 20) >= 0)
        ;
    CHECK(errno == EMFILE);
    for (int i = 0; i < 30; i++)
        CHECK(taken(other, 0) == -1 && errno == EMFILE);
    CHECK(dup(0) == low);
    sys_xabort(1);
    end(child);
}

/* --- Memory of other processes --- */

static char word[16] = "before";

static long tell(pid_t process, const char *text) {
    struct iovec from = {(void *)text, strlen(text) + 1}, to = {word, strlen(text) + 1};
    return process_vm_writev(process, &from, 1, &to, 1, 0);
}

/* What a process has there, as others read it. */
static const char *told(pid_t process) {
    static char copy[16];
    struct iovec to = {copy, sizeof copy}, from = {word, sizeof word};
    CHECK(process_vm_readv(process, &to, 1, &from, 1, 0) == sizeof copy);
    return copy;
}

/* Of a process outside at the end; of a member at once, as of the process itself. */
static void memory(void) {
    pid_t outside = sleeper();
    CHECK(sys_xbegin(TX_PROCESSES) == 0);
    pid_t member = sleeper();
    CHECK(tell(outside, "held") == 5 && strcmp(told(outside), "before") == 0);
    CHECK(tell(member, "at once") == 8 && strcmp(told(member), "at once") == 0);
    CHECK(tell(getpid(), "here") == 5 && strcmp(word, "here") == 0);
    end(member);
    CHECK(sys_xend() == 0 && strcmp(told(outside), "held") == 0);
    end(outside);
}

/* Begun again, it is written once; killed, never. */
static void memory_once(void) {
    pid_t outside = sleeper();
    volatile int attempts = 0;
    CHECK(sys_xbegin(TX_RESTART | TX_STRICT) >= 0);
    attempts++;
    CHECK(tell(outside, attempts == 1 ? "first" : "second") > 0);
    if (attempts == 1)
        ioctl(0, LOSE);
    CHECK(strcmp(told(outside), "before") == 0);
    CHECK(sys_xend() == 0 && attempts == 2 && strcmp(told(outside), "second") == 0);
    pid_t killed = fork();
    if (killed == 0) {
        CHECK(sys_xbegin(0) == 0 && tell(outside, "never") == 6);
        kill(getpid(), SIGKILL);
    }
    CHECK(end_of(killed) == 256 + SIGKILL && strcmp(told(outside), "second") == 0);
    end(outside);
}

/* What a child is told before it is waited for is told before the wait. */
static void memory_of_a_child(void) {
    CHECK(sys_xbegin(0) == 0);
    pid_t child = fork();
    if (child == 0) {
        while (strcmp((char *volatile)word, "go") != 0)
            usleep(1000);
        _exit(6);
    }
    CHECK(tell(child, "go") == 3 && end_of(child) == 6);
    CHECK(sys_xend() == 0);
}

/* Becomes another program when it is told. */
static void become_another(const int ready[2]) {
    char byte;
    if (read(ready[0], &byte, 1) == 0)
        execlp("sleep", "sleep", "100", NULL);
    _exit(9);
}

/* Another program is not written to. `shared`: the memory of the first is another process's as well. */
static void another_program(int shared) {
    int ready[2], number[2];
    CHECK(pipe(ready) == 0 && pipe(number) == 0);
    pid_t other = fork(), child;
    if (other == 0) {
        CHECK(close(ready[1]) == 0);
        if (shared) {
            child = vfork();
            CHECK(child >= 0);
            if (child != 0)
                for (;;)
                    pause();
        }
        child = getpid();
        CHECK(write(number[1], &child, sizeof child) == sizeof child);
        become_another(ready);
    }
    CHECK(read(number[0], &child, sizeof child) == sizeof child);
    CHECK(sys_xbegin(0) == 0 && tell(child, "held") == 5);
    long paused = sys_xpause();
    CHECK(paused > 0 && close(ready[1]) == 0);
    char path[64], name[64] = {0};
    snprintf(path, sizeof path, "/proc/%d/comm", child);
    for (int i = 0; i < 10000 && strncmp(name, "sleep", 5) != 0; i++, usleep(1000)) {
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0 && read(fd, name, sizeof name - 1) > 0 && close(fd) == 0);
    }
    CHECK(strncmp(name, "sleep", 5) == 0 && sys_xresume(paused) == 0);
    CHECK(sys_xend() == 0 && strstr(txos_strerror(), "runs another program") != NULL);
    CHECK(kill(child, SIGKILL) == 0);
    if (shared)
        CHECK(strcmp(told(other), "before") == 0 && kill(other, SIGKILL) == 0);
    CHECK(end_of(other) == 256 + SIGKILL);
}

static void memory_of_another_program(void) {
    another_program(0);
}

static void memory_that_two_have(void) {
    another_program(1);
}

/* So much is held, and no more. */
static void memory_limit(void) {
    CHECK(setenv("TXOS_HELD_MAX", "100", 1) == 0);
    pid_t outside = sleeper();
    static char much[4096];
    struct iovec from = {much, sizeof much}, to = {much, sizeof much};
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(process_vm_writev(outside, &from, 1, &to, 1, 0) == -1 && errno == ENOMEM);
    CHECK(tell(outside, "held") == 5 && sys_xend() == 0 && strcmp(told(outside), "held") == 0);
    end(outside);
}

/* What is held of another process takes no number of the program's. */
static void memory_takes_no_number(void) {
    pid_t outside = sleeper();
    int low = dup(0);
    CHECK(low >= 0 && close(low) == 0);
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(tell(outside, "held") == 5);
    CHECK(dup(0) == low && fcntl(low + 1, F_GETFD) == -1 && errno == EBADF);
    for (int number = low; number < low + 100; number++)
        close(number);
    CHECK(sys_xend() == 0 && strcmp(told(outside), "held") == 0);
    end(outside);
}

/* One descriptor for all that goes to one process, and so many calls. */
static void memory_many(void) {
    struct rlimit few = {1024, 1024};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    pid_t one = sleeper(), two = sleeper();
    char text[16];
    CHECK(sys_xbegin(TX_STRICT) == 0);
    for (int i = 0; i < 2048; i++) {
        snprintf(text, sizeof text, "%d", i);
        CHECK(tell(one, text) > 0 && tell(two, text) > 0);
    }
    CHECK(tell(one, "more") == -1 && errno == EAGAIN);
    CHECK(sys_xend() == 0 && strcmp(told(one), "2047") == 0 && strcmp(told(two), "2047") == 0);
    end(one);
    end(two);
}

/* So much is copied as is written. */
static void memory_sizes(void) {
    enum { page = 4096, much = 1 << 20 };
    CHECK(setenv("TXOS_HELD_MAX", "5000", 1) == 0);
    char *there = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *here = calloc(1, much);
    CHECK(there != MAP_FAILED && here != NULL && mprotect(there + page, page, PROT_READ) == 0);
    memset(here, 'x', much);
    pid_t outside = sleeper();
    struct iovec from = {here, much}, byte = {word, 1}, all = {there, 2 * page};
    CHECK(sys_xbegin(TX_STRICT) == 0);
    CHECK(process_vm_writev(outside, &from, 1, &byte, 1, 0) == 1);
    from.iov_len = 2 * page;
    CHECK(process_vm_writev(outside, &from, 1, &all, 1, 0) == page);
    CHECK(sys_xend() == 0 && strcmp(told(outside), "xefore") == 0);
    end(outside);
}

/* What the kernel answers where there is nothing to write, or what is wrong. */
static void memory_edges(void) {
    pid_t outside = sleeper(), gone = fork();
    if (gone == 0)
        _exit(0);
    CHECK(end_of(gone) == 0);
    long moved[2], masks = 1;
    for (int inside = 0; inside < 2; inside++) {
        struct iovec some = {word, 5}, none = {word, 0}, kernels = {(void *)-4096L, 5}, two[2] = {some, kernels};
        CHECK(!inside || sys_xbegin(TX_STRICT) == 0);
        CHECK(process_vm_writev(outside, NULL, 0, (void *)1, 1, 0) == 0);
        CHECK(process_vm_writev(gone, &some, 1, &none, 1, 0) == 0 && process_vm_writev(gone, &none, 1, &some, 1, 0) == 0);
        CHECK(process_vm_writev(outside, two, 2, &some, 1, 0) == -1 && errno == EFAULT);
        CHECK(process_vm_writev(gone, &some, 1, &some, 1, 0) == -1 && errno == ESRCH);
        CHECK(process_vm_writev(-5, &some, 1, &some, 1, 0) == -1 && errno == ESRCH);
        CHECK(process_vm_writev(outside, &some, 1, &kernels, 1, 0) == -1 && errno == EFAULT);
        /* Without nodes. */
        moved[inside] = syscall(SYS_migrate_pages, outside, 64, &masks, NULL) == 0 ? 0 : errno;
        CHECK(syscall(SYS_migrate_pages, outside, 64, NULL, &masks) == 0);
        CHECK(!inside || sys_xend() == 0);
    }
    CHECK(moved[0] == moved[1]);
    end(outside);
}

static void *until_it_is_told(void *end_) {
    char byte;
    pid_t number = (pid_t)syscall(SYS_gettid);
    int *ends = end_;
    CHECK(write(ends[1], &number, sizeof number) == sizeof number && read(ends[0], &byte, 1) == 1);
    return NULL;
}

/* By the number of a thread that has ended by the commit: the process is meant. */
static void memory_by_thread(void) {
    int two[2], done[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, two) == 0 && pipe(done) == 0);
    pid_t outside = fork(), number;
    if (outside == 0) {
        pthread_t thread;
        int ends[2] = {two[0], two[0]};
        CHECK(pthread_create(&thread, NULL, until_it_is_told, ends) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(write(done[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    char byte;
    CHECK(read(two[1], &number, sizeof number) == sizeof number && number != outside);
    CHECK(sys_xbegin(TX_STRICT) == 0 && tell(number, "held") == 5);
    long paused = sys_xpause();
    CHECK(paused > 0 && write(two[1], "e", 1) == 1 && read(done[0], &byte, 1) == 1 && sys_xresume(paused) == 0);
    CHECK(sys_xend() == 0 && strcmp(told(outside), "held") == 0);
    end(outside);
}

/* Without a descriptor left for the process it fails. What is held already goes on. */
static void memory_without_room(void) {
    pid_t one = sleeper(), two = sleeper();
    struct rlimit few = {100, 100};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(sys_xbegin(TX_STRICT) == 0 && tell(one, "held") == 5);
    while (fcntl(0, F_DUPFD, 40) >= 0)
        ;
    CHECK(errno == EMFILE && tell(two, "not") == -1 && errno == EAGAIN && tell(one, "again") == 6);
    CHECK(sys_xend() == 0 && strcmp(told(one), "again") == 0 && strcmp(told(two), "before") == 0);
    end(one);
    end(two);
}

static void *tell_itself(void *unused) {
    CHECK(tell((pid_t)syscall(SYS_gettid), "itself") == 7);
    return unused;
}

/* A member by the number of its thread: its own memory. */
static void memory_of_a_members_thread(void) {
    CHECK(sys_xbegin(TX_PROCESSES | TX_STRICT) == 0);
    pid_t member = fork();
    if (member == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, tell_itself, NULL) == 0 && pthread_join(thread, NULL) == 0);
        _exit(strcmp(word, "itself") != 0);
    }
    CHECK(end_of(member) == 0 && sys_xend() == 0);
}

/* By the file that /proc has of it: at once, and it stays. */
static void memory_by_file(void) {
    pid_t outside = sleeper();
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", outside);
    CHECK(sys_xbegin(0) == 0);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, "file", 5, (off_t)(uintptr_t)word) == 5 && strcmp(told(outside), "file") == 0);
    sys_xabort(1);
    CHECK(strcmp(told(outside), "file") == 0);
    end(outside);
}

/* Answers as soon as it is told to, by a byte and in its memory. */
static pid_t one_that_answers(const int answer[2]) {
    pid_t outside = fork();
    CHECK(outside >= 0);
    if (outside != 0)
        return outside;
    while (strcmp((char *volatile)word, "go") != 0)
        usleep(1000);
    CHECK(write(answer[1], "x", 1) == 1);
    strcpy(word, "done");
    for (;;)
        pause();
}

/* Before it waits for an answer to what it has written, that is written. */
static void memory_before_a_wait(void) {
    int answer[2];
    CHECK(pipe(answer) == 0);
    for (int way = 0; way < 3; way++) {
        struct pollfd one = {.fd = answer[0], .events = POLLIN};
        char byte;
        pid_t outside = one_that_answers(answer);
        CHECK(sys_xbegin(0) == 0 && tell(outside, "go") == 3);
        if (way == 1)
            CHECK(poll(&one, 1, -1) == 1);
        while (way == 2 && strcmp(told(outside), "done") != 0)
            CHECK(usleep(1000) == 0);
        CHECK(read(answer[0], &byte, 1) == 1 && sys_xend() == 0);
        end(outside);
    }
    pid_t outside = sleeper();
    char byte;
    CHECK(sys_xbegin(TX_STRICT) == 0 && tell(outside, "never") == 6);
    CHECK(read(answer[0], &byte, 1) == -1 && errno == ECANCELED);
    CHECK(sys_xend() == -1 && errno == ENOTSUP && strcmp(told(outside), "before") == 0);
    end(outside);
}

#define SCENARIO(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    SCENARIO(handles), SCENARIO(handles_observe), SCENARIO(handles_refused), SCENARIO(handles_of_links),
    SCENARIO(handles_of_removed), SCENARIO(handles_without_name), SCENARIO(handles_of_processes), SCENARIO(live_directories), SCENARIO(descriptors),
    SCENARIO(descriptors_of_others), SCENARIO(descriptors_by_thread), SCENARIO(descriptors_of_a_member),
    SCENARIO(files_of_memory), SCENARIO(descriptors_without_room),
    SCENARIO(memory), SCENARIO(memory_once), SCENARIO(memory_of_a_child), SCENARIO(memory_of_another_program),
    SCENARIO(memory_limit), SCENARIO(memory_takes_no_number), SCENARIO(memory_many), SCENARIO(memory_sizes),
    SCENARIO(memory_edges), SCENARIO(memory_by_thread), SCENARIO(memory_that_two_have),
    SCENARIO(memory_without_room), SCENARIO(memory_of_a_members_thread),
    SCENARIO(memory_by_file), SCENARIO(memory_before_a_wait),
};

RUN_ONE_OF(scenarios)
