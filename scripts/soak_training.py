"""Kill a training run at random moments, again and again: its losses must not change.

    python scripts/soak_training.py [--kills 30] [--seed 0]

Each round starts the run of `killed_training.py` in a process of its own and kills
it (SIGKILL) after a random time, be it importing, compiling, training or writing a
checkpoint. Whenever a run gets to its end, its losses are compared, bit for bit, with
those of a run that nothing disturbed, and the next one begins.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "helpers" / "killed_training.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        began = time.perf_counter()
        start(whole).wait()
        longest = 1.2 * (time.perf_counter() - began)
        expected = np.load(whole / "losses.npy").tobytes()
        kills = ends = 0
        broken = Path(folder) / "broken"
        while kills < options.kills:
            process = start(broken)
            try:
                code = process.wait(timeout=rng.uniform(0, longest))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
                continue
            if code != 0:
                sys.exit(f"the run failed after {kills} kills")
            if np.load(broken / "losses.npy").tobytes() != expected:
                sys.exit(f"other losses after {kills} kills")
            ends += 1
            shutil.rmtree(broken)
        print(f"{kills} kills, {ends} runs that ended, all with the same losses")


def start(folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder / "run")])


if __name__ == "__main__":
    main()
