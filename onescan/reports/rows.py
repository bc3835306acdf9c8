"""`onescan.report()`: what became of every loop that was lowered, and why.

The hook records each loop as a `Row` of plain values, so that nothing of the
user's program is kept alive but the last few loops, to be explained.  Identical
loops share a row and are counted, and beyond `CAPACITY` rows the oldest are
forgotten, so memory stays bounded however long a program runs.  A `Report` is a
snapshot: it does not change afterwards.
"""

from __future__ import annotations

import html
import io
import threading
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console, ConsoleOptions
from rich.text import Text

from onescan import compat
from onescan.errors import ScanValueError
from onescan.loop import Loop, nbytes
from onescan.lowering.outcome import Left, Native
from onescan.reports import kept, table
from onescan.reports.advice import advice
from onescan.tune.speed import Speed

if TYPE_CHECKING:
    from onescan.explain import Explanation

CAPACITY = 4096
EXPLAINED = 32  # loops whose program is kept, to be explained
TABLE_WIDTH = 68  # columns below which a table is unreadable
EMPTY = "onescan has not lowered a loop yet: call onescan.scan, or onescan.install()."


@dataclass(frozen=True)
class Row:
    """One loop.  Numbers are text where the shapes are symbolic."""

    source: str  # "file.py:12", where the body is defined
    name: str  # the body function
    length: int | str
    carry_bytes: int | str
    xs_bytes: int | str
    ys_bytes: int | str
    engine: Literal["native", "xla"]
    reason: str | None  # why it was left to XLA
    passes: tuple[str, ...]  # the passes that changed it
    notes: tuple[str, ...] = ()  # what they did
    seconds: float = 0.0  # our own work, all lowerings together
    count: int = 1  # how many times it was lowered
    speed: Speed | None = None  # of a step, on both engines

    @property
    def advice(self) -> str | None:
        """What to do about a loop that was left to XLA."""
        return advice(self.reason) if self.reason else None

    def explain(self) -> Explanation:
        """Its shapes, how it runs and its source, as `onescan.explain` shows them.

        With its values, where these were kept: under ``onescan explain script.py``.
        """
        from onescan.explain import explain_loop  # which stands above this file

        loop = loop_of(self)
        if loop is None:
            raise ScanValueError(
                f"onescan.report: {self.name} ({self.source}) can no longer be "
                f"explained: only the last {EXPLAINED} loops are kept until "
                "clear_report(). Call onescan.explain with its function and arguments."
            )
        return explain_loop(loop, kept.values_of(_identity(self)), self.reason)


@dataclass(frozen=True)
class Report:
    """The loops lowered so far, oldest first."""

    rows: tuple[Row, ...]
    forgotten: int = 0  # older rows that are no longer kept

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Row:
        return self.rows[i]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, dicts, numbers and strings, ready for `json.dumps`."""
        loops = [asdict(row) | _lists(row) for row in self.rows]
        return {"loops": loops, "forgotten": self.forgotten}

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), force_jupyter=False, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Any:
        if not self.rows:
            yield Text(EMPTY)
        elif options.max_width >= TABLE_WIDTH:
            yield from table.lines(self.rows)
        else:
            yield from table.paragraphs(self.rows)
        if self.forgotten:
            yield Text(self._note())

    def _repr_html_(self) -> str:
        if not self.rows:
            return f"<p>{html.escape(EMPTY)}</p>"
        return table.page(self.rows, self._note() if self.forgotten else "")

    def _note(self) -> str:
        return f"{self.forgotten:,} older loops are no longer listed."


_rows: dict[Row, Row] = {}  # what identifies a loop: the row that counts it
_loops: dict[Row, Loop] = {}  # the last ones, by the same key
_forgotten = 0
_lock = threading.Lock()


def record(loop: Loop, outcome: Native | Left, seconds: float) -> bool:
    """Add one lowered loop; whether it is the first of its kind."""
    global _forgotten
    row, speed = row_of(loop, outcome), outcome.speed
    with _lock:
        _loops.pop(row, None)
        _loops[row] = loop
        while len(_loops) > EXPLAINED:
            del _loops[next(iter(_loops))]
        known = _rows.get(row)
        if known is not None:
            total = known.seconds + seconds
            _rows[row] = replace(
                known, seconds=total, count=known.count + 1, speed=speed or known.speed
            )
            return False
        if len(_rows) >= CAPACITY:
            del _rows[next(iter(_rows))]
            _forgotten += 1
        _rows[row] = replace(row, seconds=seconds, speed=speed)
        return True


def took_longer(loop: Loop, outcome: Native | Left, seconds: float) -> None:
    """Add time that went on for a loop after it was recorded."""
    row = row_of(loop, outcome)
    with _lock:
        if (known := _rows.get(row)) is not None:
            _rows[row] = replace(known, seconds=known.seconds + seconds)


def row_of(loop: Loop, outcome: Native | Left) -> Row:
    """What identifies a loop in the report."""
    left = isinstance(outcome, Left)
    return Row(
        source=loop.source,
        name=loop.name,
        length="while" if loop.is_while else _plain(loop.length),
        carry_bytes=_bytes(loop.carry_avals),
        xs_bytes=_bytes(loop.x_avals, loop.length),
        ys_bytes=_bytes(loop.y_avals, loop.length),
        engine="xla" if left else "native",
        reason=outcome.reason if left else None,
        passes=outcome.passes,
        notes=outcome.notes,
    )


def report() -> Report:
    """What became of every loop that onescan was given, and why.

    Prints as a table in a terminal and in a notebook; `to_dict()` is for
    programs.  Loops under ``engine("xla")`` are stock JAX's and are not listed.

    >>> import jax.numpy as jnp, onescan
    >>> onescan.clear_report()
    >>> carry, ys = onescan.scan(lambda c, x: (c + x, c), 0.0, jnp.ones(3))
    >>> [row.length for row in onescan.report().rows]
    [3]
    >>> onescan.report()[0].explain().count
    '3 steps'
    """
    with _lock:
        return Report(tuple(_rows.values()), _forgotten)


def loop_of(row: Row) -> Loop | None:
    """The loop of a row, if it is one of the last that are kept."""
    return _loops.get(_identity(row))


def clear_report() -> None:
    """Forget every loop recorded so far."""
    global _forgotten
    with _lock:
        _rows.clear()
        _loops.clear()
        _forgotten = 0


def _identity(row: Row) -> Row:
    """What a row is counted under."""
    return replace(row, seconds=0.0, count=1, speed=None)


def _bytes(avals: list[Any], times: Any = 1) -> int | str:
    """As they lie in memory: a key, say, has a type of its own."""
    return _plain(nbytes([compat.physical(aval) for aval in avals], times))


def _plain(number: Any) -> int | str:
    """A number, or the text of an expression where a dimension is symbolic."""
    return number if isinstance(number, int) else str(number)


def _lists(row: Row) -> dict[str, list[str]]:
    return {"passes": list(row.passes), "notes": list(row.notes)}
