"""Run the table of loops on a GPU, against stock JAX and the plain loop.

Needs JAX with CUDA and llvmlite, and nothing else.  The checks (`gpu_checks.py`)
run in several processes; one that dies or hangs costs the check it was at, and
another takes its place.  At the end: what failed, and how many loops ran as kernels
of ours, how many were left to XLA and why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent
EXAMPLES = """
examples:
  python scripts/gpu_tests.py                     everything
  python scripts/gpu_tests.py --only 'program:*'  what is particular to GPUs
  python scripts/gpu_tests.py --only gru lorenz   loops whose name contains this
  python scripts/gpu_tests.py --platform cpu      the same checks on the CPU
"""
SLOWEST = 240.0  # seconds that one check may take
FRESH = 40  # checks after which a process forgets what it compiled


# a process that runs checks


def work() -> None:
    """Read names of checks, one a line; answer each with a line of JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed meanwhile is no answer
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]
    import gpu_checks
    import jax

    checks = gpu_checks.all_checks()
    device = jax.devices()[0]
    hello = {
        "checks": list(checks),
        "platform": {"gpu": "cuda"}.get(device.platform, device.platform),
        "device": f"{device.platform}: {device.device_kind}, JAX {jax.__version__}",
    }
    print(json.dumps(hello), file=answers, flush=True)
    for number, line in enumerate(sys.stdin):
        print(json.dumps(_answer(gpu_checks, checks[line.strip()])), file=answers)
        answers.flush()
        if number % FRESH == FRESH - 1:
            jax.clear_caches()


def _answer(gpu_checks: Any, check: Any) -> dict[str, Any]:
    import onescan

    onescan.clear_report()
    start = time.perf_counter()
    status, message, broken = "passed", "", False
    try:
        with gpu_checks.careful():
            check()
    except gpu_checks.Skipped as why:
        status, message = "skipped", str(why)
    except Exception as error:
        status, message = "failed", f"{type(error).__name__}: {error}"
        # an error of the device may be all that the process sees from now on
        broken = "RuntimeError" in type(error).__name__
    rows = onescan.report().rows
    return {
        "status": status,
        "message": message,
        "broken": broken,
        "seconds": time.perf_counter() - start,
        "loops": [(row.engine, row.reason, row.count) for row in rows],
    }


# the process that hands them out


@dataclass
class Worker:
    """A process that runs checks."""

    process: subprocess.Popen[str]
    errors: IO[str]
    hello: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def start(platform: str) -> Worker:
        platforms = "cuda,cpu" if platform == "cuda" else platform
        environment = {
            "JAX_PLATFORMS": platforms,
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # they share the device
        }
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by stop)
        process = subprocess.Popen(
            [sys.executable, __file__, "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            bufsize=1,
            env=os.environ | environment,
        )
        worker = Worker(process, errors)
        worker.hello = worker._heard()
        return worker

    def ask(self, name: str) -> dict[str, Any]:
        """The answer to a check; a process that dies or hangs has failed it."""
        with suppress(BrokenPipeError):
            print(name, file=self.process.stdin, flush=True)
        return self._heard()

    def _heard(self) -> dict[str, Any]:
        stdout: Any = self.process.stdout
        ready, _, _ = select.select([stdout], [], [], SLOWEST)
        if ready and (line := stdout.readline()):
            return json.loads(line)
        why = "its process died" if ready else f"no answer in {SLOWEST:.0f} s"
        self.process.kill()
        self.errors.seek(0)
        told = [line for line in self.errors.read().splitlines() if line.strip()]
        message = f"{why}: {' '.join(told[-3:])}"
        return {
            "status": "failed",
            "message": message,
            "broken": True,
            "seconds": 0.0,
            "loops": [],
        }

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


@dataclass
class Session:
    """What is to be done, and what came of what was done."""

    groups: deque[list[str]]
    total: int
    deadline: float
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    told: float = 0.0

    def names(self) -> Iterator[str]:
        """The next check for whoever asks; those of one loop stay together."""
        while True:
            with self.lock:
                if not self.groups or time.monotonic() > self.deadline:
                    return
                group = self.groups.popleft()
            yield from group

    def note(self, name: str, answer: dict[str, Any]) -> None:
        with self.lock:
            self.answers[name] = answer
            if answer["status"] == "failed":
                print(f"FAILED {name}: {_short(answer['message'])}", flush=True)
            if time.monotonic() - self.told > 10 or len(self.answers) == self.total:
                self.told = time.monotonic()
                failed = sum(a["status"] == "failed" for a in self.answers.values())
                done = f"{len(self.answers)} of {self.total} checks"
                print(f"{done}, {failed} failed; now: {name}", flush=True)


def serve(session: Session, platform: str, worker: Worker | None) -> None:
    """Hand out checks to one process after another."""
    for name in session.names():
        worker = worker or Worker.start(platform)
        answer = worker.ask(name)
        session.note(name, answer)
        if answer["broken"]:
            worker.stop()
            worker = None
    if worker:
        worker.stop()


def main() -> int:
    options = _parser().parse_args()
    if options.work:
        work()
        return 0
    start = time.monotonic()
    first = Worker.start(options.platform)
    if first.hello.get("platform") != options.platform:
        found = first.hello.get("device") or first.hello["message"]
        print(f"JAX finds no {options.platform} device here: {found}")
        first.stop()
        return 2
    names = _selected(first.hello["checks"], options.only)
    if options.list or not names:
        print("\n".join(names) or "No check matches; --list shows them all.")
        first.stop()
        return 0 if names else 2
    groups = [list(g) for _, g in groupby(names, lambda name: name.split(",")[0])]
    jobs = min(options.jobs, len(groups))
    print(f"{len(names)} checks on {first.hello['device']}, {jobs} at a time")
    session = Session(deque(groups), len(names), start + options.stop_after)
    threads = [
        threading.Thread(
            target=serve, args=(session, options.platform, None if k else first)
        )
        for k in range(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(_summary(session, names, time.monotonic() - start))
    everything = len(session.answers) == len(names)
    fine = all(a["status"] != "failed" for a in session.answers.values())
    return 0 if everything and fine else 1


def _summary(session: Session, names: list[str], seconds: float) -> str:
    lines = ["", f"{'group':<14}{'checks':>8}{'passed':>8}{'failed':>8}{'skipped':>9}"]
    kinds = "passed", "failed", "skipped"
    for group in [*dict.fromkeys(name.split(":")[0] for name in names), "all"]:
        mine = [n for n in names if group in ("all", n.split(":")[0])]
        known = [session.answers[n] for n in mine if n in session.answers]
        found = Counter(answer["status"] for answer in known)
        counts = [found[kind] for kind in kinds]
        lines.append(f"{group:<14}{len(mine):>8}" + "{:>8}{:>8}{:>9}".format(*counts))
    missing = len(names) - len(session.answers)
    lines += [f"{missing} checks were not run: the time was up"] * (missing > 0)
    lines += ["", *_skipped(session), *_failures(session), *_loops(session), ""]
    lines.append(f"{seconds:.0f} s; the slowest: {_slowest(session)}")
    return "\n".join(lines)


def _skipped(session: Session) -> list[str]:
    return [
        f"skipped {name}: {answer['message']}"
        for name, answer in session.answers.items()
        if answer["status"] == "skipped"
    ]


def _failures(session: Session) -> list[str]:
    return [
        f"FAILED {name}: {_short(answer['message'])}"
        for name, answer in sorted(session.answers.items())
        if answer["status"] == "failed"
    ]


def _loops(session: Session) -> list[str]:
    """How many loops ran where, and why not all of them as ours."""
    native, reasons = 0, Counter[str]()
    for answer in session.answers.values():
        for engine, reason, count in answer["loops"]:
            if engine == "native":
                native += count
            else:  # the same reason at different places is one
                reasons[re.sub(r" at \S+:\d+", "", reason or "")] += count
    lines = [f"loops: {native} native, {reasons.total()} left to XLA"]
    return lines + [f"{count:>7}  {why}" for why, count in reasons.most_common()]


def _slowest(session: Session) -> str:
    by_time = sorted(session.answers.items(), key=lambda item: -item[1]["seconds"])
    return "; ".join(f"{name} {a['seconds']:.0f} s" for name, a in by_time[:5])


def _short(message: str) -> str:
    return " ".join(message.split())[:400]


def _selected(names: list[str], patterns: list[str] | None) -> list[str]:
    if not patterns:
        return names
    return [n for n in names if any(p in n or fnmatch(n, p) for p in patterns)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", metavar="PATTERN", help="checks whose name contains this")
    add("--list", action="store_true", help="show the checks and stop")
    add("--platform", default="cuda", help="cpu tries the checks themselves")
    jobs = min(16, os.cpu_count() or 1)
    add("--jobs", type=int, default=jobs, help=f"processes (here: {jobs})")
    add(
        "--stop-after",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="begin no check after this time, and fail if some are left",
    )
    add("--work", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
