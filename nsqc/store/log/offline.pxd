# What a check of segments reads. For Python only: see the .pyi.
