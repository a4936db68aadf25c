"""The number of processors this process may use. Does not import pathlib: the daemon calls it at startup."""

from __future__ import annotations

import os

_OWN = "/proc/self/cgroup"
_GROUPS = "/sys/fs/cgroup"


def available() -> float:
    """Processors allowed by the affinity mask and the control groups' quotas; may be less than one."""
    return min([float(len(os.sched_getaffinity(0))), *quotas(_OWN, _GROUPS)])


def quotas(own: str, groups: str) -> list[float]:
    """Quotas of the control groups listed in the file `own`, and of their ancestors; groups: the folder where they are
    mounted, version 2 or 1. Groups without a quota are omitted."""
    found = []
    for line in _read(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "cpu", "cpu,cpuacct"):
            continue
        while True:
            quota = _quota(os.path.join(groups, controllers, path.lstrip("/")), not controllers)
            if quota is not None:
                found.append(quota)
            if path in ("", "/"):
                break
            path = os.path.dirname(path)
    return found


def _quota(folder: str, is_version_2: bool) -> float | None:
    if is_version_2:
        quota, _, period = _read(f"{folder}/cpu.max").strip().partition(" ")
    else:
        quota, period = _read(f"{folder}/cpu.cfs_quota_us").strip(), _read(f"{folder}/cpu.cfs_period_us").strip()
    if quota.isdecimal() and period.isdecimal() and int(period):
        return int(quota) / int(period)
    return None


def _read(path: str) -> str:
    """A file's contents; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return ""
