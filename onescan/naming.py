"""How messages name things: the user's function, a leaf, a type, a container."""

from __future__ import annotations

import functools
import inspect
from types import CodeType
from typing import Any, NamedTuple

import jax
from jax.tree_util import keystr, tree_flatten_with_path


class FunctionName(NamedTuple):
    """The function the user wrote, and where; prints as ``step (model.py:12)``."""

    name: str
    code: CodeType | None

    def __str__(self) -> str:
        if self.code is None:
            return self.name
        return f"{self.name} ({self.code.co_filename}:{self.code.co_firstlineno})"


def function_name(f: Any) -> FunctionName:
    """The name and code of the function behind partials, jit, methods and objects."""
    f = inspect.unwrap(f)
    while isinstance(f, functools.partial):
        f = inspect.unwrap(f.func)
    code = getattr(f, "__code__", None)
    if code is None:  # an object with __call__, or something not written in Python
        code = getattr(inspect.unwrap(type(f).__call__), "__code__", None)
    name = getattr(f, "__name__", type(f).__name__)
    return FunctionName(name, code)


def leaf_paths(root: str, tree: Any) -> list[str]:
    """What the user would write to reach each leaf, such as ``carry['h'][0]``."""
    return [root + keystr(path) for path, _ in tree_flatten_with_path(tree)[0]]


def type_name(kind: Any) -> str:
    """What `jax.typeof` gives, as JAX prints it, such as ``float32[3,4]``."""
    if not hasattr(kind, "shape"):
        return str(kind)
    return f"{kind.dtype.name}[{','.join(map(str, kind.shape))}]"


def thing_name(thing: Any) -> str:
    """An array's type, or a container's kind and size, in a few words."""
    if thing is None:
        return "None"
    if isinstance(thing, dict):
        return f"a dict with the keys {', '.join(map(repr, thing))}"
    if type(thing) in (tuple, list):
        return f"a {type(thing).__name__} of {len(thing)}"
    if is_array(thing):
        return type_name(jax.typeof(thing))
    name = type(thing).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def is_array(leaf: Any) -> bool:
    """Whether JAX takes this as an array: arrays, tracers, numbers, keys."""
    try:
        jax.typeof(leaf)
    except TypeError:
        return False
    return True


def millions(count: float) -> str:
    """A large count: "28.4 million", "92.3 billion".

    >>> millions(28_400_000), millions(92.34e9)
    ('28.4 million', '92.3 billion')
    """
    unit, name = (1e9, "billion") if count >= 1e9 else (1e6, "million")
    return f"{count / unit:,.1f} {name}"
