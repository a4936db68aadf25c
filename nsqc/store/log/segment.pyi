"""Segments of a log: files, header, manifest, sparse index, the list of them, sealing. See the .pxd."""


def limit_to(count: int) -> None: ...
