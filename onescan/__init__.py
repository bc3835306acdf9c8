"""onescan: a drop-in `jax.lax.scan` that compiles the whole loop into one kernel."""

from pathlib import Path

from onescan import compat, hook
from onescan import layers as layers
from onescan.api import scan as scan
from onescan.errors import CheckError as CheckError
from onescan.errors import EngineError as EngineError
from onescan.errors import EngineWarning as EngineWarning
from onescan.errors import ScanError as ScanError
from onescan.errors import ScanTypeError as ScanTypeError
from onescan.errors import ScanValueError as ScanValueError
from onescan.explain import explain as explain
from onescan.reporting import clear_report as clear_report
from onescan.reporting import report as report
from onescan.switches import engine as engine
from onescan.switches import install as install
from onescan.switches import is_installed as is_installed
from onescan.switches import options as options
from onescan.switches import uninstall as uninstall

__version__ = "0.1.0"

compat.hide_frames(Path(__file__).parent)
hook.register()
