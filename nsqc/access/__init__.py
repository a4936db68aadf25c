"""Who may do what: the access file, tokens, quotas and the audit log."""
