#include "report.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t seconds_from(int64_t began_ns, double seconds) { return began_ns + (int64_t)(seconds * 1e9); }

void fail(const char *what, ...) {
    int error = errno;
    va_list args;
    va_start(args, what);
    fputs("client: ", stderr);
    vfprintf(stderr, what, args);
    va_end(args);
    if (error)
        fprintf(stderr, " (%s)", strerror(error));
    fputc('\n', stderr);
    exit(1);
}

static int ascending(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

void sort_times(int64_t *times_ns, long count) { qsort(times_ns, (size_t)count, sizeof *times_ns, ascending); }

int64_t time_at(const int64_t *sorted_ns, long count, double share) {
    return count ? sorted_ns[(long)((double)(count - 1) * share)] : 0;
}
