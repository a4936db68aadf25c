# Records of a segment for those who read logs by offset or time. For Python only: see the .pyi.
