"""The lock on a folder."""

import os

import pytest

from nsqc.process.lock import LockError, lock


def test_one_at_a_time(tmp_path):
    descriptor = lock(str(tmp_path))
    with pytest.raises(LockError, match=rf"cannot flock directory {tmp_path} - .* \(possibly in use by another"):
        lock(str(tmp_path))
    os.close(descriptor)
    os.close(lock(str(tmp_path)))


def test_no_folder(tmp_path):
    with pytest.raises(LockError, match=f"failed to lock data-path: open {tmp_path}/none: No such file or directory"):
        lock(f"{tmp_path}/none")
    (tmp_path / "file").touch()
    with pytest.raises(LockError, match="Not a directory"):
        lock(f"{tmp_path}/file")
