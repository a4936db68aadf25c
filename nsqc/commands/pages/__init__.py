"""Texts made from the declaration of the options and from the commands: options page, man page, config file, completion
scripts. They are the same on every machine, apart from defaults in the config file.

The commands come in as a tree (tree.py), so nothing here imports them.
"""
