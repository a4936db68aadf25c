/* To be preloaded: fdatasync takes NSQC_TEST_SYNC_US and syncs nothing, as on a disk that is always so fast, and does one thing at
 * a time: two at once take twice as long.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;

int fdatasync(int fd) {
    static _Thread_local int exact;
    const char *us = getenv("NSQC_TEST_SYNC_US");
    struct timespec time = {0, us ? atol(us) * 1000 : 0};
    (void)fd;
    if (!exact)
        exact = prctl(PR_SET_TIMERSLACK, 1UL) == 0; /* otherwise the kernel adds up to 50 us */
    pthread_mutex_lock(&disk);
    int failed = nanosleep(&time, NULL);
    pthread_mutex_unlock(&disk);
    return failed;
}
