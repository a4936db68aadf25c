"""The lookup server: nodes register their topics and channels over TCP, clients look them up over HTTP."""
