/* The load client: `client` alone prints its modes. */
#include "load.h"
#include "report.h"
#include <stdbool.h>
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
    "            -k THREADS                         share the connections; default: a thread for each\n"
    "  http-pub  -c CONNECTIONS                     POST /pub, one request at a time a connection\n"
    "  sub       -c CONNECTIONS -r RDY              receives and finishes messages\n"
    "  latency   -r RDY -R RATE                     PUB to delivery, RATE messages a second\n"
    "  answers   -R RATE                            PUB to OK, RATE messages a second on one connection\n"
    "  idle      -c CONNECTIONS                     subscribed, no traffic\n"
    "  beats     -c CONNECTIONS                     the same with heartbeats of 1 s, until stdin ends; counts those closed\n"
    "  ping                                         /ping on the HTTP port every 2 ms, until stdin ends\n"
    "  fins      -c CONNECTIONS                     FINs of ids that nobody has, as fast as they go\n"
    "  flood     -c CONNECTIONS                     PUBs as fast as they go, answers unread but for their bytes\n"
    "  hold      -n COUNT                           receives COUNT messages and finishes none, until stdin ends\n"
    "  touch     -n COUNT -s SIZE                   touches and frees COUNT * SIZE bytes of memory\n"
#ifdef WITH_TRANSPORTS
    "  transport-pub -x TRANSPORT -f FILE -b BATCH -n COUNT  sends FILE, an MPUB of BATCH messages encoded for TRANSPORT,\n"
    "                                               again and again\n"
    "  transport-sub -x TRANSPORT -r RDY -n COUNT   receives and finishes COUNT messages\n"
#endif
    "  all: -t SECONDS (at most), -n COUNT (messages at most), -s SIZE, -T TOPIC, -C CHANNEL\n";

typedef struct {
    const char *name;
    void (*run)(const Load *load);
    int min_size;               /* of a body */
    int max_conns;
} Mode;

static const Mode MODES[] = {
    {"pub", run_pub, 1, MAX_THREADS},
    {"sub", run_sub, 1, MAX_THREADS},
    {"latency", run_latency, sizeof(int64_t), 1},
    {"answers", run_answers, 1, 1},
    {"idle", run_idle, 1, 1 << 20},
    {"http-pub", run_http_pub, 1, 1 << 20},
    {"touch", run_touch, 1, 1 << 20},
    {"ping", run_ping, 1, 1},
    {"beats", run_beats, 1, 1 << 20},
    {"fins", run_fins, 1, MAX_THREADS},
    {"flood", run_flood, 1, MAX_THREADS},
    {"hold", run_hold, 1, 1},
#ifdef WITH_TRANSPORTS
    {"transport-pub", run_transport_pub, 1, 1},
    {"transport-sub", run_transport_sub, 1, 1},
#endif
};

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
    while ((option = getopt(argc, argv, "p:c:k:t:s:b:w:r:R:n:T:C:x:f:j")) != -1)
        switch (option) {
        case 'p': load->port = atoi(optarg); break;
        case 'c': load->conns = atoi(optarg); break;
        case 'k': load->threads = atoi(optarg); break;
        case 't': load->seconds = atof(optarg); break;
        case 's': load->size = atoi(optarg); break;
        case 'b': load->batch = atoi(optarg); break;
        case 'w': load->window = atoi(optarg); break;
        case 'r': load->rdy = atoi(optarg); break;
        case 'R': load->rate = atof(optarg); break;
        case 'n': load->count = atol(optarg); break;
        case 'T': load->topic = optarg; break;
        case 'C': load->channel = optarg; break;
        case 'x': load->transport = optarg; break;
        case 'f': load->file = optarg; break;
        case 'j': load->joined = 1; break;
        default: fputs(usage, stderr); exit(2);
        }
}

static bool in_range(const Load *load, const Mode *mode) {
    return load->conns >= 1 && load->conns <= mode->max_conns && load->threads >= 1 && load->size >= mode->min_size && load->batch >= 1
        && load->window >= 1 && load->rdy >= 1 && load->rate > 0 && load->seconds > 0 && load->seconds <= 600
        && load->count >= 0 && strlen(load->topic) <= 64 && strlen(load->channel) <= 64;
}

int main(int argc, char **argv) {
    Load load = {.port = 4150, .conns = 2, .size = 200, .batch = 200, .window = 1, .rdy = 2500, .seconds = 5,
                 .rate = 300, .topic = "load", .channel = "ch", .transport = "plain", .file = ""};
    const char *name = argc > 1 ? argv[1] : "";
    optind = 2;
    for (size_t at = 0; at < sizeof MODES / sizeof *MODES; at++) {
        const Mode *mode = &MODES[at];
        if (strcmp(name, mode->name))
            continue;
        if (mode->max_conns == 1)
            load.conns = 1;
        read_options(&load, argc, argv);
        if (load.threads == 0 || load.threads > load.conns)
            load.threads = load.conns;
        if (!in_range(&load, mode)) {
            fputs("client: an option is out of range\n", stderr);
            return 2;
        }
        mode->run(&load);
        return 0;
    }
    fputs(usage, stderr);
    return 2;
}
