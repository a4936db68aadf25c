"""A node's logs in a bucket: shipped as a chain of commits, restored elsewhere, read without a node."""
