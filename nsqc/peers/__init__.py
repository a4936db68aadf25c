"""Servers that the daemon itself calls: nsqlookupd and statsd. Nothing here is waited for by a client."""
