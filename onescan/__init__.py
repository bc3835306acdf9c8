"""onescan: a drop-in `jax.lax.scan` that compiles the whole loop into one kernel."""

from pathlib import Path

from onescan import compat, hook, layers
from onescan.api import scan
from onescan.errors import (
    CheckError,
    EngineError,
    EngineWarning,
    ScanError,
    ScanTypeError,
    ScanValueError,
)
from onescan.explain import explain
from onescan.reporting import clear_report, report
from onescan.switches import engine, install, is_installed, options, uninstall

__version__ = "0.1.0"
__all__ = [
    "CheckError",
    "EngineError",
    "EngineWarning",
    "ScanError",
    "ScanTypeError",
    "ScanValueError",
    "clear_report",
    "engine",
    "explain",
    "install",
    "is_installed",
    "layers",
    "options",
    "report",
    "scan",
    "uninstall",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


compat.hide_frames(Path(__file__).parent)
hook.register()
