"""Running code in another process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent


def python(
    code: str, *args: str, flags: str = "", beside: str = __file__
) -> subprocess.CompletedProcess[str]:
    """Run code in another process, which can import helpers and what is `beside`."""
    folders = [str(HERE), str(Path(beside).parent)]
    head = f"import sys; sys.path[:0] = {folders}\n"
    if flags:
        head += f"import os; os.environ['XLA_FLAGS'] = {flags!r}\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=_hear_ctrl_c,
    )


def _hear_ctrl_c() -> None:
    """Which a suite that runs in the background is deaf to, and its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def output(code: str, *args: str, flags: str = "", beside: str = __file__) -> str:
    done = python(code, *args, flags=flags, beside=beside)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
