"""Power failures without cutting power: a trace of the daemon's file operations, and the disks that could remain."""
