"""Elementary functions in a kernel that uses one many times: written once, and called.

A call costs less than the function it is for, and a hundred copies of a sine take LLVM
as long as a hundred kernels.  GPUs, where a call moves all registers, have copies.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

from llvmlite import ir

from onescan.emit.math import FUNCTIONS
from onescan.emit.math.features import GPU, has

#: copies of a function, for one type, before it is called
COPIES = 12
#: functions that are shorter than a call
SHORT = {"sqrt", "rsqrt"}

_copies: WeakKeyDictionary[ir.Module, Counter[str]] = WeakKeyDictionary()


def apply(b: Any, name: str, *xs: Any) -> Any:
    """The function of that name: its code here, or a call of it."""
    module = b.module
    if name in SHORT or has(b, GPU):
        return FUNCTIONS[name](b, *xs)
    full = f"onescan.{name}.{_suffix(xs[0].type)}"
    copies = _copies.setdefault(module, Counter())
    copies[full] += 1
    if copies[full] <= COPIES:
        return FUNCTIONS[name](b, *xs)
    return b.call(module.globals.get(full) or _written(b, name, full, xs), xs)


def _suffix(kind: Any) -> str:
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{kind.element}"
    return str(kind)


def _written(b: Any, name: str, full: str, xs: Any) -> ir.Function:
    kinds = [x.type for x in xs]
    function = ir.Function(b.module, ir.FunctionType(kinds[0], kinds), full)
    function.linkage = "internal"
    for attribute in ("noinline", "nounwind", "readnone"):
        function.attributes.add(attribute)
    inside = type(b)(function.append_basic_block())
    inside.ret(FUNCTIONS[name](inside, *function.args))
    return function
