/* Preloaded: makes allocations of a library with a given name fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static char wanted[256];
static __thread int looking;
static volatile long skipped, left, failed;      /* other threads allocate meanwhile: in this order */

/* For libraries whose names contain this: skip more allocations succeed, the next `times` fail. */
void nomemory_fail(const char *name, long skip, long times) {
    left = 0;
    __sync_synchronize();
    if (*name)          /* an empty one would match every library */
        strncpy(wanted, name, sizeof(wanted) - 1);
    skipped = skip;
    failed = 0;
    left = times;
}

long nomemory_failed(void) { return failed; }

static int fails(void *caller) {
    Dl_info info;
    int is_wanted;
    if (left <= 0 || looking)
        return 0;
    looking = 1;
    is_wanted = dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, wanted);
    looking = 0;
    if (!is_wanted || skipped-- > 0)
        return 0;
    left--;
    failed++;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size); }
