# Deferred messages that are taken back. For Python only: see the .pyi.
