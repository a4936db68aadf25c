"""Permissions: the access file, tokens, quotas and the audit log."""
