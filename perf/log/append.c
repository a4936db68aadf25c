/* append FOLDER BYTES SECONDS: appends blocks of so many bytes to a new file, each followed by fdatasync, and prints how
 * many a second. What a log can reach at most that syncs each block by itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int fail(const char *what) {
    fprintf(stderr, "append: %s: %s\n", what, strerror(errno));
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4 || chdir(argv[1])) {
        fputs("append FOLDER BYTES SECONDS\n", stderr);
        return 2;
    }
    size_t size = (size_t)atol(argv[2]);
    double seconds = atof(argv[3]), began, ended;
    char *block = malloc(size);
    int fd = open("append.dat", O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (!block || fd < 0)
        return fail("append.dat");
    unlink("append.dat");
    memset(block, 'x', size);
    long blocks = 0;
    for (began = ended = now(); ended < began + seconds; ended = now(), blocks++)
        if (write(fd, block, size) != (ssize_t)size || fdatasync(fd))
            return fail("write or fdatasync");
    printf("%.1f\n", (double)blocks / (ended - began));
    return 0;
}
