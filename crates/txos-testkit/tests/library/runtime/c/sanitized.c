/* What programs that are built with a sanitizer do: threads, memory, children, another program, and, if asked, an error. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef CHECKS_LEAKS
const char *__asan_default_options(void) { return "detect_leaks=0"; }
const char *__lsan_default_options(void) { return "detect_leaks=0"; }
#endif

static int counter, racy;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *name)
{
    for (int i = 0; i < 20; i++) {
        char *text = malloc(100);
        snprintf(text, 100, "%s %d\n", (char *)name, i);
        FILE *file = fopen(name, "a");
        if (!file || fputs(text, file) < 0 || fclose(file)) abort();
        free(text);
        pthread_mutex_lock(&lock);
        counter++;
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

static void *races(void *arg)
{
    for (int i = 0; i < 100000; i++)
        racy++;
    return arg;
}

int main(int argc, char **argv)
{
    char *names[] = {"a", "b", "c"};
    pthread_t threads[3];
    int status;
    const char *how = argc > 1 ? argv[1] : "";
    mkdir("dir", 0755);

    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, work, names[i]);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    if (rename("a", "dir/a"))
        return 9;
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        FILE *file = fopen("child", "w");
        fputs("child\n", file);
        fclose(file);
        _exit(7);
    }
    waitpid(child, &status, 0);
    printf("%d %d %d\n", counter, WEXITSTATUS(status), system("cat child dir/a | wc -l; echo x > dir/sub"));
    fflush(stdout);
    if (!strcmp(how, "address")) {
        char *memory = malloc(10);
        memory[argc + 9] = 1;
        free(memory);
    }
    if (!strcmp(how, "thread")) {
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], 0, races, 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], 0);
    }
    if (!strcmp(how, "undefined")) {
        volatile int number = 2147483647;
        number += argc;
    }
    return !strcmp(how, "fail") ? 3 : 0;
}
