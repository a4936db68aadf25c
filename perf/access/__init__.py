"""What access rules cost."""
