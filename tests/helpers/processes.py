"""Running code in another process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
#: to which processes are deaf that a suite in the background starts
CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def python(
    code: str, *args: str, flags: str = "", beside: str = __file__
) -> subprocess.CompletedProcess[str]:
    """Run code in another process, which can import helpers and what is `beside`."""
    folders = [str(HERE), str(Path(beside).parent)]
    head = f"import sys; sys.path[:0] = {folders}\n" + CTRL_C
    if flags:
        head += f"import os; os.environ['XLA_FLAGS'] = {flags!r}\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        timeout=300,
    )


def output(code: str, *args: str, flags: str = "", beside: str = __file__) -> str:
    done = python(code, *args, flags=flags, beside=beside)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
