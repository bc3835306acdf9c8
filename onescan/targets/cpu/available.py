"""The machine that this process may use: its cores and its caches.

A process may be bound to some cores (its affinity), and a container may be given the
time of fewer than there are (its cgroup, version 1 or 2).  Plans and threads count on
what both leave.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
#: bytes of the first and L2 cache of a core, where the machine does not tell
USUAL = {1: 32 << 10, 2: 1 << 20}


def cores(root: Path = ROOT) -> int:
    """The cores that this process may use, at least one.

    >>> cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, int(min([count, *_quotas(root)])))


def cache_bytes(level: int, root: Path = ROOT) -> int:
    """The size of a core's cache for data: 1 is the one next to it.

    >>> cache_bytes(1) <= cache_bytes(2)
    True
    """
    for cache in sorted(root.glob("sys/devices/system/cpu/cpu0/cache/index*")):
        kind, size = _text(cache / "type"), _text(cache / "size")
        if _text(cache / "level") == str(level) and kind != "Instruction":
            number, unit = size[:-1], size[-1:]
            if number.isdigit() and unit in ("K", "M"):
                return int(number) << {"K": 10, "M": 20}[unit]
    return USUAL[level]


def _quotas(root: Path) -> Iterator[float]:
    """Cores' worth of time that control groups grant, the outer ones included."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names == "":  # version 2
            groups = root / "sys/fs/cgroup"
        elif "cpu" in names.split(","):
            groups = root / "sys/fs/cgroup" / "cpu"
        else:
            continue
        here = groups / path.lstrip("/")
        for group in (here, *here.parents):
            if group == groups.parent:
                break
            if names == "":
                parts = _text(group / "cpu.max").split()
            else:
                files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                parts = [_text(group / file) for file in files]
            if len(parts) == 2 and all(part.isdigit() for part in parts):
                quota, period = map(int, parts)
                if quota > 0 and period > 0:
                    yield quota / period


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
