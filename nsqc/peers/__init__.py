"""Servers that the daemon itself calls: nsqlookupd, statsd and auth servers. Clients wait for auth servers only."""
