"""What the code of a thread and that of a block have in common."""

from __future__ import annotations

from onescan.emit.emitter import Emitter
from onescan.emit.rules import RULES
from onescan.targets.nvidia.plain import Plain


class GpuEmitter(Emitter):
    """One kernel function of a GPU under construction."""

    builder = Plain
    rules = RULES
    has_read_only_loads = True
