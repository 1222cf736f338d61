/* Files that threads move from one directory to another and back, as often as they can; prints how
 * many moves they made a second.
 *
 *     renames DIR rename|pair|transaction own|common THREADS MILLISECONDS
 *
 * By rename(); by link() and unlink(), which others see in between; or by both of these in a
 * transaction. Each thread moves a file of its own, between two directories of its own or common to
 * all. */
#include "common.h"

#include <pthread.h>

static enum { RENAME, PAIR, TRANSACTION } how;
static const char *dir;
static int common;
static double ns;
static pthread_barrier_t ready;

struct mover {
    pthread_t thread;
    int number;
    double rate;
    long again; /* transactions that began again */
};

static void at(char *to, size_t room, int directory, int number) {
    snprintf(to, room, "%s/%c%d/file%d", dir, 'a' + directory, common ? 0 : number, number);
}

static void move_one(struct mover *m, const char *from, const char *to) {
    if (how == RENAME) {
        MUST(rename(from, to));
        return;
    }
    if (how == TRANSACTION) {
        int attempt = sys_xbegin(TX_RESTART);
        if (attempt < 0)
            die("begin");
        m->again += attempt > 0;
    }
    MUST(link(from, to));
    MUST(unlink(from));
    if (how == TRANSACTION && sys_xend() != 0)
        die("end");
}

static void *run(void *own) {
    struct mover *m = own;
    char places[2][4096];
    long count = 0;
    pin(m->number);
    at(places[0], sizeof places[0], 0, m->number);
    at(places[1], sizeof places[1], 1, m->number);
    pthread_barrier_wait(&ready);
    double start = now(), end;
    do {
        move_one(m, places[count % 2], places[(count + 1) % 2]);
        count++;
        end = now();
    } while (end < start + ns);
    m->rate = count * 1e9 / (end - start);
    return NULL;
}

int main(int argc, char **argv) {
    static const char *const hows[] = {"rename", "pair", "transaction"};
    if (argc != 6)
        return 2;
    dir = argv[1];
    while (strcmp(hows[how], argv[2]))
        if (++how > TRANSACTION)
            return 2;
    common = !strcmp(argv[3], "common");
    int threads = atoi(argv[4]);
    ns = atof(argv[5]) * 1e6;
    MUST(mkdir(dir, 0755));
    struct mover *movers = calloc(threads, sizeof *movers);
    for (int t = 0; t < threads; t++) {
        char path[4096];
        for (int d = 0; d < 2; d++) {
            snprintf(path, sizeof path, "%s/%c%d", dir, 'a' + d, t);
            MUST(mkdir(path, 0755));
        }
    }
    pthread_barrier_init(&ready, NULL, threads);
    if (how == TRANSACTION)
        use_once(dir, 0);
    for (int t = 0; t < threads; t++) {
        char path[4096];
        at(path, sizeof path, 0, t);
        MUST(close(MUST(open(path, O_WRONLY | O_CREAT | O_EXCL, 0644))));
    }
    for (int t = 0; t < threads; t++) {
        movers[t].number = t;
        if (pthread_create(&movers[t].thread, NULL, run, &movers[t]))
            die("a thread");
    }
    double rate = 0;
    long again = 0;
    for (int t = 0; t < threads; t++) {
        pthread_join(movers[t].thread, NULL);
        rate += movers[t].rate;
        again += movers[t].again;
    }
    printf("rate %.1f\nagain %ld\n", rate, again);
    return 0;
}
