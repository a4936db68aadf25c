"""The whole daemon under load, from outside, compared with a server without a queue: `python -m perf.load.run`."""
