"""The processor that a plan is for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

from onescan.emit.math.features import AMX, F16C
from onescan.runtime import compiler
from onescan.targets.cpu.permission import may_use_tiles


@dataclass(frozen=True)
class Machine:
    """What a plan must know of the processor."""

    vector_bytes: int
    cores: int
    features: frozenset[str] = frozenset()


@cache
def host() -> Machine:
    """The processor we are on."""
    features = compiler.host_features()
    wide = 64 if "+avx512f" in features else 32 if "+avx2" in features else 16
    found = {"avx512": "+avx512f", "f16c": "+f16c"}
    has = {name for name, flag in found.items() if flag in features}
    if compiler.triple().startswith(("aarch64", "arm64")):
        has.add(F16C)
    if wide == 64 and "+amx-bf16" in features and may_use_tiles():
        has.add(AMX)
    return Machine(wide, cores=os.cpu_count() or 1, features=frozenset(has))
