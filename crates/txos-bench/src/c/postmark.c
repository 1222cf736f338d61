/* What PostMark does (Katcher, 1997), by its published parameters: a pool of small files, and
 * transactions on it, each a read or an append of one file and the creation or the removal of one.
 *
 *     postmark DIR make|play|remove plain|each|each-durable|transaction|durable
 *
 * `make` makes the pool, `play` does the transactions, `remove` removes what is left. `each` has each
 * of its transactions be one; `transaction` the whole phase. `pool` and `plays` in the environment
 * change their numbers (500 and 500); sizes are 500 to 10,000 bytes, blocks 512, all choices even. */
#include "common.h"

#include <dirent.h>

enum { LEAST = 500, MOST = 10000, BLOCK = 512, ROOM = 1 << 20 };

static int pool = 500, plays = 500, each, flags = -1;
static const char *dir;
static char path[4096], buffer[MOST + BLOCK];
static int there[ROOM], count, next;
static uint64_t seed = 42;

static uint64_t chance(uint64_t below) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % below;
}

static void name(int i) {
    snprintf(path, sizeof path, "%s/%d", dir, i);
}

static void put(int how, int size) {
    int fd = MUST(open(path, O_WRONLY | how, 0644));
    for (int at = 0; at < size; at += BLOCK) {
        int some = size - at < BLOCK ? size - at : BLOCK;
        if (write(fd, buffer + at, some) != some)
            die("write");
    }
    MUST(close(fd));
}

static void create(void) {
    if (next == ROOM)
        die("too many files");
    name(next);
    put(O_CREAT | O_EXCL, LEAST + chance(MOST - LEAST));
    there[count++] = next++;
}

static void delete(int n) {
    name(there[n]);
    MUST(unlink(path));
    there[n] = there[--count];
}

static void read_one(int n) {
    ssize_t got;
    name(there[n]);
    int fd = MUST(open(path, O_RDONLY));
    while ((got = MUST(read(fd, buffer, BLOCK))) > 0)
        continue;
    MUST(close(fd));
}

static void begin(void) {
    if (flags >= 0 && sys_xbegin(flags) != 0)
        die("begin");
}

static void end(void) {
    if (flags >= 0 && sys_xend() != 0)
        die("end");
}

static void make(void) {
    while (count < pool)
        create();
}

static void play(void) {
    for (int n = 0; n < plays; n++) {
        if (each)
            begin();
        if (count && chance(2))
            read_one(chance(count));
        else if (count) {
            name(there[chance(count)]);
            put(O_APPEND, 1 + chance(MOST - LEAST));
        }
        if (!count || chance(2))
            create();
        else
            delete(chance(count));
        if (each)
            end();
    }
}

static void remove_all(void) {
    while (count)
        delete(count - 1);
}

/* What an earlier phase has left. */
static void look(void) {
    struct dirent *entry;
    DIR *stream = opendir(dir);
    if (!stream)
        die("opendir");
    while ((entry = readdir(stream)))
        if (entry->d_name[0] != '.' && count < ROOM) {
            there[count] = atoi(entry->d_name);
            if (there[count++] >= next)
                next = there[count - 1] + 1;
        }
    closedir(stream);
}

static int number(const char *key, int otherwise) {
    const char *text = getenv(key);
    return text ? atoi(text) : otherwise;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    dir = argv[1];
    pool = number("pool", pool);
    plays = number("plays", plays);
    int playing = !strcmp(argv[2], "play");
    each = playing && !strncmp(argv[3], "each", 4);
    if (strcmp(argv[3], "plain"))
        flags = strstr(argv[3], "durable") ? TX_DURABLE : 0;
    memset(buffer, 'p', sizeof buffer);
    if (!each)
        begin();
    if (strcmp(argv[2], "make"))
        look();
    if (!strcmp(argv[2], "make"))
        make();
    else if (playing)
        play();
    else
        remove_all();
    if (!each)
        end();
    return 0;
}
