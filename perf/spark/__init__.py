"""Rates of the Spark sources beside plain loops and Spark's own noop sink."""
