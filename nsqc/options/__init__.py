"""Options: declared once, read from flags and the config file, checked, reloaded."""
