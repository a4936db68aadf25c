"""The whole daemon under load, from outside, beside a server without a queue: `python -m perf.load.run`."""
