"""Generates texts from the declarations of options and commands: options page, man page, config file, completion
scripts. They are the same on every machine, apart from defaults in the config file.

The commands are passed in as a tree (tree.py), so nothing here imports them.
"""
