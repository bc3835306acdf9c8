"""The processor that a plan is for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from onescan.emit.math.features import AMX, AVX512, BF16, F16C, FP16, NEON, PAIRS, QUADS
from onescan.runtime import compiler
from onescan.targets.cpu import available
from onescan.targets.cpu.permission import may_use_tiles


@dataclass(frozen=True)
class Machine:
    """What a plan must know of the processor."""

    vector_bytes: int
    cores: int  # that the process may use
    features: frozenset[str] = frozenset()
    l1: int = 32 << 10  # bytes of a core's L1 cache, and of its second
    l2: int = 1 << 20

    def __str__(self) -> str:
        """The same text in every process; a set has another order in each."""
        features = " ".join(sorted(self.features))
        sizes = f"{self.vector_bytes}, {self.cores}, {self.l1}, {self.l2}"
        return f"Machine({sizes}, {features})"


@cache
def host() -> Machine:
    """The processor we are on."""
    features = compiler.host_features()
    wide = 64 if "+avx512f" in features else 32 if "+avx2" in features else 16
    found = {AVX512: "+avx512f", F16C: "+f16c", FP16: "+avx512fp16"}
    found[BF16] = "+avx512bf16"
    has = {name for name, flag in found.items() if flag in features}
    if compiler.triple().startswith(("aarch64", "arm64")):
        has.update((F16C, FP16, NEON))
    elif wide < 64 or "+avx512bw" in features:
        has.add(PAIRS)
    narrow = "+avxvnni" in features and wide < 64
    if narrow or ("+avx512vnni" in features and "+avx512vl" in features):
        has.add(QUADS)
    if wide == 64 and "+amx-bf16" in features and may_use_tiles():
        has.add(AMX)
    caches = {"l1": available.cache_bytes(1), "l2": available.cache_bytes(2)}
    return Machine(wide, available.cores(), frozenset(has), **caches)
