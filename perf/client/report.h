/* What every program here shares: the clock, the way to fail, and the times of many requests. */
#ifndef REPORT_H
#define REPORT_H
#include <stdint.h>

int64_t now_ns(void);                                   /* monotonic */
int64_t seconds_from(int64_t began_ns, double seconds); /* the clock so many seconds later */

/* Prints one line with errno's text where it is set, and exits with 1: a run with a broken client measures nothing. */
_Noreturn void fail(const char *what, ...) __attribute__((format(printf, 1, 2)));

void sort_times(int64_t *times_ns, long count);
int64_t time_at(const int64_t *sorted_ns, long count, double share);    /* a percentile; 0 where there are no times */
#endif
