"""The command line: `onescan demo` and `explain`, and running an unmodified program.

`python -m onescan script.py` does what `python script.py` does, with every
`jax.lax.scan` of the process going through onescan: `sys.argv`, `sys.path`,
`__name__`, exit codes and tracebacks are those the program would see by itself.
"""

from __future__ import annotations

import argparse
import atexit
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

import onescan
from onescan import switches

USAGE = """\
onescan demo [--quick] [--out FILE]
       onescan explain [--save FILE] module:function --init VALUE [--xs VALUE]
       onescan explain [--save FILE] script.py [arguments ...]
       onescan [--report] [--strict] [--check] script.py [arguments ...]
       onescan [--report] [--strict] [--check] -m module [arguments ...]
       onescan --compare script.py [arguments ...]
"""
EPILOG = """\
`python -m onescan ...` is the same command. JAX is imported before the program
starts: set variables that JAX reads at its import, such as JAX_ENABLE_X64, in the
shell rather than in the program.
"""

COMMANDS = ("demo", "explain")
WITH_VALUE = ("--engine", "--times")  # the value follows
LAUNCHERS = (
    "<frozen runpy>",
    "<frozen importlib._bootstrap>",
    "<frozen importlib._bootstrap_external>",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; what it returns is the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options, program = _parse(arguments)
    if program[0] == "demo":
        return _demo(program[1:])
    if program[0] == "explain":
        from onescan.explain.command import explain_command

        return explain_command(program[1:], _run)
    if options.compare:
        from onescan.command.compare import compare

        return compare(program)
    onescan.install(strict=options.strict, check=options.check)
    if options.engine:
        switches.set_globally(engine=options.engine)
    if options.report:
        atexit.register(_print_report)  # after the program's own exit handlers
    if options.times:
        from onescan.command.compare import Watch

        atexit.register(Watch(options.times, loops=options.loops).write)
    _run(program)
    return 0


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our own options, and the program with everything after it untouched."""
    parser = argparse.ArgumentParser(
        "onescan",
        usage=USAGE,
        description="Run a JAX program with every scan compiled by onescan.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=onescan.__version__)
    parser.add_argument(
        "--report",
        action="store_true",
        help="print at exit, on standard error, what became of every loop",
    )
    parser.add_argument(
        "--strict", action="store_true", help="fail on the first loop left to XLA"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run every loop on both engines and raise where they disagree",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="run the program several times, by stock JAX and by onescan in turns, and "
        "print what both take, as a whole and for each loop",
    )
    parser.add_argument(
        "--engine", choices=("auto", "xla"), help="xla: run the program by stock JAX"
    )
    # what --compare asks of its runs
    parser.add_argument("--times", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--loops", action="store_true", help=argparse.SUPPRESS)
    ours = 0
    while ours < len(arguments) and _is_option(arguments[ours]):
        ours += 2 if arguments[ours] in WITH_VALUE else 1
    options = parser.parse_args(arguments[:ours])
    program = arguments[ours:]
    if not program or program == ["-m"]:
        parser.error("say what to run: demo, explain, script.py or -m module")
    if program[0] in COMMANDS and ours:
        given, name = " ".join(arguments[:ours]), program[0]
        parser.error(f"{given} goes with a program, not with {name}")
    if program[0] not in (*COMMANDS, "-m") and not os.path.isfile(program[0]):
        parser.error(f"there is no file {program[0]}")
    return options, program


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and argument != "-m"


def _demo(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "onescan demo",
        description="Run ordinary JAX loops under stock JAX and under onescan, "
        "compare their results, and show the times in a table and a plot.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="short loops, few repeats: a smoke test"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        default=Path("onescan-demo.png"),
        help="where to save the plot (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    from onescan.demo import demo  # only here: other commands need no loops

    return demo(quick=options.quick, out=options.out)


def _run(program: list[str]) -> None:
    """Run a script or module as `python` itself would."""
    sys.excepthook = _from_the_program
    if program[0] == "-m":
        sys.argv = program[1:]
        _set_path(os.getcwd())
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = program
    _set_path(os.path.dirname(os.path.realpath(program[0])))
    path = os.path.abspath(program[0])
    loader = SourceFileLoader("__main__", path)
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__, main.__loader__ = path, loader
    exec(loader.source_to_code(loader.get_data(path), path), vars(main))


def _set_path(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _from_the_program(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print a traceback that starts in the program, as if onescan were not there."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code is not _run.__code__:
        inner = inner.tb_next
    while inner is not None and _launches(inner.tb_frame.f_code):
        inner = inner.tb_next
        trace = inner
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def _launches(code: CodeType) -> bool:
    """Whether this frame stands between us and the first line of the program."""
    return code is _run.__code__ or code.co_filename in LAUNCHERS


def _print_report() -> None:
    from rich.console import Console

    Console(stderr=True).print(onescan.report())
