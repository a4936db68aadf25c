"""Checks an environment: python -m nsqc.spark.doctor [HOST:PORT of an nsqd ...]

A script, not to be imported: nsqc.spark.doctor is the function.
"""

import sys

from nsqc.spark.checkup import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
