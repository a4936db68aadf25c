"""Unpickles a reader or a writer in a worker. This travels by value, and uses nothing of this package: so a worker
without nsqc can run it and report what is missing."""


def arrived(data: bytes) -> object:
    """A reader or writer as it was sent. Raises RuntimeError if there is no nsqc."""
    import pickle
    import sys

    try:
        kind, state = pickle.loads(data)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "nsqc":
            raise
        raise RuntimeError(f"nsq: the workers' Python has no nsqc ({sys.executable}: {error}): install it on each "
                           "machine, or ship it with the application, as docs/spark-clusters.md shows") from None
    one = kind.__new__(kind)
    one.__dict__.update(state)
    return one
