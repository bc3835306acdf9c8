"""The devices that loops are compiled for: one folder for each."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

from onescan.loop import LeaveToXla
from onescan.targets.base import Target


@cache
def platforms() -> dict[str, Any]:
    """The packages of all targets, by JAX's names of their platforms."""
    folders = [found for found in pkgutil.iter_modules(__path__) if found.ispkg]
    packages = [import_module(f"{__name__}.{found.name}") for found in folders]
    return {package.PLATFORM: package for package in packages}


def absorbs(platform: str) -> bool:
    """Whether light work in front of a loop is better done in it."""
    return platform in platforms() and platforms()[platform].ABSORBS


def everywhere() -> list[str]:
    """The targets that run loops of any platform, if they are asked to."""
    found = platforms().items()
    return [name for name, p in found if getattr(p, "EVERYWHERE", False)]


def target_of(platform: str) -> Target:
    """The target of a platform; raises `LeaveToXla` where there is none."""
    if platform not in platforms():
        raise LeaveToXla(f"there is no native engine for {platform} yet")
    return platforms()[platform].current()
