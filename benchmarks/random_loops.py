"""Random loops under both engines in turns: which are slower, and how often?

`run` times loops of a range of seeds, each in a process of its own, and appends a line
of JSON for each; `show` tells how they are distributed; `shrink` leaves parts of a
slow loop out, as long as it stays slow, and prints what remains.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

SLOW = 0.9
TOLERANCE = 1e-2
EXAMPLES = """
examples:
  python benchmarks/random_loops.py run 1000 200 out/loops.jsonl --minutes 20
  python benchmarks/random_loops.py show out/loops.jsonl
  python benchmarks/random_loops.py shrink 1017
  python benchmarks/random_loops.py run 1000 100 out/gpu.jsonl --each 20   on a GPU
"""


def main() -> int:
    options = _parser().parse_args()
    return options.command(options)


def run(options: argparse.Namespace) -> int:
    end = time.monotonic() + 60 * options.minutes
    options.out.parent.mkdir(parents=True, exist_ok=True)
    seeds = list(range(options.first, options.first + options.count))
    print(f"seeds {seeds[0]} to {seeds[-1]}")
    while seeds and time.monotonic() < end:
        some, seeds = seeds[: options.each], seeds[options.each :]
        reached = _in_a_child(some, options)
        if reached is not None:  # the child did not get to its end
            seed, why = reached
            _append(options.out, {"seed": seed, "trouble": why})
            seeds = some[some.index(seed) + 1 :] + seeds
    return show(options)


def _in_a_child(seeds: list[int], options: argparse.Namespace) -> Any:
    """Time loops in a child; the seed at which it died, and how, if it did."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        from first_loop import warm_up

        os.close(read)
        warm_up()
        for seed in seeds:
            os.write(write, f"{seed}\n".encode())
            signal.alarm(options.limit)
            _append(options.out, _timed_seed(seed))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as begun:
        last = [int(line) for line in begun][-1]
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return None
    return last, "took too long" if code == -signal.SIGALRM else f"ended by {code}"


def _timed_seed(seed: int) -> dict[str, Any]:
    from random_program import random_loop

    try:
        loop = random_loop(seed)
        found = timed(loop.fn, loop.args)
        if found["ratio"] < SLOW:  # noise is not a finding
            again = timed(loop.fn, loop.args, rounds=15)
            found["ratio"] = max(found["ratio"], again["ratio"])
        if not found["differs"] <= TOLERANCE:
            found["wrong"] = _more_than_rounding(loop.fn, loop.args)
    except Exception as error:
        return {"seed": seed, "trouble": f"{type(error).__name__}: {error}"[:200]}
    return {"seed": seed, "loop": str(loop), **found}


def _more_than_rounding(fn: Any, args: Any) -> str:
    """What is wrong, if it is more than what this loop makes of roundings."""
    import jax

    import onescan

    onescan.install(check=True)
    try:
        jax.block_until_ready(jax.jit(lambda *args: fn(*args))(*args))
    except Exception as error:  # as XLA's callbacks hand it on
        return str(error)
    finally:
        onescan.install()
    return ""


def timed(fn: Any, args: Any, rounds: int = 7) -> dict[str, Any]:
    """Both engines on one function: seconds of a call, of compiling, and the check."""
    import warnings

    import jax
    from differences import difference, plain

    import onescan

    jax.config.update("jax_enable_compilation_cache", False)  # nothing was kept
    onescan.install()
    warnings.simplefilter("ignore")
    compiled, compiling = {}, {}
    for engine in ("xla", "auto"):
        with onescan.engine(engine):
            jax.jit(lambda *args: fn(*args)).trace(*args)  # fills jax.numpy's caches
    onescan.clear_report()
    for engine in ("xla", "auto"):
        start = time.perf_counter()
        with onescan.engine(engine):
            compiled[engine] = jax.jit(lambda *args: fn(*args)).lower(*args).compile()
        compiling[engine] = time.perf_counter() - start
    results = {k: jax.device_get(plain(f(*args))) for k, f in compiled.items()}
    samples: dict[str, list[float]] = {engine: [] for engine in compiled}
    for _ in range(rounds):
        for engine, f in compiled.items():
            samples[engine].append(_seconds(f, args))
    seconds = {engine: median(taken) for engine, taken in samples.items()}
    loops = [f"{row.engine}: {row.reason or ''}" for row in onescan.report().rows]
    return {
        "ratio": seconds["xla"] / seconds["auto"],
        "stock_ms": 1e3 * seconds["xla"],
        "onescan_ms": 1e3 * seconds["auto"],
        "compile_s": compiling["xla"],
        "compile_ratio": compiling["auto"] / compiling["xla"],
        "differs": difference(results["auto"], results["xla"], agree=0.9),
        "loops": loops,
    }


def _seconds(f: Any, args: Any) -> float:
    """Of a call, over as many as fill some milliseconds."""
    import jax

    calls, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < 0.01 or not calls:
        jax.block_until_ready(f(*args))
        calls += 1
    return taken / calls


def show(options: argparse.Namespace) -> int:
    lines = [json.loads(line) for line in options.out.read_text().splitlines()]
    done = [line for line in lines if "ratio" in line]
    for line in lines:
        if "trouble" in line:
            print(f"seed {line['seed']}: {line['trouble']}")
    if not done:
        return 1
    ratios = [line["ratio"] for line in done]
    shares = {
        f"below {x}x": _share(r < x for r in ratios) for x in (0.1, 0.5, 0.9, 0.95)
    }
    late = [d for d in done if _is_late(d)]
    apart = [d for d in done if not d["differs"] <= TOLERANCE]
    wrong = [d for d in apart if d.get("wrong")]
    print(f"\n{len(done)} loops, geometric mean {_mean(ratios):.2f}x", end="; ")
    print("; ".join(f"{name} {share:.1%}" for name, share in shares.items()))
    compiling = _mean([d["compile_ratio"] for d in done])
    print(f"compile time {compiling:.2f}x; {len(late)} above 2x plus 0.1 s")
    print(f"{len(apart)} differ by more than {TOLERANCE:.0%}, ", end="")
    print(f"{len(wrong)} by more than what the loop makes of roundings")
    for title, some in (("slow", _slowest(done)), ("late", late), ("wrong", wrong)):
        for d in some[:40]:
            print(
                f"{title} seed {d['seed']}: {d['ratio']:.2f}x "
                f"({d['stock_ms']:.2f} -> {d['onescan_ms']:.2f} ms), compile "
                f"{d['compile_s']:.2f} s x {d['compile_ratio']:.1f}, differs by "
                f"{d['differs']:.0e}\n    {d['loop']}\n    {'; '.join(d['loops'])}"
            )
            if title == "wrong":
                print(f"    {d['wrong']}")
    return 0


def shrink(options: argparse.Namespace) -> int:
    """Leave out parts, one after another, as long as the loop stays slow."""
    import jax
    from random_program import random_loop

    whole = random_loop(options.seed)
    keep = frozenset(range(64))
    first = timed(whole.fn, whole.args)
    print(f"seed {options.seed}: {first['ratio']:.2f}x\n{whole}")
    target = max(min(SLOW, 1.5 * first["ratio"]), first["ratio"])
    for i in range(len(whole.parts) + 16):
        if i not in keep:
            continue
        loop = random_loop(options.seed, keep - {i})
        if len(loop.parts) == len(random_loop(options.seed, keep).parts):
            continue
        found = timed(loop.fn, loop.args)
        if found["ratio"] <= target:
            keep -= {i}
            print(f"without part {i}: {found['ratio']:.2f}x")
        jax.clear_caches()
    loop = random_loop(options.seed, keep)
    print(f"\nleft: {loop}\n{jax.make_jaxpr(loop.fn)(*loop.args)}")
    return 0


def _is_late(d: dict[str, Any]) -> bool:
    return d["compile_s"] * d["compile_ratio"] > 2 * d["compile_s"] + 0.1


def _slowest(done: list[dict[str, Any]]) -> list[dict[str, Any]]:
    slow = [d for d in done if d["ratio"] < SLOW]
    return sorted(slow, key=lambda d: d["ratio"])


def _mean(numbers: list[float]) -> float:
    return exp(sum(map(log, numbers)) / len(numbers))


def _share(which: Iterable[bool]) -> float:
    which = list(which)
    return sum(which) / len(which)


def _append(out: Path, line: dict[str, Any]) -> None:
    with out.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run", help="time loops of many seeds")
    one.set_defaults(command=run)
    one.add_argument("first", type=int)
    one.add_argument("count", type=int)
    one.add_argument("out", type=Path)
    one.add_argument("--minutes", type=float, default=60.0, help="then stop")
    one.add_argument("--limit", type=int, default=120, help="seconds for a loop")
    one.add_argument("--each", type=int, default=1, help="loops for a process")
    two = commands.add_parser("show", help="what is in a file")
    two.set_defaults(command=show)
    two.add_argument("out", type=Path)
    three = commands.add_parser("shrink", help="the smallest loop that is as slow")
    three.set_defaults(command=shrink)
    three.add_argument("seed", type=int)
    return parser


if __name__ == "__main__":
    sys.exit(main())
