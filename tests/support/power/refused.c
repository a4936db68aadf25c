/* Calls without a trace record: below the root they end the process. */
#define _GNU_SOURCE
#include "shim.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

static void refuse_fd(int fd, const char *what) {
    struct stat status;
    if (fd_below(fd, &status))
        give_up(what);
}

static void refuse_path(const char *path, const char *what) {
    char space[PATH_MAX];
    if (resolved(AT_FDCWD, path, space))
        give_up(what);
}

void *mmap(void *where, size_t size, int protection, int flags, int fd, off_t at) {
    if (fd >= 0 && flags & MAP_SHARED && protection & PROT_WRITE)
        refuse_fd(fd, "a writable mapping is not noted");
    return (void *)syscall(SYS_mmap, where, size, protection, flags, fd, at);
}
void *mmap64(void *where, size_t size, int protection, int flags, int fd, off64_t at) {
    return mmap(where, size, protection, flags, fd, at);
}
ssize_t sendfile(int to, int from, off_t *at, size_t count) {
    refuse_fd(to, "sendfile into a file is not noted");
    return syscall(SYS_sendfile, to, from, at, count);
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t count) { return sendfile(to, from, at, count); }
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t count, unsigned flags) {
    refuse_fd(to, "copy_file_range is not noted");
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, count, flags);
}
int syncfs(int fd) {
    refuse_fd(fd, "syncfs is not noted");
    return (int)syscall(SYS_syncfs, fd);
}
int truncate(const char *path, off_t size) {
    refuse_path(path, "truncate by path is not noted");
    return (int)syscall(SYS_truncate, path, size);
}
int truncate64(const char *path, off64_t size) { return truncate(path, size); }
int symlink(const char *target, const char *path) {
    refuse_path(path, "symlink is not noted");
    return (int)syscall(SYS_symlinkat, target, AT_FDCWD, path);
}
FILE *fopen(const char *path, const char *mode) {
    NEXT(FILE *, fopen, const char *, const char *);
    if (mode[0] != 'r' || strchr(mode, '+'))
        refuse_path(path, "fopen for writing is not noted");
    return next(path, mode);
}
FILE *fopen64(const char *path, const char *mode) {
    NEXT(FILE *, fopen64, const char *, const char *);
    if (mode[0] != 'r' || strchr(mode, '+'))
        refuse_path(path, "fopen for writing is not noted");
    return next(path, mode);
}
