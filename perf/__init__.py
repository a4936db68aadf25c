"""Measuring nsqc: `perf.micro` one compiled module at a time, `perf.load` the whole daemon. See RESULTS.md."""
