"""One bench for each compiled module: `python -m perf.micro.run`."""
