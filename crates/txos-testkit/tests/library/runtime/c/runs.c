/* Runs a program in a transaction of its own, by a child that is in it; `runs commit|abort PROGRAM ARGUMENT`. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <txos.h>
#include <unistd.h>

int main(int count, char **words)
{
	if (count != 4 || sys_xbegin(TX_PROCESSES) < 0)
		return 1;
	FILE *file = fopen("by-parent", "w");
	if (!file || fputs("parent\n", file) < 0 || fclose(file))
		return 2;
	pid_t child = fork();
	if (!child) {
		execl(words[2], words[2], words[3], (char *)0);
		_exit(127);
	}
	int status;
	if (waitpid(child, &status, 0) != child)
		return 3;
	printf("ended %d, made %d\n", WEXITSTATUS(status), access("mapped", F_OK) == 0);
	fflush(stdout);
	if (!strcmp(words[1], "commit"))
		return sys_xend() ? 4 : 0;
	sys_xabort(1);
	return 5;
}
