"""Texts made from the one declaration of the options and from the commands: options page, man page, config file,
completion scripts. They are the same on every machine, but for the defaults in the config file.
"""
