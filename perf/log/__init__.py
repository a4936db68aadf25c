"""Log-backed topics compared with topics in memory."""
