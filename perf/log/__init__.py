"""Topics in a log beside topics in memory."""
