"""The cores and caches that a plan may count on, on made-up machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onescan.targets.cpu import available
from onescan.targets.cpu.machine import host


def made_up(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


CGROUPS = {
    "none": ({}, 64),
    "unlimited": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 10"}, 64),
    "version 2": (
        {"proc/self/cgroup": "0::/job", "sys/fs/cgroup/job/cpu.max": "300000 100000"},
        3,
    ),
    "version 2, an outer one": (
        {
            "proc/self/cgroup": "0::/pod/job",
            "sys/fs/cgroup/pod/cpu.max": "250000 100000",
            "sys/fs/cgroup/pod/job/cpu.max": "max 100000",
        },
        2,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "4:memory:/x\n2:cpu,cpuacct:/job",
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "400000",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
        },
        4,
    ),
    "version 1, unlimited": (
        {
            "proc/self/cgroup": "1:cpu:/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
        64,
    ),
    "less than a core": (
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "5000 100000"},
        1,
    ),
}


@pytest.mark.parametrize("name", CGROUPS)
def test_cores_are_those_of_the_control_group(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, expected = CGROUPS[name]
    everywhere = set(range(64))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: everywhere, raising=False)
    assert available.cores(made_up(tmp_path, files)) == expected


def test_cores_are_those_a_process_is_bound_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5}, raising=False)
    assert available.cores(tmp_path) == 1
    assert available.cores() == 1


def test_plans_are_made_for_the_cores_that_threads_get() -> None:
    assert host().cores == available.cores()


def test_caches_are_read_from_the_machine(tmp_path: Path) -> None:
    caches = "sys/devices/system/cpu/cpu0/cache"
    sizes = [("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M")]
    for k, (level, kind, size) in enumerate(sizes):
        files = {"level": level, "type": kind, "size": size}
        made_up(tmp_path / caches / f"index{k}", files)
    assert available.cache_bytes(1, tmp_path) == 48 << 10
    assert available.cache_bytes(2, tmp_path) == 2 << 20


def test_caches_of_a_machine_that_does_not_tell(tmp_path: Path) -> None:
    assert available.cache_bytes(1, tmp_path) == 32 << 10
    assert available.cache_bytes(2, tmp_path) == 1 << 20
