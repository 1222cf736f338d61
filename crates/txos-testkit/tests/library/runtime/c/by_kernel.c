/* Calls whose paths the kernel looks up, made in directories that only the transaction has changed to, made or
 * moved. Each argument is a scene; the last is the status to end with. */
#define _GNU_SOURCE
#include "raw.h"

#include <fcntl.h>
#include <stddef.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static void say(const char *what, long answer)
{
    printf("%s: %s\n", what, answer < 0 ? strerrorname_np(errno) : "done");
    fflush(stdout);
}

static struct sockaddr_un name_of(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    return name;
}

static int new_socket(int kind) { return (int)syscall(SYS_socket, AF_UNIX, kind, 0); }

static long bound(int fd, const char *path)
{
    struct sockaddr_un name = name_of(path);
    return RAW(SYS_bind, fd, &name, sizeof name);
}

static long connected(const char *path, int kind)
{
    struct sockaddr_un name = name_of(path);
    int fd = new_socket(kind);
    long answer = RAW(SYS_connect, fd, &name, sizeof name);
    int was = errno;
    close(fd);
    errno = was;
    return answer;
}

static void bind_in(const char *dir)
{
    struct stat st;
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    char here[4096];
    say("chdir", chdir(dir));
    int server = new_socket(SOCK_STREAM);
    say("bind", bound(server, "sock"));
    say("bind again", bound(server, "other"));
    say("bind another", bound(new_socket(SOCK_STREAM), "sock"));
    say("listen", RAW(SYS_listen, server, 5));
    memset(&name, 0, sizeof name);
    RAW(SYS_getsockname, server, &name, &size);
    printf("name %s %d\n", name.sun_path, (int)(size - offsetof(struct sockaddr_un, sun_path)));
    say("connect", connected("sock", SOCK_STREAM));
    if (getcwd(here, sizeof here) && strlen(here) < 90)
        say("connect by the whole path", connected(strcat(here, "/sock"), SOCK_STREAM));
    say("accept", RAW(SYS_accept, server, NULL, NULL));
    say("chdir", chdir(".."));
    say("connect to the old one", connected("sock", SOCK_STREAM));
    snprintf(here, sizeof here, "%s/sock", dir);
    say("stat", stat(here, &st));
    printf("%s\n", S_ISSOCK(st.st_mode) ? "a socket" : "something else");
    snprintf(here, sizeof here, "%s/moved", dir);
    say("rename", rename(dir[0] == 'd' ? "dir/sock" : "new/sock", here));
    say("connect to the moved one", connected(here, SOCK_STREAM));
}

static void long_path(void)
{
    char part[100];
    memset(part, 'p', sizeof part - 1), part[sizeof part - 1] = 0;
    for (int i = 0; i < 3; i++)
        mkdir(part, 0755), chdir(part);
    int server = new_socket(SOCK_STREAM);
    say("bind far down", bound(server, "sock"));
    say("listen far down", RAW(SYS_listen, server, 5));
    say("connect far down", connected("sock", SOCK_STREAM));
}

/* The scene has sockets that somebody outside listens at: dir/stream and dir/datagrams. */
static void connect_moved(void)
{
    struct sockaddr_un name = name_of("moved/datagrams");
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1};
    int fd = new_socket(SOCK_DGRAM);
    say("rename", rename("dir", "moved"));
    say("connect", connected("moved/stream", SOCK_STREAM));
    say("connect by the old name", connected("dir/stream", SOCK_STREAM));
    say("sendto", RAW(SYS_sendto, fd, "x", 1, 0, &name, sizeof name));
    say("sendmsg", RAW(SYS_sendmsg, fd, &message, 0));
    say("chdir", chdir("moved"));
    say("connect", connected("stream", SOCK_STREAM));
    say("connect to a file", connected("file", SOCK_STREAM));
    say("connect to nothing", connected("none", SOCK_STREAM));
}

static void run_programs(void)
{
    char *const none[] = {"x", NULL};
    say("chdir", chdir("dir"));
    say("exec of what is above", RAW(SYS_execve, "./above", none, none));
    say("exec of a file", RAW(SYS_execve, "file", none, none));
    say("rename", rename("program", "renamed"));
    say("exec by the old name", RAW(SYS_execve, "program", none, none));
}

static void mounts(void)
{
    struct stat st;
    say("chdir", chdir("dir"));
    say("mount", RAW(SYS_mount, "none", "inner", "tmpfs", 0, NULL));
    say("umount", RAW(SYS_umount2, "inner", MNT_DETACH));
    say("mount on nothing", RAW(SYS_mount, "none", "none", "tmpfs", 0, NULL));
    say("mkdir", mkdir("made", 0755));
    say("mount on what was made", RAW(SYS_mount, "none", "made", "tmpfs", 0, NULL));
    say("rename", rename("inner", "else"));
    say("mount by the old name", RAW(SYS_mount, "none", "inner", "tmpfs", 0, NULL));
    say("umount by the old name", RAW(SYS_umount2, "inner", MNT_DETACH));
    say("open_tree", RAW(SYS_open_tree, AT_FDCWD, "else", 0));
    say("open_tree by the old name", RAW(SYS_open_tree, AT_FDCWD, "inner", 0));
    say("swapon", RAW(SYS_swapon, "file", 0));
    int watch = inotify_init1(IN_NONBLOCK);
    say("watch", RAW(SYS_inotify_add_watch, watch, "else", IN_CREATE));
    say("watch by the old name", RAW(SYS_inotify_add_watch, watch, "inner", IN_CREATE));
    say("stat", stat("else", &st));
}

static void relative(void)
{
    struct stat st;
    char here[4096];
    say("stat .", stat(".", &st));
    say("stat ..", stat("..", &st));
    say("stat none", stat("none", &st));
    say("stat file", stat("file", &st));
    say("stat inner/file", stat("inner/file", &st));
    say("open .", open(".", O_RDONLY | O_DIRECTORY));
    say("open file", open("file", O_RDONLY));
    say("access", access("file", R_OK));
    say("creat", open("created", O_CREAT | O_RDWR, 0644));
    say("mkdir", mkdir("made", 0755));
    say("unlink", unlink("none"));
    say("rename", rename("none", "else"));
    say("stat ../above", stat("../above", &st));
    say("getcwd", getcwd(here, sizeof here) ? 0 : -1);
    say("whole path", stat("/etc/passwd", &st));
    say("chdir ..", chdir(".."));
    say("stat above", stat("above", &st));
}

/* A server that binds in a transaction, and is connected to from outside of it. */
static void serve(void)
{
    if (!sys_xbegin)
        return;
    int server = -1;
    if (sys_xbegin(0) != 0)
        return say("begin", -1);
    server = new_socket(SOCK_STREAM);
    say("bind", bound(server, "service"));
    say("listen", RAW(SYS_listen, server, 5));
    say("connect from inside", connected("service", SOCK_STREAM));
    long paused = sys_xpause();
    say("connect from outside before", connected("service", SOCK_STREAM));
    say("resume", sys_xresume(paused));
    say("end", sys_xend());
    say("connect from outside after", connected("service", SOCK_STREAM));
    say("accept", RAW(SYS_accept, server, NULL, NULL));
}

int main(int count, char **words)
{
    int fd = -1;
    struct {
        const char *name;
        void (*play)(void);
    } scenes[] = {{"long", long_path},   {"connect", connect_moved}, {"programs", run_programs},
                  {"mounts", mounts},    {"relative", relative},   {"serve", serve}};
    for (int i = 1; i + 1 < count; i++) {
        for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++)
            if (strcmp(words[i], scenes[s].name) == 0)
                scenes[s].play();
        if (strcmp(words[i], "bind") == 0)
            bind_in("dir");
        if (strcmp(words[i], "bind-new") == 0)
            say("mkdir", mkdir("new", 0755)), bind_in("new");
        if (strcmp(words[i], "write") == 0)
            fd = open(words[++i], O_WRONLY | O_CREAT, 0644), say("write", write(fd, "x", 1));
        if (strcmp(words[i], "fifo") == 0) {
            fd = open("fifo", O_RDWR);
            say("write to the pipe", write(fd, "x", 1));
            say("chmod", chmod("fifo", 0640));
            say("write to the pipe", write(fd, "y", 1));
        }
    }
    return atoi(words[count - 1]);
}
