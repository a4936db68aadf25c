"""Servers that the daemon itself calls: nsqlookupd, statsd and auth servers. Clients wait only for auth servers."""
