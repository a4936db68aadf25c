"""Power failures without cutting power: a trace of what the daemon does to its files, and the disks that could remain."""
