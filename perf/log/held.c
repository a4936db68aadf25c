/* held SECONDS: computes on all processors that it may use and prints for what share of the time, in percent, they did not run, and for
 * how many ms at once: other programs had them, or the host of a virtual machine, of which the system knows nothing.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 64 };
static const double SHORT = 0.0005; /* an interrupt, say */
static double seconds;

struct held {
    pthread_t thread;
    double all, longest;
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *compute(void *of) {
    struct held *held = of;
    double began = now(), before = began, at;
    while (before < began + seconds) {
        at = now();
        if (at - before > SHORT) {
            held->all += at - before;
            if (at - before > held->longest)
                held->longest = at - before;
        }
        before = at;
    }
    return NULL;
}

int main(int argc, char **argv) {
    static struct held threads[MOST];
    cpu_set_t allowed;
    long count = sched_getaffinity(0, sizeof allowed, &allowed) ? 1 : CPU_COUNT(&allowed), index;
    double all = 0, longest = 0;
    if (argc != 2 || (seconds = atof(argv[1])) <= 0) {
        fputs("held SECONDS\n", stderr);
        return 2;
    }
    count = count > MOST ? MOST : count;
    for (index = 0; index < count; index++)
        if (pthread_create(&threads[index].thread, NULL, compute, &threads[index])) {
            fputs("held: no thread\n", stderr);
            return 1;
        }
    for (index = 0; index < count; index++) {
        pthread_join(threads[index].thread, NULL);
        all += threads[index].all;
        if (threads[index].longest > longest)
            longest = threads[index].longest;
    }
    printf("%.2f %.1f\n", 100 * all / (seconds * (double)count), longest * 1e3);
    return 0;
}
