"""The run: who runs the loop and why, what a step costs, memory, advice."""

from __future__ import annotations

from onescan.explain.measure import Times
from onescan.explain.memory import Memory
from onescan.explain.page.elements import Html, joined, quoted, tag
from onescan.explain.places import PLACES
from onescan.explain.run import OnPlatform, Run
from onescan.explain.words import duration, number, percent, ratio, size, times


def run_part(run: Run) -> Html:
    around = run.in_its_program
    parts = [
        *([tag("p", quoted(around))] if around else []),
        tag("div", *map(_platform, run.platforms), class_="cards"),
        tag("h3", "One step"),
        _facts(run),
    ]
    if run.times:
        parts += [tag("h3", "Measured here"), _times(run.times)]
    parts += [tag("h3", "Memory"), _memory(run.memory)]
    if run.advice:
        parts += [tag("h3", "What would make it faster"), _list(run.advice)]
    return joined(*parts)


def _platform(p: OnPlatform) -> Html:
    engine = "one kernel" if p.engine == "native" else "XLA"
    parts = [
        tag("h3", p.name, " ", tag("span", engine, class_=f"badge {p.engine}")),
        tag("p", p.device, class_="quiet"),
        tag("p", quoted(p.verdict)),
    ]
    if p.layout:
        parts.append(tag("p", f"{p.layout[:1].upper()}{p.layout[1:]}."))
    if p.speed:
        parts.append(tag("p", p.speed))
    parts.append(_bar(p))
    if p.notes:
        parts.append(tag("h4", "What was done to your lines"))
        parts.append(_list(list(map(str, p.notes))))
    return tag("section", *parts, class_="card")


def _bar(p: OnPlatform) -> Html:
    """Where the operations of a step are done, as a bar of parts."""
    pieces, names = [], []
    for place, share in p.shares.items():
        width = f"flex-grow:{max(share, 0.01):.3f}"
        pieces.append(tag("span", class_=f"place-{place}", style=width))
        told = PLACES[place]
        names.append(
            tag(
                "li",
                tag("span", told.letter, class_=f"mark place-{place}"),
                f" {percent(share)} {told.name}",
                title=told.meaning,
            )
        )
    if not names:
        return Html("")
    bar = tag("div", *pieces, class_="bar", aria_hidden="true")
    label = f"Operations of a step, by where they run on a {p.name}"
    return joined(bar, tag("ul", *names, class_="legend", aria_label=label))


def _facts(run: Run) -> Html:
    step = run.step
    facts = {
        "operations (a multiply-add is one)": number(step.operations),
        "of them in matrix products": _part(step.products, step.operations),
        "bytes read and written": size(step.touched),
        "operations for each byte": ratio(step.intensity),
        "constants that all steps read": size(step.constants),
        "carry": size(step.carry),
        "x": size(step.x),
        "y": size(step.y),
    }
    items = (
        tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()
    )
    return tag("dl", *items, class_="facts")


def _times(times: Times) -> Html:
    """Seconds a step, each way with a bar."""
    most = max(seconds for _, seconds in times.by_way)
    rows = [
        tag(
            "tr",
            tag("th", name, scope="row"),
            tag("td", duration(seconds), class_="number"),
            tag("td", _amount(seconds / most), class_="chart"),
        )
        for name, seconds in times.by_way
    ]
    names = ("one step", "takes", "")
    head = tag("thead", tag("tr", *(tag("th", n, scope="col") for n in names)))
    return tag("table", head, tag("tbody", *rows), class_="memory times")


def _amount(share: float) -> Html:
    return tag("div", class_="amount", style=f"width:{max(100 * share, 0.5):.1f}%")


def _part(part: float, whole: float) -> str:
    return percent(part / whole) if part else "none"


def _memory(memory: Memory) -> Html:
    rows = [
        _memory_row("forward", "arguments and results", memory.forward, "once", memory)
    ]
    if memory.why_no_gradient:
        return joined(
            _memory_table(rows),
            tag("p", f"There is no gradient: {memory.why_no_gradient}."),
        )
    for choice in memory.choices:
        name = "gradient"
        if choice.checkpoint:
            name = f'gradient, checkpoint="{choice.checkpoint}"'
        again = times(1 + choice.again) if choice.again else "once"
        rows.append(_memory_row(name, choice.meaning, choice.kept, again, memory))
    return joined(
        _memory_table(rows),
        tag("p", "A gradient needs the forward memory too.", class_="quiet"),
    )


def _memory_table(rows: list[Html]) -> Html:
    names = ("", "bytes", "", "each step runs", "what is kept")
    head = tag("thead", tag("tr", *(tag("th", n, scope="col") for n in names)))
    table = tag("table", head, tag("tbody", *rows), class_="memory")
    return tag(
        "div", table, class_="scroll", tabindex=0, role="region", aria_label="Memory"
    )


def _memory_row(name: str, meaning: str, held: int, again: str, memory: Memory) -> Html:
    most = max([memory.forward, *(c.kept for c in memory.choices)]) or 1
    return tag(
        "tr",
        tag("th", name, scope="row"),
        tag("td", size(held), class_="number"),
        tag("td", _amount(held / most), class_="chart"),
        tag("td", again),
        tag("td", meaning, class_="quiet"),
    )


def _list(sentences: list[str]) -> Html:
    return tag("ul", *(tag("li", quoted(text)) for text in sentences))
