#include "load.h"
#include "report.h"
#include <pthread.h>

static pthread_barrier_t gate;
static int64_t began_ns;
static struct {
    const Load *load;
    void (*work)(const Load *load, int at);
    pthread_t thread;
    int at;
} threads[MAX_THREADS];

static void *thread_main(void *arg) {
    int at = *(int *)arg;
    threads[at].work(threads[at].load, at);
    return NULL;
}

void run_threads(const Load *load, void (*work)(const Load *load, int at)) {
    pthread_barrier_init(&gate, NULL, (unsigned)load->threads);
    for (int at = 0; at < load->threads; at++) {
        threads[at].load = load;
        threads[at].work = work;
        threads[at].at = at;
        if (pthread_create(&threads[at].thread, NULL, thread_main, &threads[at].at))
            fail("cannot start a thread");
    }
    for (int at = 0; at < load->threads; at++)
        pthread_join(threads[at].thread, NULL);
}

int64_t threads_ready(void) {
    if (pthread_barrier_wait(&gate) == PTHREAD_BARRIER_SERIAL_THREAD)
        began_ns = now_ns();
    pthread_barrier_wait(&gate);
    return began_ns;
}

int64_t threads_began(void) { return began_ns; }
