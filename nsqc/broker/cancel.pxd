# Cancels deferred messages. For Python only: see the .pyi.
