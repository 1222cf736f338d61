/* Directories, listed. The order of entries is the file system's own; what they are is not. */
#include "differ.h"

struct entry {
    char name[256];
    unsigned char type;
    uint64_t ino;
    int64_t next;
};

static struct entry entries[512];
static unsigned count;

/* As the kernel writes them. */
struct dirent_raw {
    uint64_t ino;
    int64_t next;
    unsigned short size;
    unsigned char type;
    char name[];
};

/* One call; 0 at the end. */
static long more(int fd, size_t size)
{
    DO(getdents64(fd, room, size), SYS_getdents64, fd, room, size);
    for (long at = 0; at < R;) {
        const struct dirent_raw *raw_entry = (const void *)(room + at);
        if (count < LENGTH(entries)) {
            struct entry *entry = &entries[count++];
            snprintf(entry->name, sizeof entry->name, "%s", raw_entry->name);
            entry->type = raw_entry->type;
            entry->ino = raw_entry->ino;
            entry->next = raw_entry->next;
        }
        at += raw_entry->size;
    }
    return R;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* A name that may or may not be there, as it was changed while the directory was listed. */
static void say_entries(int fd, const char *changed)
{
    struct stat stat = { 0 };
    fstat(fd, &stat);
    qsort(entries, count, sizeof *entries, by_name);
    say(" {");
    for (unsigned i = 0; i < count; i++) {
        if (changed && strcmp(entries[i].name, changed) == 0)
            continue;
        say("%s%s:%u", i ? " " : "", entries[i].name, entries[i].type);
        /* Its own margin's directories have numbers of their own. */
        if (strcmp(entries[i].name, "..") != 0)
            say("#%u", inode_number(stat.st_dev, entries[i].ino));
    }
    say("}");
}

static size_t buffer_size(void)
{
    static const size_t sizes[] = { 32768, 32768, 24, 48, 64, 120, 280 };
    return PICK(sizes);
}

/* What a position in a directory is, is the file system's own, and shows in how a read fails. */
static void leave(int fd)
{
    if (!class_is_on("dirends") && type_of(fd) == S_IFDIR)
        lseek(fd, 0, SEEK_SET);
}

/* From the start to the end. */
static void do_list(void)
{
    int fd = listed();
    size_t size = buffer_size();
    say("getdents(%d, %zu)", fd, size);
    mode_t type = type_of(fd);
    if (type == S_IFDIR)
        lseek(fd, 0, SEEK_SET);
    count = 0;
    while (more(fd, size) > 0)
        ;
    answer();
    if (type == S_IFDIR)
        say_entries(fd, NULL);
    if (R == 0) {
        more(fd, 32768);
        say(" and then");
        answer();
    }
    leave(fd);
}

/* With a change in the middle. */
static void do_list_changing(void)
{
    int fd = listed();
    const char *changed = name(), *other = name();
    unsigned what = below(4);
    say("getdents(%d), change %u of %s %s", fd, what, changed, other);
    if (type_of(fd) != S_IFDIR) {
        say(" no dir");
        return;
    }
    lseek(fd, 0, SEEK_SET);
    count = 0;
    if (more(fd, 72) > 0) {
        long r = what == 0   ? unlinkat(fd, changed, 0)
                 : what == 1 ? mkdirat(fd, changed, 0755)
                 : what == 2 ? renameat2(fd, changed, fd, changed, RENAME_NOREPLACE)
                             : close(openat(fd, changed, O_WRONLY | O_CREAT | O_EXCL, 0644));
        say(" (%s)", r == 0 ? "done" : strerrorname_np(errno));
        while (more(fd, 72) > 0)
            ;
    }
    answer();
    say_entries(fd, changed);
    leave(fd);
}

/* Going back to a place gives what came after it. */
static void do_list_seeking(void)
{
    int fd = listed();
    say("getdents(%d) and lseek back", fd);
    if (type_of(fd) != S_IFDIR) {
        say(" no dir");
        return;
    }
    lseek(fd, 0, SEEK_SET);
    count = 0;
    while (more(fd, 32768) > 0)
        ;
    answer();
    if (count < 2)
        return;
    static struct entry first[LENGTH(entries)];
    memcpy(first, entries, sizeof *first * count);
    unsigned all = count, at = below(all - 1);
    DO(lseek(fd, first[at].next, SEEK_SET), SYS_lseek, fd, first[at].next, SEEK_SET);
    say(" %s", R == first[at].next ? "back" : "elsewhere");
    count = 0;
    while (more(fd, 100) > 0)
        ;
    bool same = count == all - at - 1;
    for (unsigned i = 0; same && i < count; i++)
        same = strcmp(entries[i].name, first[at + 1 + i].name) == 0;
    say(" %s", same ? "same" : "different");
    leave(fd);
}

static void do_readdir(void)
{
    const char *p = path();
    say("opendir(");
    say_path(p);
    say(")");
    DIR *dir = p == BAD ? NULL : opendir(p);
    if (!dir) {
        say(" = %s", p == BAD ? "BAD" : strerrorname_np(errno));
        return;
    }
    count = 0;
    struct dirent *entry;
    errno = 0;
    while ((entry = readdir(dir)) && count < LENGTH(entries)) {
        snprintf(entries[count].name, sizeof entries[count].name, "%s", entry->d_name);
        entries[count].type = entry->d_type;
        entries[count].ino = entry->d_ino;
        count++;
    }
    say(" %s", errno ? strerrorname_np(errno) : "");
    say_entries(dirfd(dir), NULL);
    closedir(dir);
}

const struct kind listing[] = {
    { "getdents", "list", 25, do_list },
    { "getdents with changes", "list", 8, do_list_changing },
    { "getdents and lseek", "list", 6, do_list_seeking },
    { "readdir", "list", 12, do_readdir },
    { 0 },
};
