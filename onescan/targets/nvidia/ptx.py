"""LLVM for NVIDIA GPUs: text of a module in, PTX out."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import binding

from onescan.runtime import compiler, kept

TRIPLE = "nvptx64-nvidia-cuda"
#: the first compute capability with teams of blocks
CLUSTERS = 90
#: of LLVM's passes: the assembler of PTX does what more of them would do
LEVEL = 1


@functools.cache
def _target_machine(capability: int) -> Any:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(TRIPLE)
    # what a team's mail needs; newer GPUs have it by default
    features = "+ptx81" if capability == CLUSTERS else ""
    return target.create_target_machine(
        cpu=f"sm_{capability}", features=features, opt=2
    )


def ptx(text: str, capability: int) -> str:
    """The code of a module for GPUs of a compute capability (90 for 9.0)."""
    follows_from = f"{compiler.version()}\n{capability}\n{text}"
    make = functools.partial(_made, text, capability)
    return kept.code(follows_from, (__file__, compiler.__file__), make).decode()


def _made(text: str, capability: int) -> bytes:
    machine = _target_machine(capability)
    header = f'target triple = "{TRIPLE}"\n'
    header += f'target datalayout = "{machine.target_data}"\n'
    lines = text.splitlines()
    body = "\n".join(line for line in lines if not line.startswith("target "))
    with compiler.optimised(header + body, LEVEL, machine) as module:
        return machine.emit_assembly(module).encode()
