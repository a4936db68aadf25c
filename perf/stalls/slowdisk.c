/* Preloaded into the daemon: every call on a file below $NSQC_TEST_SLOW_PATH takes $NSQC_TEST_SLOW_MS longer. Sockets, pipes and
 * other files are left alone: what lies below the path is noted for each descriptor when it is opened.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FDS = 1 << 16 };

static char below[MAX_FDS];
static const char *root;
static size_t root_size;
static struct timespec pause_for;

__attribute__((constructor)) static void configure(void) {
    const char *ms = getenv("NSQC_TEST_SLOW_MS");
    long each = ms ? atol(ms) : 0;
    pause_for = (struct timespec){.tv_sec = each / 1000, .tv_nsec = each % 1000 * 1000000};
    root = getenv("NSQC_TEST_SLOW_PATH");
    root_size = root ? strlen(root) : 0;
}

static void slow(void) {
    int error = errno;
    struct timespec left = pause_for;
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
    errno = error;
}

static int inside(const char *path) {
    return root_size && path && !strncmp(path, root, root_size) && (path[root_size] == '/' || !path[root_size]);
}

static int known(int fd) { return fd >= 0 && fd < MAX_FDS && below[fd]; }

/* The path that a descriptor leads to now. */
static void path_of(int fd, char path[PATH_MAX]) {
    char link[64];
    int error = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size > 0 ? size : 0] = 0;
    errno = error;
}

/* After an open: where the descriptor leads, whatever name it was opened by. A folder counts for fsync. */
static int opened(int fd) {
    char path[PATH_MAX];
    if (fd < 0 || fd >= MAX_FDS || !root_size)
        return fd;
    path_of(fd, path);
    below[fd] = (char)inside(path);
    if (below[fd])
        slow();
    return fd;
}

/* NEXT(type of the result, name, types of the arguments): the function behind ours. */
#define NEXT(result, name, ...) \
    static result (*next)(__VA_ARGS__); \
    if (!next) \
        next = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define ON_FD(result, name, types, declared, passed) \
    result name declared { \
        NEXT(result, name, types); \
        if (!known(fd)) \
            return next passed; \
        slow(); \
        return next passed; \
    }
#define TYPES(...) __VA_ARGS__

ON_FD(ssize_t, write, TYPES(int, const void *, size_t), (int fd, const void *from, size_t size),
      (fd, from, size))
ON_FD(ssize_t, pwrite, TYPES(int, const void *, size_t, off_t),
      (int fd, const void *from, size_t size, off_t at), (fd, from, size, at))
ON_FD(ssize_t, pwrite64, TYPES(int, const void *, size_t, off64_t),
      (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at))
ON_FD(ssize_t, writev, TYPES(int, const struct iovec *, int), (int fd, const struct iovec *from, int count),
      (fd, from, count))
ON_FD(ssize_t, pwritev, TYPES(int, const struct iovec *, int, off_t),
      (int fd, const struct iovec *from, int count, off_t at), (fd, from, count, at))
ON_FD(ssize_t, pwritev64, TYPES(int, const struct iovec *, int, off64_t),
      (int fd, const struct iovec *from, int count, off64_t at), (fd, from, count, at))
ON_FD(ssize_t, read, TYPES(int, void *, size_t), (int fd, void *to, size_t size), (fd, to, size))
ON_FD(ssize_t, pread, TYPES(int, void *, size_t, off_t), (int fd, void *to, size_t size, off_t at),
      (fd, to, size, at))
ON_FD(ssize_t, pread64, TYPES(int, void *, size_t, off64_t), (int fd, void *to, size_t size, off64_t at),
      (fd, to, size, at))
ON_FD(ssize_t, readv, TYPES(int, const struct iovec *, int), (int fd, const struct iovec *to, int count),
      (fd, to, count))
ON_FD(ssize_t, preadv, TYPES(int, const struct iovec *, int, off_t),
      (int fd, const struct iovec *to, int count, off_t at), (fd, to, count, at))
ON_FD(int, fsync, TYPES(int), (int fd), (fd))
ON_FD(int, fdatasync, TYPES(int), (int fd), (fd))
ON_FD(int, ftruncate, TYPES(int, off_t), (int fd, off_t size), (fd, size))
ON_FD(int, ftruncate64, TYPES(int, off64_t), (int fd, off64_t size), (fd, size))

int close(int fd) {
    NEXT(int, close, int);
    if (known(fd))
        below[fd] = 0;
    return next(fd);
}

static mode_t mode_of(int flags, va_list *args) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(*args, mode_t) : 0; }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        NEXT(int, name, const char *, int, ...); \
        va_list args; \
        va_start(args, flags); \
        mode_t mode = mode_of(flags, &args); \
        va_end(args); \
        return opened(next(path, flags, mode)); \
    }
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        NEXT(int, name, int, const char *, int, ...); \
        va_list args; \
        va_start(args, flags); \
        mode_t mode = mode_of(flags, &args); \
        va_end(args); \
        return opened(next(folder, path, flags, mode)); \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int rename(const char *from, const char *to) {
    NEXT(int, rename, const char *, const char *);
    if (inside(from) || inside(to))
        slow();
    return next(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    NEXT(int, renameat, int, const char *, int, const char *);
    if (known(from_folder) || inside(from) || inside(to))
        slow();
    return next(from_folder, from, to_folder, to);
}

int unlink(const char *path) {
    NEXT(int, unlink, const char *);
    if (inside(path))
        slow();
    return next(path);
}

int unlinkat(int folder, const char *path, int flags) {
    NEXT(int, unlinkat, int, const char *, int);
    if (known(folder) || inside(path))
        slow();
    return next(folder, path, flags);
}
