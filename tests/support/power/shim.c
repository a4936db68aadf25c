/* Preloaded into the daemon: records, with contents, all its changes to files below $NSQC_TEST_TRACE_ROOT, in the order in
 * which they took effect, and syncs by their beginning and end. From that, tests/support/power/disk.py rebuilds the
 * possible contents of a disk after a power failure.
 *
 * $NSQC_TEST_TRACE is a mapped file, so it is whole after kill -9. It begins with `Control`, through which the test reads
 * the length of the trace, and requests a kill or failing calls. The records follow. A call that this file cannot record
 * ends the process: a gap in the trace would invalidate the proof.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum Fault { WRITES, READS, SYNCS, FAULTS };
enum Kind { FOLDER = 1, FILE_, WRITE, TRUNCATE, GROW, SYNC, SYNCED, LOST, CREATE, MKDIR, RENAME, LINK, UNLINK, RMDIR, START };

typedef struct {
    int64_t skip, times, error;     /* calls that still succeed; calls that fail after them; errno */
    int64_t done;                   /* calls that have failed */
} Failing;

typedef struct {
    uint64_t size;                  /* bytes of records, published after each */
    uint64_t room;                  /* their limit; more ends the process */
    uint64_t kill_kinds;            /* bits of the kinds of records that count down to a kill */
    int64_t kill_count;             /* the process is killed with the last of this many; 0: never */
    Failing failing[FAULTS];
} Control;

typedef struct {
    uint32_t kind, path, to, data;  /* sizes of the following data: a path below the root, another, contents */
    uint64_t inode;
    int64_t at;                     /* position; size; for SYNCED and LOST: where the record of their SYNC begins */
} Record;

static Control *control;
static char root[PATH_MAX];
static size_t root_size;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void give_up(const char *why) {
    dprintf(2, "power shim: %s\n", why);
    abort();
}

/* ------------------------------------------------------------------ records */

/* With the lock held. Returns where the record begins. */
static int64_t note(int kind, uint64_t inode, int64_t at, const char *path, const char *to, const struct iovec *from,
                    size_t data) {
    Record head = {(uint32_t)kind, path ? (uint32_t)strlen(path) : 0, to ? (uint32_t)strlen(to) : 0, (uint32_t)data,
                   inode, at};
    uint64_t begin = control->size, size = sizeof head + head.path + head.to + data;
    if (begin + size > control->room)
        give_up("the trace is full");
    char *place = (char *)(control + 1) + begin;
    memcpy(place, &head, sizeof head);
    place += sizeof head;
    if (path)
        memcpy(place, path, head.path);
    place += head.path;
    if (to)
        memcpy(place, to, head.to);
    place += head.to;
    while (data) {
        size_t piece = from->iov_len < data ? from->iov_len : data;
        memcpy(place, from->iov_base, piece);
        place += piece;
        data -= piece;
        from++;
    }
    __atomic_store_n(&control->size, begin + size, __ATOMIC_RELEASE);
    if (control->kill_kinds >> kind & 1 && control->kill_count > 0 && --control->kill_count == 0) {
        syscall(SYS_kill, getpid(), SIGKILL);
        for (;;)
            pause();
    }
    return (int64_t)begin;
}

/* A file that exists at the start counts as durable. */
static int note_existing(const char *path, const struct stat *status, int type, struct FTW *walk) {
    (void)walk;
    const char *name = path + root_size + (path[root_size] == '/');
    if (type == FTW_D) {
        note(FOLDER, status->st_ino, 0, name, NULL, NULL, 0);
    } else if (type == FTW_F && S_ISREG(status->st_mode)) {
        size_t size = (size_t)status->st_size;
        int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        void *data = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
        if (fd < 0 || data == MAP_FAILED)
            give_up("a file of the start cannot be read");
        struct iovec all = {data, size};
        note(FILE_, status->st_ino, 0, name, NULL, &all, size);
        if (size)
            munmap(data, size);
        syscall(SYS_close, fd);
    }
    return 0;
}

__attribute__((constructor)) static void configure(void) {
    const char *trace = getenv("NSQC_TEST_TRACE"), *folder = getenv("NSQC_TEST_TRACE_ROOT");
    struct stat status;
    if (!trace || !folder)
        return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, trace, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) || !realpath(folder, root))
        give_up("no trace or no folder");
    root_size = strlen(root);
    control = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (control == MAP_FAILED)
        give_up("the trace cannot be mapped");
    unsetenv("LD_PRELOAD");
    pthread_mutex_lock(&lock);
    if (control->size)
        note(START, 0, 0, NULL, NULL, NULL, 0);
    else if (nftw(root, note_existing, 16, FTW_PHYS))
        give_up("the folder cannot be walked");
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------ traced files */

/* The part of a path below the root, or NULL if it is not below. */
static const char *below(const char *path) {
    if (!control || strncmp(path, root, root_size) || (path[root_size] && path[root_size] != '/'))
        return NULL;
    return path + root_size + (path[root_size] == '/');
}

/* The status of an open file; 0: it is not below the root. */
int fd_below(int fd, struct stat *status) {
    char link[64], path[PATH_MAX];
    int error = errno, counts = 0;
    if (control && fd >= 0 && !fstat(fd, status) && (S_ISREG(status->st_mode) || S_ISDIR(status->st_mode))) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t size = readlink(link, path, sizeof path - 1);
        path[size > 0 ? size : 0] = 0;
        counts = below(path) != NULL;
    }
    errno = error;
    return counts;
}

/* Normalises an absolute path: removes `.`, `..` with the name before it, and extra slashes. */
static void normalise(char *path) {
    char *to = path;
    for (const char *from = path; *from;) {
        const char *end = strchrnul(from + 1, '/');
        size_t size = (size_t)(end - from);
        if (size == 3 && !memcmp(from, "/..", 3)) {
            while (to > path && *--to != '/')
                ;
        } else if (size > 1 && !(size == 2 && from[1] == '.')) {
            memmove(to, from, size);
            to += size;
        }
        from = end;
    }
    if (to == path)
        *to++ = '/';
    *to = 0;
}

/* The path of a call's argument below the root, in `space`; NULL: it is not below. */
const char *resolved(int folder, const char *path, char space[PATH_MAX]) {
    char link[64];
    size_t size = 0;
    int error = errno;
    if (!control || !path)
        return NULL;
    if (path[0] != '/') {
        ssize_t got;
        if (folder == AT_FDCWD) {
            got = getcwd(space, PATH_MAX) ? (ssize_t)strlen(space) : -1;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            got = readlink(link, space, PATH_MAX - 2);
        }
        errno = error;
        if (got < 0)
            return NULL;
        size = (size_t)got;
        space[size++] = '/';
    }
    if (size + strlen(path) >= PATH_MAX)
        return NULL;
    strcpy(space + size, path);
    normalise(space);
    return below(space);
}

/* The errno requested by the test; otherwise 0. */
static int fault_of(enum Fault fault) {
    Failing *failing = &control->failing[fault];
    int error = 0;
    pthread_mutex_lock(&lock);
    if (failing->times > 0 && failing->skip-- <= 0) {
        failing->times--;
        failing->done++;
        error = (int)failing->error;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

#define TYPES(...) __VA_ARGS__

/* ------------------------------------------------------------------ contents */

/* After a write with the lock held; `at`: -1 if the write used, and moved, the descriptor's own position. */
static void note_write(int fd, const struct stat *status, const struct iovec *from, ssize_t written, off_t at) {
    int error = errno;
    if (written > 0)
        note(WRITE, status->st_ino, at < 0 ? lseek(fd, 0, SEEK_CUR) - written : at, NULL, NULL, from, (size_t)written);
    errno = error;
}

#define WRITES_TO(name, types, declared, passed, vector, position) \
    ssize_t name declared { \
        NEXT(ssize_t, name, types); \
        struct stat status; \
        if (!fd_below(fd, &status)) \
            return next passed; \
        int fault = fault_of(WRITES); \
        if (fault) { \
            errno = fault; \
            return -1; \
        } \
        pthread_mutex_lock(&lock); \
        ssize_t done = next passed; \
        note_write(fd, &status, vector, done, position); \
        pthread_mutex_unlock(&lock); \
        return done; \
    }
#define ONE (&(struct iovec){(void *)(uintptr_t)from, size})

WRITES_TO(write, TYPES(int, const void *, size_t), (int fd, const void *from, size_t size), (fd, from, size), ONE, -1)
WRITES_TO(pwrite, TYPES(int, const void *, size_t, off_t), (int fd, const void *from, size_t size, off_t at),
          (fd, from, size, at), ONE, at)
WRITES_TO(pwrite64, TYPES(int, const void *, size_t, off64_t), (int fd, const void *from, size_t size, off64_t at),
          (fd, from, size, at), ONE, at)
WRITES_TO(writev, TYPES(int, const struct iovec *, int), (int fd, const struct iovec *from, int count),
          (fd, from, count), from, -1)
WRITES_TO(pwritev, TYPES(int, const struct iovec *, int, off_t), (int fd, const struct iovec *from, int count, off_t at),
          (fd, from, count, at), from, at)
WRITES_TO(pwritev64, TYPES(int, const struct iovec *, int, off64_t),
          (int fd, const struct iovec *from, int count, off64_t at), (fd, from, count, at), from, at)
WRITES_TO(pwritev2, TYPES(int, const struct iovec *, int, off_t, int),
          (int fd, const struct iovec *from, int count, off_t at, int flags), (fd, from, count, at, flags), from, at)
WRITES_TO(pwritev64v2, TYPES(int, const struct iovec *, int, off64_t, int),
          (int fd, const struct iovec *from, int count, off64_t at, int flags), (fd, from, count, at, flags), from, at)

#define READS_FROM(name, types, declared, passed) \
    ssize_t name declared { \
        NEXT(ssize_t, name, types); \
        struct stat status; \
        if (control && control->failing[READS].times > 0 && fd_below(fd, &status)) { \
            int fault = fault_of(READS); \
            if (fault) { \
                errno = fault; \
                return -1; \
            } \
        } \
        return next passed; \
    }

READS_FROM(read, TYPES(int, void *, size_t), (int fd, void *to, size_t size), (fd, to, size))
READS_FROM(pread, TYPES(int, void *, size_t, off_t), (int fd, void *to, size_t size, off_t at), (fd, to, size, at))
READS_FROM(pread64, TYPES(int, void *, size_t, off64_t), (int fd, void *to, size_t size, off64_t at), (fd, to, size, at))
READS_FROM(preadv, TYPES(int, const struct iovec *, int, off_t), (int fd, const struct iovec *to, int count, off_t at),
           (fd, to, count, at))
READS_FROM(preadv64, TYPES(int, const struct iovec *, int, off64_t),
           (int fd, const struct iovec *to, int count, off64_t at), (fd, to, count, at))

READS_FROM(preadv2, TYPES(int, const struct iovec *, int, off_t, int),
           (int fd, const struct iovec *to, int count, off_t at, int flags), (fd, to, count, at, flags))
READS_FROM(preadv64v2, TYPES(int, const struct iovec *, int, off64_t, int),
           (int fd, const struct iovec *to, int count, off64_t at, int flags), (fd, to, count, at, flags))

#define SIZES(name, types, declared, passed, kind, size) \
    int name declared { \
        NEXT(int, name, types); \
        struct stat status; \
        if (!fd_below(fd, &status)) \
            return next passed; \
        pthread_mutex_lock(&lock); \
        int done = next passed; \
        if (!done) \
            note(kind, status.st_ino, size, NULL, NULL, NULL, 0); \
        pthread_mutex_unlock(&lock); \
        return done; \
    }

static int64_t grown(int mode, int64_t size) {
    if (mode & ~FALLOC_FL_KEEP_SIZE)
        give_up("a hole or an inserted range is not noted");
    return mode ? 0 : size;
}

SIZES(ftruncate, TYPES(int, off_t), (int fd, off_t size), (fd, size), TRUNCATE, size)
SIZES(ftruncate64, TYPES(int, off64_t), (int fd, off64_t size), (fd, size), TRUNCATE, size)
SIZES(posix_fallocate, TYPES(int, off_t, off_t), (int fd, off_t at, off_t size), (fd, at, size), GROW, at + size)
SIZES(posix_fallocate64, TYPES(int, off64_t, off64_t), (int fd, off64_t at, off64_t size), (fd, at, size), GROW, at + size)
SIZES(fallocate, TYPES(int, int, off_t, off_t), (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), GROW,
      grown(mode, at + size))
SIZES(fallocate64, TYPES(int, int, off64_t, off64_t), (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size),
      GROW, grown(mode, at + size))

/* A sync covers all changes recorded before its beginning; it runs without the lock. A failed one loses them. */
static int synced(int fd, const struct stat *status, int (*next)(int)) {
    int fault = fault_of(SYNCS), done = -1;
    pthread_mutex_lock(&lock);
    int64_t began = note(SYNC, status->st_ino, 0, NULL, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    if (!fault)
        done = next(fd);
    int error = fault ? fault : errno;
    pthread_mutex_lock(&lock);
    note(done ? LOST : SYNCED, status->st_ino, began, NULL, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

#define SYNC_OF(name) \
    int name(int fd) { \
        NEXT(int, name, int); \
        struct stat status; \
        return fd_below(fd, &status) ? synced(fd, &status, next) : next(fd); \
    }

SYNC_OF(fsync)
SYNC_OF(fdatasync)

/* ------------------------------------------------------------------ names */

static int opened(int (*next)(int, const char *, int, ...), int folder, const char *path, int flags, mode_t mode) {
    char space[PATH_MAX];
    struct stat status;
    const char *name = resolved(folder, path, space);
    if (!name || !(flags & (O_CREAT | O_TRUNC)))
        return next(folder, path, flags, mode);
    if ((flags & O_TMPFILE) == O_TMPFILE)
        give_up("O_TMPFILE is not noted");
    pthread_mutex_lock(&lock);
    int error = errno, existed = !fstatat(folder, path, &status, 0);
    errno = error;
    int fd = next(folder, path, flags, mode);
    error = errno;
    if (fd >= 0 && !fstat(fd, &status) && S_ISREG(status.st_mode)) {
        if (!existed)
            note(CREATE, status.st_ino, 0, name, NULL, NULL, 0);
        else if (flags & O_TRUNC)
            note(TRUNCATE, status.st_ino, 0, NULL, NULL, NULL, 0);
    }
    errno = error;
    pthread_mutex_unlock(&lock);
    return fd;
}

static mode_t mode_of(int flags, va_list *args) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(*args, mode_t) : 0; }

#define OPEN(name, behind, first, folder) \
    int name(first const char *path, int flags, ...) { \
        NEXT(int, behind, int, const char *, int, ...); \
        va_list args; \
        va_start(args, flags); \
        mode_t mode = mode_of(flags, &args); \
        va_end(args); \
        return opened(next, folder, path, flags, mode); \
    }
#define NOTHING
#define FOLDER_FIRST int folder,

OPEN(open, openat, NOTHING, AT_FDCWD)
OPEN(open64, openat64, NOTHING, AT_FDCWD)
OPEN(openat, openat, FOLDER_FIRST, folder)
OPEN(openat64, openat64, FOLDER_FIRST, folder)

/* Compilers that check arguments call these for open() without a mode. */
int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }
int __openat_2(int folder, const char *path, int flags) { return openat(folder, path, flags); }
int __openat64_2(int folder, const char *path, int flags) { return openat64(folder, path, flags); }
int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static int two_names(int kind, int from_folder, const char *from, int to_folder, const char *to, int flags, int done_by) {
    char one[PATH_MAX], other[PATH_MAX];
    const char *name = resolved(from_folder, from, one), *becomes = resolved(to_folder, to, other);
    if (!name && !becomes)
        return (int)syscall(done_by, from_folder, from, to_folder, to, flags);
    if (!name || !becomes || flags)
        give_up("a rename or link out of the folder, or with flags, is not noted");
    pthread_mutex_lock(&lock);
    int done = (int)syscall(done_by, from_folder, from, to_folder, to, flags);
    if (!done)
        note(kind, 0, 0, name, becomes, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int rename(const char *from, const char *to) {
    return two_names(RENAME, AT_FDCWD, from, AT_FDCWD, to, 0, SYS_renameat2);
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return two_names(RENAME, from_folder, from, to_folder, to, 0, SYS_renameat2);
}
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    return two_names(RENAME, from_folder, from, to_folder, to, (int)flags, SYS_renameat2);
}
int link(const char *from, const char *to) { return two_names(LINK, AT_FDCWD, from, AT_FDCWD, to, 0, SYS_linkat); }
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    /* AT_SYMLINK_FOLLOW, which os.link passes, changes nothing here: there are no symbolic links in a data path. */
    return two_names(LINK, from_folder, from, to_folder, to, flags & ~AT_SYMLINK_FOLLOW, SYS_linkat);
}

static int removed(int folder, const char *path, int flags) {
    char space[PATH_MAX];
    const char *name = resolved(folder, path, space);
    if (!name)
        return (int)syscall(SYS_unlinkat, folder, path, flags);
    pthread_mutex_lock(&lock);
    int done = (int)syscall(SYS_unlinkat, folder, path, flags);
    if (!done)
        note(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, name, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int unlink(const char *path) { return removed(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char *path, int flags) { return removed(folder, path, flags); }
int rmdir(const char *path) { return removed(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    int done = removed(AT_FDCWD, path, 0);
    return done && errno == EISDIR ? removed(AT_FDCWD, path, AT_REMOVEDIR) : done;
}

int mkdirat(int folder, const char *path, mode_t mode) {
    char space[PATH_MAX];
    struct stat status;
    const char *name = resolved(folder, path, space);
    if (!name)
        return (int)syscall(SYS_mkdirat, folder, path, mode);
    pthread_mutex_lock(&lock);
    int done = (int)syscall(SYS_mkdirat, folder, path, mode);
    if (!done && !fstatat(folder, path, &status, 0))
        note(MKDIR, status.st_ino, 0, name, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
