"""onescan: a drop-in `jax.lax.scan` that compiles the whole loop into one kernel."""

from pathlib import Path

from onescan import compat, layers, train
from onescan.api.scan import scan
from onescan.api.variants import associative_scan, fori_loop, map
from onescan.errors import (
    CheckError,
    CheckpointError,
    EngineError,
    EngineWarning,
    NonFiniteError,
    ScanError,
    ScanTypeError,
    ScanValueError,
)
from onescan.explain import explain
from onescan.long import NonFinite, first_nonfinite
from onescan.lowering import hook
from onescan.reports.rows import clear_report, report
from onescan.switches import engine, install, is_installed, options, uninstall
from onescan.version import VERSION

__version__ = VERSION
__all__ = [
    "CheckError",
    "CheckpointError",
    "EngineError",
    "EngineWarning",
    "NonFinite",
    "NonFiniteError",
    "ScanError",
    "ScanTypeError",
    "ScanValueError",
    "associative_scan",
    "clear_report",
    "engine",
    "explain",
    "first_nonfinite",
    "fori_loop",
    "install",
    "is_installed",
    "layers",
    "map",
    "options",
    "report",
    "scan",
    "train",
    "uninstall",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


compat.hide_frames(Path(__file__).parent)
hook.register()
