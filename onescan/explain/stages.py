"""The compiler at work: a loop at each of its stages, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.rule import Rule
from rich.text import Text

from onescan.errors import ScanValueError
from onescan.explain.decide import PLATFORMS, Decision, decide, here, meant
from onescan.explain.run import laid_out
from onescan.loop import Loop
from onescan.plan.plan import Plan

WIDTH = 100


@dataclass(frozen=True)
class Stages(Mapping[str, str]):
    """What a loop looks like at each stage, by the names of the stages, in order.

    It is a mapping from names to text, and prints with a heading for each stage.
    """

    title: str
    texts: tuple[tuple[str, str], ...]

    def __getitem__(self, name: str) -> str:
        found = dict(self.texts)
        if name not in found:
            raise KeyError(f"{name!r} is not one of the stages: {', '.join(found)}")
        return found[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield Text(self.title, "bold")
        for name, text in self.texts:
            yield Rule(name)
            yield Text(text)

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=WIDTH, color_system=None).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    __repr__ = __str__


def stages_of(loop: Loop, platform: str | None = None) -> Stages:
    """A loop's stages on a platform, "cpu" or "cuda"."""
    platform = platform or here()
    if platform not in PLATFORMS:
        raise ScanValueError(
            f'stages: there is no engine for "{platform}". '
            f"Choose one of {', '.join(PLATFORMS)}."
        )
    decision = decide(loop, platform)
    return Stages(f"{loop} on {platform}", tuple(_texts(loop, decision)))


def _texts(loop: Loop, decision: Decision) -> Iterator[tuple[str, str]]:
    yield "jaxpr", str(loop.body.jaxpr)
    if decision.loop is not loop:
        yield "inline", str(decision.loop.body.jaxpr)
    names = [split.name for split in decision.splits]
    for i, split in enumerate(decision.splits):
        again = names[:i].count(split.name)
        name = split.name if not again else f"{split.name} ({again + 1})"
        yield name, str(split.loop.body.jaxpr)
    if decision.reason is not None:
        yield "left to XLA", decision.reason
    elif decision.plan is not None:
        yield "plan", _plan_text(decision.plan, decision.kernel)
        yield from meant(decision.platform).stages(decision.kernel)


def _plan_text(plan: Plan, kernel: Any) -> str:
    lines = [laid_out(plan, kernel)]
    for lane in plan.lanes:
        kind = "vectors" if lane.vector else "loops"
        lines.append(
            f"lane axis of {lane.size}: {lane.tiles} tiles of {lane.blocks} x "
            f"{lane.extent}, by {kind}"
        )
    body = plan.loop.body
    names = ["constant"] * plan.loop.num_consts + ["carry"] * plan.loop.num_carry
    names += ["x"] * (len(body.in_avals) - len(names))
    names += ["carry out"] * plan.loop.num_carry + ["y"] * len(plan.loop.y_avals)
    for name, aval, order in zip(
        names, [*body.in_avals, *body.out_avals], plan.layouts, strict=True
    ):
        lines.append(f"{name} {aval.str_short()}: dimensions in the order {order}")
    return "\n".join(lines)
