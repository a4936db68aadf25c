"""The number of processors that a process may use."""

import os

import pytest

from nsqc.process import machine

V2 = {"cpu.max": "{quota} 100000\n"}
V1 = {"cpu.cfs_quota_us": "{quota}\n", "cpu.cfs_period_us": "100000\n"}


def write(folder, files, quota) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text.format(quota=quota))


@pytest.mark.parametrize(("line", "mount", "files", "none"), [
    ("0::/a/b", "", V2, "max"), ("4:cpu,cpuacct:/a/b", "cpu,cpuacct", V1, -1), ("4:cpu:/a/b", "cpu", V1, -1)])
def test_quotas_of_a_group_and_its_ancestors(tmp_path, line, mount, files, none):
    own, groups = tmp_path / "cgroup", tmp_path / "groups"
    own.write_text(f"7:memory:/a/b\n{line}\n")
    assert machine.quotas(str(own), str(groups)) == []
    write(groups / mount / "a/b", files, none)
    assert machine.quotas(str(own), str(groups)) == []
    write(groups / mount / "a", files, 150_000)
    assert machine.quotas(str(own), str(groups)) == [1.5]
    write(groups / mount / "a/b", files, 50_000)
    assert machine.quotas(str(own), str(groups)) == [0.5, 1.5]
    write(groups / mount / "a/b", files, "nonsense")
    assert machine.quotas(str(own), str(groups)) == [1.5]


def test_the_affinity_mask_counts():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert 0 < machine.available() <= 1
    finally:
        os.sched_setaffinity(0, before)


def test_without_control_groups(tmp_path):
    assert machine.quotas(str(tmp_path / "none"), str(tmp_path)) == []
