"""From a loop that fails to a small one that still does, as a program to run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from fuzz.check import Batch, failures, inputs
from fuzz.program import Program, Step
from onescan.errors import EngineError


def fails(batch: Batch) -> str | None:
    """What is wrong with a batch, an error of the engine included."""
    try:
        return next(iter(failures(batch).values()), None)
    except Exception as error:
        return f"{type(error).__name__}: {error}".split("\n")[0]


def is_refusal(error: Exception) -> bool:
    """Whether the engine left a loop for a reason, and did not break."""
    return isinstance(error, EngineError) and "failed inside" not in str(error)


def failing(batch: Batch, left: Counter[str], plainly: bool) -> list[Batch]:
    """The loops of a batch that fail, each as a batch of its own.

    Reasons for which loops were left to XLA are counted in `left`.
    """
    try:
        if not failures(batch, plainly):
            return []
    except Exception:  # which loop it was is seen below
        pass
    found, whole = [], True
    for program in batch.programs:
        alone = batch.replace(programs=(program,))
        try:
            if failures(alone):
                found.append(alone)
        except Exception as error:
            if is_refusal(error):
                whole = False
                left[re.sub(r".* was left to XLA: | at [^ ]*|\d+", "", str(error))] += 1
            else:
                found.append(alone)
    return found or [batch] * (whole and fails(batch) is not None)


def shrunk(batch: Batch) -> Batch:
    """The smallest batch of one loop that still fails, found greedily."""
    kind = _kind(fails(batch))
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(batch):
            if _kind(fails(candidate)) == kind:
                batch, smaller = candidate, True
                break
    return batch


def _kind(trouble: str | None) -> str | None:
    """A wrong result, or the text of an error but for its numbers."""
    if trouble is None or trouble.startswith("not as"):
        return trouble and "not as"
    return re.sub(r"\d+|Var.*", "", trouble)


def _candidates(batch: Batch) -> Iterator[Batch]:
    (program,) = batch.programs
    if batch.mode != "plain":
        yield batch.replace(mode="plain")
    if batch.lanes_first:
        yield batch.replace(lanes_first=False)
    if batch.passes:
        yield batch.replace(passes=False)
    if batch.reverse:
        yield batch.replace(reverse=False)
    if batch.length > 1:
        yield batch.replace(length=1)
        yield batch.replace(length=batch.length // 2)
        yield batch.replace(length=batch.length - 1)
    for smaller in _programs(program):
        yield batch.replace(programs=(smaller,))


def _programs(program: Program) -> Iterator[Program]:
    ys = program.ys
    for k in range(len(ys)):
        yield program.replace(ys=(*ys[:k], *ys[k + 1 :]))
    for k, value in enumerate(program.carry):  # a carry that stays as it is
        if program.after_args[k] != value.name:
            args = (*program.after_args[:k], value.name, *program.after_args[k + 1 :])
            after = (*program.after[:k], "{0}", *program.after[k + 1 :])
            yield program.replace(after=after, after_args=args)
    for step in program.steps[::-1]:
        if step.text != "jnp.ones({0}, '{1}')":
            yield _without(program, step)
    for kind in ("consts", "carry", "xs"):
        yield from _without_inputs(program, kind)


def _used(program: Program) -> set[str]:
    names = {a for step in program.steps for a in step.args}
    return names | set(program.ys) | set(program.after_args)


def _without(program: Program, step: Step) -> Program:
    """Drop a step if nobody reads it, else make it a constant."""
    steps = list(program.steps)
    k = steps.index(step)
    if step.value.name not in _used(program):
        del steps[k]
    else:
        shape = ", ".join(map(str, step.value.shape)) + (
            "," if step.value.shape else ""
        )
        args = (f"({shape})", step.value.dtype)
        steps[k] = Step(step.value, "jnp.ones({0}, '{1}')", args)
    return program.replace(steps=tuple(steps))


def _without_inputs(program: Program, kind: str) -> Iterator[Program]:
    values = getattr(program, kind)
    used = {a for step in program.steps for a in step.args} | set(program.ys)
    for k, value in enumerate(values):
        drop = lambda items: (*items[:k], *items[k + 1 :])
        changes: dict[str, Any] = {kind: drop(values)}
        if kind == "carry":
            if value.name in used or value.name in drop(program.after_args):
                continue
            changes["after"] = drop(program.after)
            changes["after_args"] = drop(program.after_args)
        elif value.name in used | set(program.after_args):
            continue
        yield program.replace(**changes)


REPORT = """\
# seed {seed}, {mode}, length {length}, lanes {lanes}, passes {passes}
# again: python scripts/fuzz.py --seed {seed} --loops 1
# {trouble}
import jax, jax.numpy as jnp, numpy as np, onescan
from jax import lax, random

jax.config.update("jax_enable_x64", True)


{source}


def arrays(values):
    return tuple(np.array(value, jnp.dtype(dtype)) for value, dtype in values)


def loop(consts, init, xs):
    return onescan.scan(make(*consts), init, xs, {length}, reverse={reverse})


{call}inputs = tuple(map(arrays, {inputs}))
for engine in ("native", "xla"):
    with onescan.engine(engine):
        print(engine, jax.jit(lambda *a: loop(*a))(*inputs))
"""


def as_python(batch: Batch, trouble: str) -> str:
    """A program that shows the failure, or the loop itself for other transforms."""
    (program,) = batch.programs
    shown = batch if batch.mode == "vmap" else batch.replace(mode="plain")
    ((consts, init, xs),) = inputs(shown)
    axes = "(None, 0, 1), (0, 1)"
    if batch.lanes_first and batch.mode == "vmap":
        axes, xs = "(None, 0, 0)", [x.swapaxes(0, 1) for x in xs]
    plain = lambda arrays: [(a.tolist(), a.dtype.name) for a in map(np.asarray, arrays)]
    is_vmap = batch.mode == "vmap"
    return REPORT.format(
        seed=batch.seed,
        mode=batch.mode,
        length=batch.length,
        reverse=batch.reverse,
        lanes=batch.lanes,
        passes=batch.passes,
        trouble=trouble,
        source=program.source(),
        inputs=(plain(consts), plain(init), plain(xs)),
        call=f"loop = jax.vmap(loop, {axes})\n" if is_vmap else "",
    )
