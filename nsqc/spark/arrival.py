"""Unpickles a reader or a writer in a worker. Sent by value, and independent of this package: so a worker without
nsqc can run it and report the missing package."""


def arrived(data: bytes) -> object:
    """Unpickles a reader or writer. Raises RuntimeError if nsqc is missing."""
    import pickle
    import sys

    try:
        kind, state = pickle.loads(data)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "nsqc":
            raise
        raise RuntimeError(f"nsq: the workers' Python has no nsqc ({sys.executable}: {error}): install it on each "
                           "machine, or ship it with the application, as docs/spark.md shows under Clusters") from None
    one = kind.__new__(kind)
    one.__dict__.update(state)
    return one
