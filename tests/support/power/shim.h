/* Shared by the two parts of the shim. */
#ifndef SHIM_H
#define SHIM_H
#include <dlfcn.h>
#include <limits.h>
#include <sys/stat.h>

__attribute__((noreturn)) void give_up(const char *why);
int fd_below(int fd, struct stat *status);
const char *resolved(int folder, const char *path, char space[PATH_MAX]);

/* NEXT(type of the result, name, types of the arguments): the function that ours replaces. */
#define NEXT(result, name, ...) \
    static result (*next)(__VA_ARGS__); \
    if (!next) \
        next = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)
#endif
