/* To be preloaded: fdatasync of files whose names end with NSQC_TEST_FAIL_END fails while the file NSQC_TEST_FAIL_WHILE exists. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd) {
    char link[64], name[PATH_MAX];
    const char *end = getenv("NSQC_TEST_FAIL_END"), *sign = getenv("NSQC_TEST_FAIL_WHILE");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name);
    size_t size = end ? strlen(end) : 0;
    if (size && sign && length >= (ssize_t)size && memcmp(name + length - size, end, size) == 0 && access(sign, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}
