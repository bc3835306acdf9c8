"""What the code of a thread and that of a block have in common."""

from __future__ import annotations

from onescan.emit.builder import Plain
from onescan.emit.emitter import Emitter
from onescan.emit.rules import RULES


class GpuEmitter(Emitter):
    """One kernel function of a GPU under construction."""

    builder = Plain  # every thread runs it: there is less to save than in vectors
    rules = RULES
    has_unroll_hints = False
    has_read_only_loads = True
