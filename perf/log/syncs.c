/* To be preloaded: fdatasync takes NSQC_SYNC_US and syncs nothing, as on a disk that is always so fast. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

int fdatasync(int fd) {
    static _Thread_local int exact;
    const char *us = getenv("NSQC_SYNC_US");
    struct timespec time = {0, us ? atol(us) * 1000 : 0};
    (void)fd;
    if (!exact)
        exact = prctl(PR_SET_TIMERSLACK, 1UL) == 0; /* otherwise the kernel adds up to 50 us */
    return nanosleep(&time, NULL);
}
