/* What scenarios do with files, and ask of children. */
#ifndef TXOS_TESTS_FILES_H
#define TXOS_TESTS_FILES_H

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"

static inline void put(const char *path, const char *text, int flags) {
    int fd = open(path, O_WRONLY | flags, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static inline int holds(const char *path, const char *text) {
    char buffer[256] = {0};
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, buffer, sizeof buffer - 1);
    CHECK(n >= 0 && close(fd) == 0);
    return strcmp(buffer, text) == 0;
}

static inline int is_there(const char *path) {
    struct stat s;
    return lstat(path, &s) == 0;
}

/* What a child ended with; 256 and more: the signal that killed it. */
static inline int end_of(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

#endif
