"""Rates of the Spark sources compared with plain loops and Spark's own noop sink."""
