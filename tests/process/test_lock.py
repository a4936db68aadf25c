"""The lock on a folder."""

import errno
import os

import pytest

from nsqc.process.lifecycle import LockError, advice, check_writable, lock


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


def test_a_folder_that_can_be_written(tmp_path):
    check_writable(str(tmp_path))


@pytest.mark.skipif(os.getuid() == 0, reason="root may write to every folder; tests/packaging/test_image_faults.py is not root")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(LockError, match="Permission denied; it belongs to user"):
        check_writable(str(tmp_path))
    tmp_path.chmod(0o700)


def test_what_to_do(tmp_path):
    assert advice(str(tmp_path), errno.EACCES).endswith(f"runs as user {os.geteuid()} and group {os.getegid()}: chown it, or set --data-path")
    assert advice(str(tmp_path / "none"), errno.EACCES) == "", "a folder above cannot be searched"
    assert advice(str(tmp_path), errno.EIO) == ""
