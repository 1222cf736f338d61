/* Data: reading, writing, moving between files. */
#include "differ.h"

/* Where a descriptor is, and how large its file. */
static void say_place(int fd)
{
    struct stat stat;
    mode_t type = type_of(fd);
    if (type == S_IFREG && fstat(fd, &stat) == 0)
        say(" at %lld of %lld", (long long)lseek(fd, 0, SEEK_CUR), (long long)stat.st_size);
}

static bool refuses(int fd)
{
    if (!may_block(fd))
        return false;
    say(" would wait");
    return true;
}

static void do_read(void)
{
    int fd = file();
    size_t size = some_size();
    void *to = chance(1) && class_is_on("fault") ? BAD : room;
    say("read(%d, %zu%s)", fd, size, to == BAD ? " BAD" : "");
    if (refuses(fd))
        return;
    DO(read(fd, to, size), SYS_read, fd, to, size);
    answer();
    if (R > 0)
        say_bytes(room, (size_t)R);
    say_place(fd);
}

static void do_write(void)
{
    int fd = file();
    size_t size = some_size();
    const void *from = chance(1) && class_is_on("fault") ? BAD : data(size);
    say("write(%d, %zu%s)", fd, size, from == BAD ? " BAD" : "");
    if (refuses(fd))
        return;
    DO(write(fd, from, size), SYS_write, fd, from, size);
    answer();
    say_place(fd);
}

static void do_pread(void)
{
    int fd = file();
    size_t size = some_size();
    int64_t at = some_offset();
    say("pread(%d, %zu, %lld)", fd, size, (long long)at);
    if (refuses(fd))
        return;
    DO(pread(fd, room, size, at), SYS_pread64, fd, room, size, at);
    answer();
    if (R > 0)
        say_bytes(room, (size_t)R);
    say_place(fd);
}

static void do_pwrite(void)
{
    int fd = file();
    size_t size = some_size();
    int64_t at = some_offset();
    const void *from = data(size);
    say("pwrite(%d, %zu, %lld)", fd, size, (long long)at);
    if (refuses(fd))
        return;
    DO(pwrite(fd, from, size, at), SYS_pwrite64, fd, from, size, at);
    answer();
    say_place(fd);
}

static int vectors(struct iovec *v, const void *all)
{
    size_t at = 0;
    int n = (int)below(4);
    for (int i = 0; i < n; i++) {
        v[i].iov_len = some_size() / 2;
        v[i].iov_base = (char *)all + at;
        at += v[i].iov_len;
    }
    return n;
}

static void say_vectors(const struct iovec *v, int n)
{
    say("[");
    for (int i = 0; i < n; i++)
        say("%s%zu", i ? " " : "", v[i].iov_len);
    say("]");
}

static void do_readv(void)
{
    struct iovec v[4];
    int fd = file(), n = vectors(v, room);
    say("readv(%d, ", fd);
    say_vectors(v, n);
    say(")");
    if (refuses(fd))
        return;
    DO(readv(fd, v, n), SYS_readv, fd, v, n);
    answer();
    if (R > 0)
        say_bytes(room, (size_t)R);
    say_place(fd);
}

static void do_writev(void)
{
    struct iovec v[4];
    int fd = file(), n = vectors(v, data(ROOM));
    say("writev(%d, ", fd);
    say_vectors(v, n);
    say(")");
    if (refuses(fd))
        return;
    DO(writev(fd, v, n), SYS_writev, fd, v, n);
    answer();
    say_place(fd);
}

/* The kernel takes the offset in two words; on 64 bits the second is not used. */
static void do_preadv2(void)
{
    static const int flags_[] = { 0, 0, RWF_HIPRI, RWF_NOWAIT, 0x4000000 };
    struct iovec v[4];
    int fd = file(), n = vectors(v, room), flags = PICK(flags_);
    int64_t at = some_offset();
    /* Whether it would have to wait depends on caches. */
    if (flags == RWF_NOWAIT)
        flags = 0;
    say("preadv2(%d, ", fd);
    say_vectors(v, n);
    say(", %lld, %#x)", (long long)at, (unsigned)flags);
    if (refuses(fd))
        return;
    DO(preadv2(fd, v, n, at, flags), SYS_preadv2, fd, v, n, at, 0, flags);
    answer();
    if (R > 0)
        say_bytes(room, (size_t)R);
    say_place(fd);
}

static void do_pwritev2(void)
{
    static const int flags_[] = { 0, 0, RWF_APPEND, RWF_DSYNC, 0x4000000 };
    struct iovec v[4];
    int fd = file(), n = vectors(v, data(ROOM)), flags = PICK(flags_);
    int64_t at = some_offset();
    say("pwritev2(%d, ", fd);
    say_vectors(v, n);
    say(", %lld, %#x)", (long long)at, (unsigned)flags);
    if (refuses(fd))
        return;
    DO(pwritev2(fd, v, n, at, flags), SYS_pwritev2, fd, v, n, at, 0, flags);
    answer();
    say_place(fd);
}

static void do_preadv(void)
{
    struct iovec v[4];
    int fd = file(), n = vectors(v, room);
    int64_t at = some_offset();
    say("preadv(%d, ", fd);
    say_vectors(v, n);
    say(", %lld)", (long long)at);
    if (refuses(fd))
        return;
    DO(preadv(fd, v, n, at), SYS_preadv, fd, v, n, at, 0);
    answer();
    if (R > 0)
        say_bytes(room, (size_t)R);
}

static void do_pwritev(void)
{
    struct iovec v[4];
    int fd = file(), n = vectors(v, data(ROOM));
    int64_t at = some_offset();
    say("pwritev(%d, ", fd);
    say_vectors(v, n);
    say(", %lld)", (long long)at);
    if (refuses(fd))
        return;
    DO(pwritev(fd, v, n, at), SYS_pwritev, fd, v, n, at, 0);
    answer();
    say_place(fd);
}

static void do_lseek(void)
{
    static const int whences[] = { SEEK_SET, SEEK_CUR, SEEK_END, SEEK_SET, 77 };
    int fd = file(), whence = PICK(whences);
    int64_t at = some_offset();
    /* Places in a directory are the file system's own. */
    if (type_of(fd) == S_IFDIR)
        at = 0, whence = SEEK_SET;
    if (chance(20))
        at = -at;
    say("lseek(%d, %lld, %d)", fd, (long long)at, whence);
    DO(lseek(fd, at, whence), SYS_lseek, fd, at, whence);
    answer();
}

/* Where holes are is the file system's choice; what it says of them must be true. */
static void do_seek_hole(void)
{
    int fd = file();
    bool hole = chance(50);
    int64_t from = some_offset();
    struct stat stat;
    say("lseek(%d, %lld, %s)", fd, (long long)from, hole ? "SEEK_HOLE" : "SEEK_DATA");
    if (type_of(fd) != S_IFREG) {
        say(" no file");
        return;
    }
    DO(lseek(fd, from, hole ? SEEK_HOLE : SEEK_DATA), SYS_lseek, fd, from,
       hole ? SEEK_HOLE : SEEK_DATA);
    if (class_is_on("holes") || (R == -1 && E != ENXIO) || fstat(fd, &stat) != 0) {
        answer();
        return;
    }
    if (R == -1) {
        /* No data behind an offset within the file: then there are zeros only. */
        bool past = from < 0 || from >= stat.st_size;
        say(" = %s", past || hole ? "ENXIO" : "a place");
    } else {
        bool ok = R >= from && R <= stat.st_size && from < stat.st_size;
        say(" = %s", ok ? "a place" : "nonsense");
        /* The place is where it is now. */
        if (lseek(fd, 0, SEEK_CUR) != R)
            say(", but it is elsewhere");
        static char zeros[4096];
        for (int64_t at = from; !hole && ok && at < R; at += 4096) {
            ssize_t n = pread(fd, room, (size_t)(R - at < 4096 ? R - at : 4096), at);
            if (n > 0 && memcmp(room, zeros, (size_t)n) != 0)
                say(", and data at %lld", (long long)at);
        }
    }
    lseek(fd, from >= 0 ? from : 0, SEEK_SET);
}

static void do_truncate(void)
{
    const char *p = path();
    int64_t size = some_offset();
    say("truncate(");
    say_path(p);
    say(", %lld)", (long long)size);
    DO(truncate(p, size), SYS_truncate, p, size);
    answer();
}

static void do_ftruncate(void)
{
    int fd = file();
    int64_t size = some_offset();
    say("ftruncate(%d, %lld)", fd, (long long)size);
    DO(ftruncate(fd, size), SYS_ftruncate, fd, size);
    answer();
    say_place(fd);
}

static void do_fallocate(void)
{
    /* Which of the rarer modes there are is the file system's choice; these every one here has. */
    static const int modes[] = { 0, 0, FALLOC_FL_KEEP_SIZE,
                                 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                 FALLOC_FL_PUNCH_HOLE };
    int fd = file(), mode = PICK(modes);
    int64_t at = some_offset();
    int64_t size = some_size();
    if (class_is_on("rare") && chance(30)) {
        static const int rare[] = { FALLOC_FL_ZERO_RANGE, FALLOC_FL_COLLAPSE_RANGE,
                                    FALLOC_FL_INSERT_RANGE, 0x8000 };
        mode = PICK(rare);
    }
    say("fallocate(%d, %d, %lld, %lld)", fd, mode, (long long)at, (long long)size);
    DO(fallocate(fd, mode, at, size), SYS_fallocate, fd, mode, at, size);
    answer();
    say_place(fd);
}

static void do_copy_file_range(void)
{
    int in = file(), out = file();
    loff_t from = some_offset(), to = some_offset();
    loff_t *pin = chance(50) ? &from : NULL, *pout = chance(50) ? &to : NULL;
    size_t size = some_size();
    unsigned flags = chance(3) ? 1 : 0;
    say("copy_file_range(%d %lld, %d %lld, %zu, %u)", in, pin ? (long long)from : -9, out,
        pout ? (long long)to : -9, size, flags);
    if (may_block(in) || may_block(out)) {
        say(" would wait");
        return;
    }
    DO(copy_file_range(in, pin, out, pout, size, flags), SYS_copy_file_range, in, pin, out, pout,
       size, flags);
    answer();
    say(" -> %lld %lld", pin ? (long long)from : -9, pout ? (long long)to : -9);
    say_place(in);
    say_place(out);
}

static void do_sendfile(void)
{
    int in = file(), out = file();
    off_t from = some_offset();
    off_t *pin = chance(50) ? &from : NULL;
    size_t size = some_size();
    say("sendfile(%d, %d %lld, %zu)", out, in, pin ? (long long)from : -9, size);
    if (may_block(in) || may_block(out)) {
        say(" would wait");
        return;
    }
    DO(sendfile(out, in, pin, size), SYS_sendfile, out, in, pin, size);
    answer();
    say(" -> %lld", pin ? (long long)from : -9);
    say_place(in);
    say_place(out);
}

/* Through a pipe of its own, and out again. */
static void do_splice(void)
{
    int in = file(), ends[2];
    loff_t from = some_offset();
    loff_t *pin = chance(50) ? &from : NULL;
    size_t size = some_size() % 9000;
    say("splice(%d %lld, pipe, %zu)", in, pin ? (long long)from : -9, size);
    if (may_block(in)) {
        say(" would wait");
        return;
    }
    DO(pipe2(ends, O_NONBLOCK), SYS_pipe2, ends, O_NONBLOCK);
    if (R != 0) {
        answer();
        return;
    }
    say(" pipe %d %d", ends[0], ends[1]);
    DO(splice(in, pin, ends[1], NULL, size, SPLICE_F_NONBLOCK), SYS_splice, in, pin, ends[1], NULL,
       size, SPLICE_F_NONBLOCK);
    answer();
    say(" -> %lld", pin ? (long long)from : -9);
    if (R > 0) {
        ssize_t n = read(ends[0], room, sizeof room);
        say_bytes(room, n > 0 ? (size_t)n : 0);
    }
    close(ends[0]);
    close(ends[1]);
    say_place(in);
}

static void do_pipe(void)
{
    int ends[2];
    say("pipe, write, FIONREAD, read");
    DO(pipe2(ends, O_NONBLOCK | O_CLOEXEC), SYS_pipe2, ends, O_NONBLOCK | O_CLOEXEC);
    if (R != 0) {
        answer();
        return;
    }
    size_t size = below(300);
    const void *from = data(size);
    DO(write(ends[1], from, size), SYS_write, ends[1], from, size);
    answer();
    int n = -1;
    (void)!ioctl(ends[0], FIONREAD, &n);
    say(" %d", n);
    DO(read(ends[0], room, 200), SYS_read, ends[0], room, 200);
    answer();
    if (R > 0)
        say_bytes(room, (size_t)R);
    close(ends[1]);
    DO(read(ends[0], room, 200), SYS_read, ends[0], room, 200);
    answer();
    close(ends[0]);
}

static void do_sync(void)
{
    int fd = file();
    switch (below(6)) {
    case 0:
        say("fsync(%d)", fd);
        DO(fsync(fd), SYS_fsync, fd);
        break;
    case 1:
        say("fdatasync(%d)", fd);
        DO(fdatasync(fd), SYS_fdatasync, fd);
        break;
    case 2:
        say("sync_file_range(%d)", fd);
        DO(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE), SYS_sync_file_range, fd, 0, 0,
           SYNC_FILE_RANGE_WRITE);
        break;
    case 3:
        say("fadvise(%d)", fd);
        DO(-posix_fadvise(fd, 0, 4096, POSIX_FADV_WILLNEED), SYS_fadvise64, fd, 0, 4096,
           POSIX_FADV_WILLNEED);
        /* The C library's function returns its error. */
        if (R < -1 || (R == -1 && E == 0)) {
            E = (int)-R;
            R = -1;
        }
        break;
    case 4:
        say("readahead(%d)", fd);
        DO(readahead(fd, 0, 4096), SYS_readahead, fd, 0, 4096);
        break;
    default:
        say("syncfs(%d)", fd);
        DO(syncfs(fd), SYS_syncfs, fd);
        break;
    }
    answer();
}

static void do_stdio(void)
{
    const char *p = path();
    struct stat stat;
    say("fopen, fprintf, fclose, fopen, fgets ");
    say_path(p);
    if (p == BAD || (fstatat(AT_FDCWD, p, &stat, 0) == 0 && !S_ISREG(stat.st_mode))) {
        say(" no file");
        return;
    }
    FILE *file = fopen(p, chance(50) ? "a" : "w");
    if (file) {
        fprintf(file, "line %d\n", call);
        say(" = %d", fclose(file));
    } else {
        say(" = %s", strerrorname_np(errno));
    }
    file = fopen(p, "r");
    if (file) {
        char line[100] = "";
        char *got = fgets(line, sizeof line, file);
        say(" %s", got ? "" : "nothing");
        say_bytes(line, strlen(line));
        fclose(file);
    }
}

const struct kind io[] = {
    { "read", "io", 40, do_read },
    { "write", "io", 55, do_write },
    { "pread", "io", 15, do_pread },
    { "pwrite", "io", 20, do_pwrite },
    { "readv", "vector", 10, do_readv },
    { "writev", "vector", 10, do_writev },
    { "preadv", "vector", 4, do_preadv },
    { "pwritev", "vector", 4, do_pwritev },
    { "preadv2", "vector", 8, do_preadv2 },
    { "pwritev2", "vector", 8, do_pwritev2 },
    { "lseek", "seek", 30, do_lseek },
    { "seek hole", "hole", 10, do_seek_hole },
    { "truncate", "truncate", 12, do_truncate },
    { "ftruncate", "truncate", 15, do_ftruncate },
    { "fallocate", "fallocate", 10, do_fallocate },
    { "copy_file_range", "copy", 10, do_copy_file_range },
    { "sendfile", "copy", 10, do_sendfile },
    { "splice", "splice", 8, do_splice },
    { "pipe", "pipe", 5, do_pipe },
    { "sync", "sync", 10, do_sync },
    { "stdio", "stdio", 8, do_stdio },
    { 0 },
};
