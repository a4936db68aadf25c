"""nsqc: a drop-in nsqd in Cython on uvloop. Imports no compiled module."""

__version__ = "0.1.0"

# The nsqd release whose behaviour nsqc keeps; clients and scripts read it from --version, IDENTIFY and /info.
NSQD_VERSION = "1.3.0"
