"""`onescan explain`: a function of a module, or every loop that a program runs."""

from __future__ import annotations

import argparse
import atexit
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.rule import Rule

import onescan
from onescan.errors import ScanError
from onescan.explain.view import Explanation
from onescan.reports import kept

USAGE = """\
onescan explain [--save FILE] module:function --init VALUE [--xs VALUE]
                       [--length N] [--reverse] [--measure] [--stages PLATFORM]
       onescan explain [--save FILE] script.py [arguments ...]
       onescan explain [--save FILE] -m module [arguments ...]
"""
EPILOG = """\
VALUE is a Python expression, in which the names of the module, jax, jnp and np are
known: 0, "[1, 2, 3]", "jnp.ones((100, 3))", "init_state()". A type such as
"float32[100,3]" stands for an array of which only the shape matters.
"""
NO_LOOPS = "The program ran no loop that onescan was given."
TYPES = """
bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64
complex64 complex128
""".split()


class Type:
    """A type that is written as JAX prints it: ``float32[100,3]``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, shape: int | tuple[int, ...]) -> jax.ShapeDtypeStruct:
        shape = shape if isinstance(shape, tuple) else (shape,)
        return jax.ShapeDtypeStruct(shape, jnp.dtype(self.name))

    def __call__(self, value: Any) -> Any:
        return jnp.asarray(value, self.name)


def explain_command(arguments: Sequence[str], run: Callable[[list[str]], None]) -> int:
    """The command; `run` runs a program as `python` would."""
    parser = argparse.ArgumentParser(
        "onescan explain",
        usage=USAGE,
        description="Explain a loop: its steps, its shapes, how it runs, its source.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    save = {"type": Path, "metavar": "FILE", "help": "write a page to this file"}
    parser.add_argument("--save", **save)
    parser.add_argument("-m", action="store_true", dest="module", help="a module runs")
    parser.add_argument("target", help="module:function, or a program")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    target = options.target
    if options.module:
        return _explain_program(["-m", target, *options.rest], options.save, run)
    if os.path.isfile(target):
        return _explain_program([target, *options.rest], options.save, run)
    if ":" not in target:
        parser.error(f"there is no file {target}, and it is no module:function")
    parser.add_argument("--init", metavar="VALUE", help="the carry of the first step")
    parser.add_argument("--xs", metavar="VALUE", help="what the loop goes through")
    parser.add_argument("--length", type=int, metavar="N", help="steps, without xs")
    parser.add_argument("--measure", action="store_true", help="time it here, too")
    parser.add_argument("--reverse", action="store_true", help="from last to first")
    parser.add_argument(
        "--stages", choices=("cpu", "cuda"), help="print what the compiler makes of it"
    )
    before = ["--save", str(options.save)] if options.save else []
    options, more = parser.parse_known_args([*before, *options.rest, target])
    if more or options.rest:
        parser.error(f"unknown arguments: {' '.join([*more, *options.rest])}")
    return _explain_function(options, parser.error)


def _explain_function(
    options: argparse.Namespace, fail: Callable[[str], NoReturn]
) -> int:
    where, _, name = options.target.rpartition(":")
    if options.init is None:
        fail("say what the first carry is: --init VALUE")
    try:
        names = vars(_module(where))
    except (ImportError, OSError) as error:
        fail(f"{where} cannot be imported: {error}")
    function: Any = _value(name, names, "the function", fail)
    if not callable(function):
        fail(f"{name} of {where} is no function")
    init = _value(options.init, names, "--init", fail)
    xs = None if options.xs is None else _value(options.xs, names, "--xs", fail)
    try:
        told = onescan.explain(
            cast("Any", function),
            init,
            xs,
            options.length,
            options.reverse,
            measure=options.measure,
        )
        if options.stages:
            Console().print(told.stages(options.stages))
        elif options.save:
            _save(told, options.save)
        else:
            Console().print(told)
    except ScanError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _module(where: str) -> Any:
    """A module by its name or its file, as a program in this folder finds it."""
    if where.endswith(".py"):
        path = Path(where)
        if not path.is_file():
            raise ImportError(f"there is no file {where}")
        sys.path.insert(0, str(path.resolve().parent))
        return importlib.import_module(path.stem)
    sys.path.insert(0, os.getcwd())
    return importlib.import_module(where)


def _value(
    text: str, names: dict[str, Any], what: str, fail: Callable[[str], NoReturn]
) -> Any:
    known = {"jax": jax, "jnp": jnp, "np": np}
    types = {name: Type(name) for name in TYPES}
    try:
        found = eval(text, {**types, **known, **names})
    except Exception as error:
        fail(f"{what} is {text!r}, which fails with {type(error).__name__}: {error}")

    def typed(leaf: Any) -> Any:
        return leaf[()] if isinstance(leaf, Type) else leaf

    return jax.tree.map(typed, found)


def _explain_program(
    program: list[str], save: Path | None, run: Callable[[list[str]], None]
) -> int:
    onescan.install()
    kept.start()
    atexit.register(_explain_all, save)  # after the program's own exit handlers
    run(program)
    return 0


def _explain_all(save: Path | None) -> None:
    """Every loop of the program but JAX's own, in the order in which they came."""
    jax.block_until_ready(jax.live_arrays())  # the program may still be running
    inside = str(Path(jax.__file__).parent) + os.sep
    rows = [r for r in onescan.report().rows if not r.source.startswith(inside)]
    console = Console()
    if not rows:
        console.print(NO_LOOPS)
    for number, row in enumerate(rows, 1):
        if save is not None:
            name = f"{save.stem}-{number}{save.suffix}" if len(rows) > 1 else save.name
            _save(row.explain(), save.with_name(name))
            continue
        console.print(Rule(f"loop {number} of {len(rows)}"))
        console.print(row.explain())


def _save(told: Explanation, path: Path) -> None:
    print(f"{told.title}: {told.save(path)}")
