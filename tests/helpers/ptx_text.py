"""What stands in PTX: its loops; and the assembler, where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_LABEL = re.compile(r"^(\$L\w+):", re.MULTILINE)


def loops(code: str) -> list[str]:
    """The text of each loop: from a label to a jump back to it."""
    found = []
    for label in _LABEL.finditer(code):
        jumps = re.finditer(rf"bra(?:\.uni)?\s+{re.escape(label[1])};", code)
        ends = [jump.end() for jump in jumps if jump.end() > label.start()]
        if ends:
            found.append(code[label.start() : ends[-1]])
    return found


def time_loop(code: str) -> str:
    """The largest loop of a kernel."""
    return max(loops(code), key=len)


def count(instruction: str, code: str) -> int:
    """Instructions whose name begins with this."""
    return len(re.findall(rf"(?<![\w.]){re.escape(instruction)}(?![a-z])", code))


@cache
def assembler() -> str | None:
    """`ptxas`, of the CUDA toolkit or of an installed nvidia-cuda-nvcc package."""
    if path := shutil.which("ptxas"):
        return path
    spec = find_spec("nvidia")
    folders = (spec and spec.submodule_search_locations) or ()
    found = [file for folder in folders for file in Path(folder).glob("*/bin/ptxas")]
    return str(found[0]) if found else None


def assemble(code: str, capability: int, folder: Path) -> str:
    """What the assembler says about a kernel: registers, spills, errors."""
    program = assembler()
    assert program is not None
    source = folder / "kernel.ptx"
    source.write_text(code)
    command = [program, "-v", f"-arch=sm_{capability}", str(source), "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stderr + done.stdout
