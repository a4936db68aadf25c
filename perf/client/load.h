/* The modes of the client and their options. Each prints a line of JSON at its end; idle, beats and hold print one when
 * they are ready, and ping prints `ready`.
 */
#ifndef LOAD_H
#define LOAD_H
#include <stdint.h>

typedef struct {
    int port, conns, size, batch, window, rdy;
    int threads;                /* that share the connections; as many as connections unless pub has fewer */
    int joined;                 /* pub: what is due on a connection goes out in one write, not in one a request */
    double seconds, rate;       /* seconds: the longest run; rate: messages a second, of latency and answers */
    long count;                 /* stop after so many messages; 0: when the time is over */
    const char *topic, *channel;
    const char *transport;      /* plain, tls, deflate, snappy, tls+deflate, tls+snappy */
    const char *file;           /* transport-pub: one MPUB of `batch` messages, encoded for the transport */
} Load;

enum { MAX_THREADS = 64 };      /* connections of the modes that have a thread, or a place, for each */

void run_pub(const Load *load);
void run_sub(const Load *load);
void run_latency(const Load *load);
void run_answers(const Load *load);
void run_idle(const Load *load);
void run_http_pub(const Load *load);
void run_touch(const Load *load);
void run_ping(const Load *load);
void run_beats(const Load *load);
void run_fins(const Load *load);
void run_flood(const Load *load);
void run_hold(const Load *load);
void run_transport_pub(const Load *load);
void run_transport_sub(const Load *load);

/* Runs work(load, at) in each of load->threads threads and returns when all are done. A thread connects, calls
 * threads_ready() once, which returns the common start, and works.
 */
void run_threads(const Load *load, void (*work)(const Load *load, int at));
int64_t threads_ready(void);
int64_t threads_began(void);

void print_rate(const char *mode, const Load *load, long messages, int64_t began_ns, int64_t ended_ns);
char *make_publish(const Load *load, long *size);       /* PUB or MPUB, as bytes */
#endif
