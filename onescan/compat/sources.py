"""Where in the user's program an equation comes from."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any, NamedTuple

from jax._src import source_info_util


def name_and_source(debug_info: Any) -> tuple[str, str]:
    found = re.fullmatch(r"(.*) at (.*:\d+)", debug_info.func_src_info or "")
    if found is None:
        return debug_info.func_src_info or "scan", "unknown"
    return found.group(1), found.group(2)


def source_of(eqn: Any) -> str:
    """The user's line that made an equation: "model.py:57"."""
    frame = source_info_util.user_frame(eqn.source_info.traceback)
    if frame is None:
        return "an unknown line"
    return f"{Path(frame.file_name).name}:{frame.start_line}"


def scope_of(eqn: Any) -> str:
    """The `jax.named_scope`s that an equation was traced in."""
    return str(eqn.source_info.name_stack)


class Position(NamedTuple):
    """A place in a Python file that an equation was traced at."""

    file: str
    function: str
    line: int


def positions_of(eqn: Any) -> list[Position]:
    """The user's lines that led to an equation, innermost first."""
    frames = source_info_util.user_frames(eqn.source_info.traceback)
    return [Position(f.file_name, f.function_name, f.start_line) for f in frames]


def placed(eqn: Any, call: Any) -> Any:
    """An equation, with the line of the call it came by if it has none of its own."""
    if source_info_util.user_frame(eqn.source_info.traceback) is not None:
        return eqn
    return eqn.replace(source_info=call.source_info)


def expression_of(eqn: Any) -> str:
    """The user's expression that made an equation: "x @ W, rnn.py:31"."""
    frame = source_info_util.user_frame(eqn.source_info.traceback)
    where = source_of(eqn)
    if frame is None or frame.start_line != frame.end_line:
        return where
    line = linecache.getline(frame.file_name, frame.start_line)
    text = line[frame.start_column : frame.end_column]
    return f"{text}, {where}" if text else where
