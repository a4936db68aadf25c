/* The load client. `client` alone prints its modes. pub and sub have a thread for each connection, as independent
 * programs would; http-pub and idle hold all theirs in one.
 */
#include "conn.h"
#include "modes.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static const char usage[] =
    "client MODE -p PORT [options]: drives an nsqd on 127.0.0.1, prints a line of JSON\n"
    "  pub       -c CONNECTIONS -b BATCH -w WINDOW  MPUB of BATCH (1: PUB), WINDOW of them unanswered a connection\n"
    "            -j                                 what is due goes out in one write\n"
    "  http-pub  -c CONNECTIONS                     POST /pub, one request at a time a connection\n"
    "  sub       -c CONNECTIONS -r RDY              takes and finishes messages\n"
    "  latency   -r RDY -R RATE                     PUB to delivery, RATE messages a second\n"
    "  idle      -c CONNECTIONS                     subscribed, no traffic\n"
    "  touch     -n COUNT -s SIZE                   touches and frees COUNT * SIZE bytes of memory\n"
    "  all: -t SECONDS (at most), -n COUNT (messages at most), -s SIZE, -T TOPIC, -C CHANNEL\n";

static const struct {
    const char *name;
    void (*run)(const Load *load);
} MODES[] = {{"pub", run_pub},   {"sub", run_sub},           {"latency", run_latency},
             {"idle", run_idle}, {"http-pub", run_http_pub}, {"touch", run_touch}};

enum { MAX_THREADS = 64 };

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
    if (load->conns > MAX_THREADS)
        fail("at most %d connections in this mode", MAX_THREADS);
    pthread_barrier_init(&gate, NULL, (unsigned)load->conns);
    for (int at = 0; at < load->conns; at++) {
        threads[at].load = load;
        threads[at].work = work;
        threads[at].at = at;
        if (pthread_create(&threads[at].thread, NULL, thread_main, &threads[at].at))
            fail("cannot start a thread");
    }
    for (int at = 0; at < load->conns; at++)
        pthread_join(threads[at].thread, NULL);
}

int64_t threads_ready(void) {
    if (pthread_barrier_wait(&gate) == PTHREAD_BARRIER_SERIAL_THREAD)
        began_ns = now_ns();
    pthread_barrier_wait(&gate);
    return began_ns;
}

int64_t threads_began(void) { return began_ns; }

void print_rate(const char *mode, const Load *load, long messages, int64_t began_ns, int64_t ended_ns) {
    struct rusage used;
    double seconds = (double)(ended_ns - began_ns) / 1e9;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
               + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"mode\": \"%s\", \"connections\": %d, \"messages\": %ld, \"seconds\": %.6f, \"per_s\": %.1f, "
           "\"client_cpu_s\": %.3f}\n", mode, load->conns, messages, seconds,
           seconds > 0 ? (double)messages / seconds : 0.0, cpu);
}

void run_touch(const Load *load) {
    size_t size = (size_t)load->count * (size_t)load->size;
    int64_t began = now_ns();
    char *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        fail("no memory");
    madvise(area, size, MADV_HUGEPAGE);
    for (size_t at = 0; at < size; at += 4096)
        area[at] = 1;
    munmap(area, size);
    printf("{\"mode\": \"touch\", \"bytes\": %zu, \"seconds\": %.6f}\n", size, (double)(now_ns() - began) / 1e9);
}

static void read_options(Load *load, int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "p:c:t:s:b:w:r:R:n:T:C:j")) != -1)
        switch (option) {
        case 'p': load->port = atoi(optarg); break;
        case 'c': load->conns = atoi(optarg); break;
        case 't': load->seconds = atof(optarg); break;
        case 's': load->size = atoi(optarg); break;
        case 'b': load->batch = atoi(optarg); break;
        case 'w': load->window = atoi(optarg); break;
        case 'r': load->rdy = atoi(optarg); break;
        case 'R': load->rate = atof(optarg); break;
        case 'n': load->count = atol(optarg); break;
        case 'T': load->topic = optarg; break;
        case 'C': load->channel = optarg; break;
        case 'j': load->joined = 1; break;
        default: fputs(usage, stderr); exit(2);
        }
    if (load->conns < 1 || load->size < 8 || load->batch < 1 || load->window < 1 || load->rdy < 1 || load->rate <= 0
        || load->seconds <= 0 || load->seconds > 600 || load->count < 0 || strlen(load->topic) > 64
        || strlen(load->channel) > 64) {
        fputs("client: an option is out of range\n", stderr);
        exit(2);
    }
}

int main(int argc, char **argv) {
    Load load = {.port = 4150, .conns = 2, .size = 200, .batch = 200, .window = 1, .rdy = 2500, .seconds = 5,
                 .rate = 300, .topic = "load", .channel = "ch"};
    const char *mode = argc > 1 ? argv[1] : "";
    optind = 2;
    for (size_t at = 0; at < sizeof MODES / sizeof *MODES; at++)
        if (!strcmp(mode, MODES[at].name)) {
            read_options(&load, argc, argv);
            MODES[at].run(&load);
            return 0;
        }
    fputs(usage, stderr);
    return 2;
}
