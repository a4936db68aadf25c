"""What the tools that consume reach, beside the load client and the disk."""
