/* A program that is linked with a C library of its own: what it does with memory, threads, processes and signals. It works in
 * its working directory, and says what came of it. `alone KIND`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static _Thread_local int own = 7;
static _Thread_local char wide[4096] __attribute__((aligned(64)));

static void put(const char *name, const char *text)
{
	FILE *file = fopen(name, "w");
	if (!file || fputs(text, file) < 0 || fclose(file))
		printf("%s: %s\n", name, strerror(errno));
}

static void show(const char *name)
{
	char text[256];
	FILE *file = fopen(name, "r");
	while (file && fgets(text, sizeof text, file))
		printf("%s: %s\n", name, strtok(text, "\n"));
	if (file)
		fclose(file);
	else
		printf("%s: %s\n", name, strerror(errno));
}

/* --- memory --- */

/* Not every C library has a function for it. */
static char *extend(long by)
{
	char *end = (char *)syscall(SYS_brk, 0);
	return (char *)syscall(SYS_brk, end + by) == end + by ? end : 0;
}

/* GCC puts code for this on the stack. */
static int calls(int (*one)(int))
{
	return one(20);
}

static int memory(void)
{
	/* The C library takes what it needs for these before. */
	free(malloc(1000));
	puts("heap");
	char *start = extend(0), *more = extend(1 << 20);
	int grown = more == start && extend(0) == start + (1 << 20);
	memset(start, 1, 1 << 20);
	extend(-(1 << 20));
	int gone = extend(0) == start;
	more = extend(8192);
	int again = more == start && more[4096] == 0;
	printf("grown %d gone %d again %d\n", grown, gone, again);
	char *all[2000];
	for (int i = 0; i < 2000; i++)
		memset(all[i] = malloc(1000 + i * 7), i, 1000 + i * 7);
	long sum = 0;
	for (int i = 0; i < 2000; i++) {
		sum += all[i][999];
		free(all[i]);
	}
	printf("sum %ld wide %d own %d\n", sum, (int)((uintptr_t)wide % 64), own);
	int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || ftruncate(fd, 8192))
		return 1;
	char *map = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	strcpy(map + 5000, "by the mapping");
	munmap(map, 8192);
	char text[15] = "";
	printf("%zd %s\n", pread(fd, text, 14, 5000), text);
	int two = 2;
	int nested(int n) { return n + two; }
	printf("nested %d\n", calls(nested));
	printf("page %lu secure %lu random %d\n", getauxval(AT_PAGESZ), getauxval(AT_SECURE), getauxval(AT_RANDOM) != 0);
	return 0;
}

/* --- threads --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t come = PTHREAD_COND_INITIALIZER;
static int there;

static void *writes(void *argument)
{
	long n = (long)argument;
	char name[32], text[32];
	own += n;
	memset(wide, n, sizeof wide);
	snprintf(name, sizeof name, "thread%ld", n);
	for (int i = 0; i < 20; i++) {
		snprintf(text, sizeof text, "%ld %d\n", n, i);
		put(name, text);
	}
	pthread_mutex_lock(&lock);
	there++;
	pthread_cond_signal(&come);
	pthread_mutex_unlock(&lock);
	return (void *)(long)(own * 1000 + wide[100]);
}

static void *forks(void *unused)
{
	pid_t child = fork();
	if (!child) {
		put("by-a-threads-child", "child\n");
		_exit(own);
	}
	int status;
	waitpid(child, &status, 0);
	return (void *)(long)WEXITSTATUS(status);
}

static int threads(void)
{
	pthread_t all[8];
	for (long n = 0; n < 8; n++)
		pthread_create(&all[n], 0, writes, (void *)n);
	pthread_mutex_lock(&lock);
	while (there < 8)
		pthread_cond_wait(&come, &lock);
	pthread_mutex_unlock(&lock);
	for (int n = 0; n < 8; n++) {
		void *answer;
		pthread_join(all[n], &answer);
		printf("%d: %ld\n", n, (long)answer);
	}
	void *answer;
	pthread_create(&all[0], 0, forks, 0);
	pthread_join(all[0], &answer);
	printf("child %ld\n", (long)answer);
	show("by-a-threads-child");
	/* Each has memory of its own, which is given back. */
	for (long n = 0; n < 300; n++) {
		pthread_create(&all[0], 0, (void *(*)(void *))getpid, 0);
		pthread_join(all[0], 0);
	}
	pthread_attr_t detached;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	there = 0;
	for (long n = 0; n < 20; n++)
		pthread_create(&all[0], &detached, writes, (void *)n);
	pthread_mutex_lock(&lock);
	while (there < 20)
		pthread_cond_wait(&come, &lock);
	pthread_mutex_unlock(&lock);
	/* Of all threads, by a signal to each. */
	printf("group %d\n", setgid(getgid()));
	show("thread7");
	printf("own %d\n", own);
	return 0;
}

/* --- processes --- */

/* What a child has that begins without handlers: bit 0: of one signal none, bit 1: another one is still ignored. */
static int without_handlers(void)
{
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	} how = {.flags = 1ULL << 32, .exit_signal = SIGCHLD};
	signal(SIGUSR1, exit);
	signal(SIGUSR2, SIG_IGN);
	pid_t child = syscall(SYS_clone3, &how, sizeof how);
	if (!child) {
		struct sigaction one, other;
		sigaction(SIGUSR1, 0, &one);
		sigaction(SIGUSR2, 0, &other);
		put("without", "handlers\n");
		_exit((one.sa_handler == SIG_DFL) + 2 * (other.sa_handler == SIG_IGN));
	}
	int status = 0;
	waitpid(child, &status, 0);
	struct sigaction own;
	sigaction(SIGUSR1, 0, &own);
	return WEXITSTATUS(status) + 4 * (own.sa_handler == exit);
}

static int processes(const char *self)
{
	put("before", "here\n");
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		show("before");
		put("made", "by the child\n");
		exit(3);
	}
	int status;
	waitpid(child, &status, 0);
	printf("fork %d\n", WEXITSTATUS(status));
	show("made");
	fflush(stdout);
	printf("system %d\n", WEXITSTATUS(system("cat made > copy; exit 5")));
	show("copy");
	FILE *pipe = popen("cat copy; echo through", "r");
	char line[64];
	while (pipe && fgets(line, sizeof line, pipe))
		printf("read %s", line);
	printf("closed %d\n", pipe ? pclose(pipe) : -1);
	char *words[] = {"sh", "-c", "echo spawned > spawned; exit 6", 0};
	if (posix_spawn(&child, "/bin/sh", 0, 0, words, environ) == 0)
		waitpid(child, &status, 0);
	printf("spawn %d\n", WEXITSTATUS(status));
	show("spawned");
	child = vfork();
	if (!child)
		_exit(8);
	waitpid(child, &status, 0);
	printf("vfork %d\n", WEXITSTATUS(status));
	volatile int why = 0, started = 0;
	child = vfork();
	if (!child) {
		started = 1;
		execl("./missing", "missing", (char *)0);
		why = errno;
		_exit(9);
	}
	waitpid(child, &status, 0);
	printf("vfork %d: started %d, why not %d\n", WEXITSTATUS(status), started, why);
	char *missing[] = {"missing", 0};
	int error = posix_spawn(&child, "./missing", 0, 0, missing, environ);
	printf("spawn of nothing %d, waiting %d\n", error, waitpid(-1, &status, 0) < 0 ? errno : 0);
	fflush(stdout);
	child = fork();
	if (!child) {
		execl("/proc/self/exe", self, "memory", (char *)0);
		_exit(errno);
	}
	waitpid(child, &status, 0);
	printf("itself %d\n", WEXITSTATUS(status));
	printf("handlers %d\n", without_handlers());
	show("without");
	printf("none %d\n", execl("./missing", "missing", (char *)0) == -1 ? errno : 0);
	put("not-run", "text\n");
	printf("not to be run %d\n", execl("./not-run", "not-run", (char *)0) == -1 ? errno : 0);
	return 0;
}

/* --- children that are waited for --- */

static char *missing[] = {"missing", 0};

/* What a child changes that can't run a program: on its parent's stack, and in memory that has come by it. */
static void changes(void)
{
	int status;
	char *volatile made = 0;
	volatile int step = 0;
	fflush(stdout);
	pid_t child = vfork();
	if (!child) {
		made = malloc(300000);
		strcpy(made, "made");
		free(malloc(100));
		step = 1;
		execv("./missing", missing);
		step = 2;
		_exit(9);
	}
	waitpid(child, &status, 0);
	if (made && strcmp(made, "made"))
		puts("another");
	free(made);
	printf("%d: step %d\n", WEXITSTATUS(status), step);
	/* The kernel itself refuses the first one, so much is it. */
	static char much[200000];
	memset(much, 'x', sizeof much - 1);
	char *words[] = {"much", much, 0};
	child = vfork();
	if (!child) {
		step = 7;
		execv("/bin/sh", words);
		step = errno == E2BIG ? 2 : 8;
		execv("./missing", missing);
		_exit(9);
	}
	waitpid(child, &status, 0);
	printf("%d: step %d\n", WEXITSTATUS(status), step);
	for (int n = 0; n < 100; n++)
		free(malloc(n * 100));
}

static void *changes_in_thread(void *unused)
{
	int status;
	(void)unused;
	fflush(stdout);
	pid_t child = vfork();
	if (!child) {
		free(malloc(100));
		own = own + 0;
		mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		execv("./missing", missing);
		_exit(9);
	}
	waitpid(child, &status, 0);
	for (int n = 0; n < 100; n++)
		free(malloc(n * 100));
	printf("in a thread %d, own %d\n", WEXITSTATUS(status), own);
	return 0;
}

static void spawns(int signal)
{
	int status;
	pid_t child;
	(void)signal;
	if (!posix_spawn(&child, "./missing", 0, 0, missing, environ))
		waitpid(child, &status, 0);
}

static int vforks(void)
{
	pthread_t thread;
	changes();
	pthread_create(&thread, 0, changes_in_thread, 0);
	pthread_join(thread, 0);
	static char place[65536];
	stack_t stack = {.ss_sp = place, .ss_size = sizeof place};
	struct sigaction action = {.sa_handler = spawns, .sa_flags = SA_ONSTACK};
	sigaltstack(&stack, 0);
	sigaction(SIGUSR1, &action, 0);
	for (int n = 0; n < 3; n++)
		raise(SIGUSR1);
	puts("handlers spawn");
	put("vforks", "done\n");
	return 0;
}

/* --- signals --- */

static volatile sig_atomic_t handled;
static sigjmp_buf back;

static void count(int signal)
{
	(void)signal;
	int before = errno;
	handled += own;
	put("handled", "in a handler\n");
	errno = before;
}

static void jump(int signal)
{
	siglongjmp(back, signal);
}

static volatile sig_atomic_t within, deepest;

/* Waits in the handler, in which its signal is blocked. */
static void slow(int signal)
{
	if (++within > deepest)
		deepest = within;
	if (handled++ < 5)
		kill(getpid(), signal);
	usleep(2000);
	within--;
}

static volatile sig_atomic_t known;

/* Whether it runs on the stack that is said to be the one for handlers. */
static void ask(int signal)
{
	stack_t now;
	char *here = (char *)&now, *start;
	(void)signal;
	if (sigaltstack(0, &now))
		return;
	start = now.ss_sp;
	known += now.ss_flags == SS_ONSTACK && here >= start && here < start + now.ss_size;
}

static void ask_twice(int signal)
{
	ask(signal);
	kill(getpid(), SIGUSR1);
}

static void install(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	sigaction(signal, &action, 0);
}

static void after(int ms)
{
	struct itimerval time = {.it_value = {.tv_usec = ms * 1000}};
	setitimer(ITIMER_REAL, &time, 0);
}

static int signals(void)
{
	char byte;
	int ends[2];
	if (pipe(ends))
		return 1;
	static char stack[64 << 10];
	stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
	sigaltstack(&other, 0);
	install(SIGUSR1, count, 0);
	raise(SIGUSR1);
	kill(getpid(), SIGUSR1);
	printf("handled %d\n", handled);
	show("handled");
	/* In a wait, with and without a stack of its own. */
	for (int flags = 0; flags < 2; flags++) {
		install(SIGALRM, count, flags ? SA_ONSTACK : 0);
		after(30);
		ssize_t got = read(ends[0], &byte, 1);
		printf("read %zd %d\n", got, got < 0 ? errno : 0);
		own += 1;
		printf("handled %d\n", handled);
	}
	/* A wait goes on after it. */
	install(SIGALRM, count, SA_RESTART | SA_ONSTACK);
	pid_t child = fork();
	if (!child) {
		usleep(80000);
		_exit(write(ends[1], "x", 1) != 1);
	}
	after(20);
	printf("read %zd %c\n", read(ends[0], &byte, 1), byte);
	int status;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	/* Out of a wait. */
	install(SIGALRM, jump, SA_ONSTACK);
	for (int round = 0; round < 3; round++) {
		int how = sigsetjmp(back, 1);
		if (how == 0) {
			after(20);
			if (read(ends[0], &byte, 1))
				puts("woken");
		} else {
			printf("out by %d\n", how);
		}
	}
	/* What it runs on. */
	install(SIGUSR1, ask, SA_ONSTACK);
	raise(SIGUSR1);
	install(SIGALRM, ask_twice, SA_ONSTACK);
	after(20);
	if (read(ends[0], &byte, 1) < 0)
		printf("known %d\n", known);
	install(SIGUSR1, count, 0);
	/* One that an instruction raises. */
	install(SIGSEGV, jump, SA_ONSTACK | SA_NODEFER);
	if (sigsetjmp(back, 1) == 0)
		*(volatile int *)8 = 1;
	else
		puts("no such memory");
	sigset_t set, before;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, &before);
	raise(SIGUSR1);
	printf("blocked %d\n", handled);
	sigemptyset(&set);
	sigsuspend(&set);
	printf("taken %d\n", handled);
	stack_t now;
	sigaltstack(0, &now);
	printf("stack %d of %d\n", (int)now.ss_size, now.ss_flags);
	handled = 0;
	install(SIGUSR1, slow, SA_ONSTACK);
	kill(getpid(), SIGUSR1);
	install(SIGUSR1, SIG_IGN, 0);
	printf("deepest %d\n", deepest);
	child = fork();
	if (!child) {
		signal(SIGUSR2, SIG_DFL);
		raise(SIGUSR2);
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("child ended by %d\n", WTERMSIG(status));
	return 0;
}

int main(int count, char **words)
{
	const char *kind = count > 1 ? words[1] : "";
	setvbuf(stdout, 0, _IOLBF, 0);
	if (!strcmp(kind, "memory"))
		return memory();
	if (!strcmp(kind, "threads"))
		return threads();
	if (!strcmp(kind, "processes"))
		return processes(words[0]);
	if (!strcmp(kind, "vforks"))
		return vforks();
	if (!strcmp(kind, "signals"))
		return signals();
	if (!strcmp(kind, "arguments")) {
		char path[4096] = "";
		put("seen", "arguments\n");
		if (readlink("/proc/self/exe", path, sizeof path - 1) < 0)
			return 1;
		printf("%s\n", strrchr(path, '/'));
		for (int n = 0; n < count; n++)
			printf("<%s>\n", words[n]);
		for (char **variable = environ; *variable; variable++)
			if (strstr(*variable, "LD_") || !strncmp(*variable, "TXOS_PROGRAM", 12) || strstr(*variable, "MEMBER"))
				puts(*variable);
		printf("%s\n", strrchr((char *)getauxval(AT_EXECFN), '/'));
		show("/proc/self/comm");
		show("/proc/self/cmdline");
		return 0;
	}
	if (!strcmp(kind, "fail")) {
		put("never", "there\n");
		unlink("kept");
		return 9;
	}
	return 2;
}
