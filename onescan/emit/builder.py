"""Builder: an `ir.IRBuilder` that writes its instructions at once, and none twice.

A kernel is some thousand instructions, and each costs time three times: as an object,
as text, and in every one of LLVM's passes.  So the instructions of which there are many
are text from the start (`Line`), and none is written that is known to give what another
one of the same block gave:

- an instruction without memory whose text was written before: its operands are in the
  text, so the same text is the same value;
- a load of what was last loaded or stored at this place.  Memory of the kernel's own,
  arguments and constants do not overlap, so only a store to the same one of them
  changes it, and a call only where it is given a pointer;
- a store to a cell (memory for one value) before the last one.

What is known ends with the block, because the next one may be reached from elsewhere.
LLVM would find out all of this too, so it changes how long that takes, not its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.budget import too_long
from onescan.emit.constants import nothing
from onescan.emit.lines import SIZES, Held, Line, Place, home, size_of

COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
#: what LLVM calls loads of memory that nobody writes
UNCHANGED = "invariant.load"


def _binary(op: str) -> Callable[..., ty.Value]:
    def method(self: Builder, x: Any, y: Any, name: str = "", flags: Any = ()) -> Any:
        full = " ".join((op, *flags)) if flags else op
        text = f"{full} {x.type} {x.get_reference()}, {y.get_reference()}"
        return self.computed(x.type, text)

    return method


def _cast(op: str) -> Callable[..., ty.Value]:
    def method(self: Builder, x: Any, kind: Any, name: str = "") -> Any:
        if x.type == kind:
            return x
        return self.computed(kind, f"{op} {x.type} {x.get_reference()} to {kind}")

    return method


def _comparison(op: str, prefix: str) -> Callable[..., ty.Value]:
    def method(self: Builder, how: str, x: Any, y: Any, name: str = "") -> Any:
        how = COMPARISONS.get(how, how)
        if how in ("eq", "ne", "lt", "le", "gt", "ge"):
            how = how if op == "icmp" and how in ("eq", "ne") else prefix + how
        text = f"{op} {how} {x.type} {x.get_reference()}, {y.get_reference()}"
        return self.computed(ty.with_width(ty.I1, ty.width_of(x)), text)

    return method


class Builder(ir.IRBuilder):
    """The builder of a function all of whose instructions it makes."""

    def __init__(self, block: ir.Block) -> None:
        super().__init__(block)
        self._count = 0
        #: instructions from which a kernel takes too long to compile
        self.longest = inf
        #: how often what is written now will run, as far as that is known
        self.trips = 1.0
        #: by instruction and type: how often it will run
        self.runs: dict[tuple[str, str], float] = {}
        #: by name of an index: its lowest and its highest value
        self.spans: dict[str, tuple[int, int]] = {}
        #: by name of a float32, and the type of two bytes it had in memory: those bits
        self.halves: dict[tuple[str, Any], ty.Value] = {}
        #: by name of a vector that has one number in all lanes: that number
        self.spread: dict[str, ty.Value] = {}
        #: by array and index: what was computed here, and not in a loop or a branch
        self.pulled: dict[Any, ty.Value] = {}
        self._forget()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Code that what comes after it may not have run through."""
        outer, self.pulled = self.pulled, {}
        yield
        self.pulled = outer

    @contextmanager
    def if_then(self, pred: Any, likely: bool | None = None) -> Iterator[Any]:
        trips = self.trips
        if likely is False:
            self.trips = 0.0
        with self.inside(), super().if_then(pred, likely) as end:
            yield end
        self.trips = trips

    def _forget(self) -> None:
        self._computed: dict[str, Line] = {}
        self._memory: dict[Any, Held] = {}
        self._cells: dict[Any, str] = {}  # stores still to be written
        #: as `halves`, of what was computed in this block
        self.bits_here: dict[tuple[str, Any], ty.Value] = {}

    def position_at_end(self, block: ir.Block) -> None:
        self._settle()
        super().position_at_end(block)
        self._forget()

    def _set_terminator(self, term: Any) -> Any:
        self._settle()
        return super()._set_terminator(term)

    def _settle(self) -> None:
        """Write all stores."""
        for text in self._cells.values():
            self._append(text, "cell", "")
        self._cells = {}

    def _append(self, instruction: Line | str, what: str, kind: Any) -> None:
        block: Any = self._block
        block.instructions.append(instruction)
        self._anchor += 1
        self._runs(what, kind)

    def _runs(self, what: str, kind: Any) -> None:
        key = what, str(kind)
        self.runs[key] = self.runs.get(key, 0.0) + self.trips

    def _spared(self, text: str, kind: Any) -> None:
        """An instruction that was asked for, and is not written."""

    @property
    def written(self) -> int:
        """Instructions with a result so far."""
        return self._count

    def position_at_start(self, block: ir.Block) -> None:
        raise NotImplementedError("instructions are only added at the end of a block")

    def position_before(self, instr: Any) -> None:
        self.position_at_start(instr.parent)

    def position_after(self, instr: Any) -> None:
        self.position_at_start(instr.parent)

    # without memory

    def computed(self, kind: ty.Kind, text: str) -> ty.Value:
        """The result of an instruction that depends on its operands alone."""
        known = self._computed.get(text)
        if known is None:
            known = self._computed[text] = self._write(kind, text)
        else:
            self._spared(text, kind)
        return known

    def _write(self, kind: ty.Kind, text: str, line: type[Line] = Line) -> Any:
        self._count += 1
        if self._count > self.longest:
            raise too_long(self.longest)
        name = f"%v{self._count}"  # llvmlite's own begin with a dot, or are blocks'
        written = line(kind, name, f"{name} = {text}")
        self._append(written, _operation(text), kind)
        return written

    add, sub, mul = _binary("add"), _binary("sub"), _binary("mul")
    sdiv, udiv, srem, urem = map(_binary, ("sdiv", "udiv", "srem", "urem"))
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    shl, lshr, ashr = _binary("shl"), _binary("lshr"), _binary("ashr")
    fadd, fsub, fmul = _binary("fadd"), _binary("fsub"), _binary("fmul")
    fdiv, frem = _binary("fdiv"), _binary("frem")
    trunc, zext, sext = _cast("trunc"), _cast("zext"), _cast("sext")
    fptrunc, fpext, bitcast = _cast("fptrunc"), _cast("fpext"), _cast("bitcast")
    fptosi, fptoui = _cast("fptosi"), _cast("fptoui")
    sitofp, uitofp = _cast("sitofp"), _cast("uitofp")
    icmp_signed, icmp_unsigned = _comparison("icmp", "s"), _comparison("icmp", "u")
    fcmp_ordered = _comparison("fcmp", "o")
    fcmp_unordered = _comparison("fcmp", "u")

    def fneg(self, arg: Any, name: str = "", flags: Any = ()) -> Any:
        full = " ".join(("fneg", *flags))
        return self.computed(arg.type, f"{full} {arg.type} {arg.get_reference()}")

    def select(
        self, cond: Any, lhs: Any, rhs: Any, name: str = "", flags: Any = ()
    ) -> Any:
        full = " ".join(("select", *flags))
        return self.computed(lhs.type, f"{full} {_listed(cond, lhs, rhs)}")

    def guess(self, cond: Any, lhs: Any, rhs: Any) -> Any:
        """A selection that becomes a branch: one outcome is said to be rare."""
        weights = self.module.add_metadata(RARE)
        text = f"select {_listed(cond, lhs, rhs)}, !prof {weights.get_reference()}"
        return self.computed(lhs.type, text)

    def extract_element(self, vector: Any, idx: Any, name: str = "") -> Any:
        text = f"extractelement {_listed(vector, idx)}"
        return self.computed(vector.type.element, text)

    def insert_element(self, vector: Any, value: Any, idx: Any, name: str = "") -> Any:
        return self.computed(
            vector.type, f"insertelement {_listed(vector, value, idx)}"
        )

    def shuffle_vector(
        self, vector1: Any, vector2: Any, mask: Any, name: str = ""
    ) -> Any:
        kind = ty.with_width(vector1.type.element, mask.type.count)
        return self.computed(kind, f"shufflevector {_listed(vector1, vector2, mask)}")

    # memory

    def gep(
        self,
        ptr: Any,
        indices: Sequence[Any],
        inbounds: bool = False,
        name: str = "",
        source_etype: Any = None,
    ) -> Any:
        (index,) = indices
        word = "getelementptr inbounds" if inbounds else "getelementptr"
        text = f"{word} {source_etype}, ptr {ptr.get_reference()}, {_listed(index)}"
        known = self._computed.get(text)
        if known is None:
            known = self._computed[text] = self._write(ty.PTR, text, Place)
            root, offset = home(ptr)
            size = size_of(source_etype)
            exact = isinstance(index, ir.Constant) and size and offset is not None
            known.root = root
            known.offset = offset + index.constant * size if exact else None
        else:
            self._spared("getelementptr", ty.PTR)
        return known

    def load(
        self, ptr: Any, name: str = "", align: int | None = None, typ: Any = None
    ) -> Any:
        kind = typ or ptr.allocated_type
        root, offset = home(ptr)
        size = size_of(kind)
        held = self._memory.get(root)
        if held is not None:
            known = (
                held.somewhere.get(ptr.name) if offset is None else held.at.get(offset)
            )
            if known is not None and known.type == kind:
                self._spared("load", kind)
                return known
        if root is None or root in self._cells:
            self._settle()
        text = f"load {kind}, ptr {ptr.get_reference()}{_aligned(align)}"
        loaded = self._write(kind, text)
        if held is not None and held.backwards and held.size < size:
            self._read_again(loaded)
        if root is not None and size:
            if held is None:
                held = self._memory[root] = Held(size)
            if held.size == size:
                self._remember(held, ptr, offset, loaded)
        return loaded

    def _read_again(self, loaded: Line) -> None:
        """What is read once as a whole LLVM 22 joins from what was stored in parts.

        Where the last part was stored first, it uses some before they are computed.
        """
        block: Any = self._block
        block.instructions.append(
            f"{loaded.name}.again = {loaded.text.split(' = ')[1]}"
        )
        self._anchor += 1

    def gather(self, ptr: Any, places: Any, element: Any) -> Any:
        """What stands at some distances from a place, by the processor's instruction.

        They are counted in elements, and 32 bits must do.
        """
        self._settle()
        width, size = places.type.count, SIZES[str(element)]
        kind = ty.with_width(element, width)
        places = self.trunc(places, ty.with_width(ty.I32, width))
        where = f"getelementptr inbounds {element}, ptr {ptr.get_reference()}"
        addresses = self.computed(
            ty.with_width(ty.PTR, width), f"{where}, {_listed(places)}"
        )
        every = ty.constant(ty.I1, 1, width)
        given = [addresses, ir.Constant(ty.I32, size), every, nothing(kind)]
        name = f"llvm.masked.gather.v{width}{element.intrinsic_name}.v{width}p0"
        if name not in self.module.globals:
            types = ir.FunctionType(kind, [v.type for v in given])
            ir.Function(self.module, types, name)
        return self._write(kind, f"call {kind} @{name}({_listed(*given)})")

    def latest(self, ptr: Any, kind: Any) -> Any:
        """What stands at a place that others write to at any time."""
        text = f"load atomic {kind}, ptr {ptr.get_reference()} monotonic, align 8"
        return self._write(kind, text)

    def store(self, value: Any, ptr: Any, align: int | None = None) -> Any:
        text = f"store {_listed(value)}, ptr {ptr.get_reference()}{_aligned(align)}"
        root, offset = home(ptr)
        size = size_of(value.type)
        if root is ptr and size and getattr(ptr, "allocated_type", None) == value.type:
            self._cells[ptr] = text
            self._spared("store", value.type)
        else:
            if root is None or root in self._cells:
                self._settle()
            self._append(text, "store", value.type)
        if root is None:
            self._memory = {}
            return
        held = self._memory.get(root)
        apart = size and offset is not None and offset % size == 0
        if held is None or held.size != size or not apart:
            held = self._memory[root] = Held(size)
        held.somewhere.clear()
        held.stored(offset)
        if size:
            self._remember(held, ptr, offset, value)

    def _remember(self, held: Held, ptr: Any, offset: int | None, value: Any) -> None:
        if offset is None:
            held.somewhere[ptr.name] = value
        elif offset % held.size == 0:
            held.at[offset] = value

    # calls

    def call(self, fn: Any, args: Sequence[Any], *options: Any, **more: Any) -> Any:
        args = list(args)
        plain = isinstance(fn, ir.Function) and not options and not more
        if plain and fn.name.startswith("llvm."):
            kind = fn.function_type.return_type
            if not any(arg.type.is_pointer for arg in args):
                text = f"call {kind} {fn.get_reference()}({_listed(*args)})"
                return self.computed(kind, text)
        self._settle()
        self._memory = {}
        return super().call(fn, args, *options, **more)


class Asked(Builder):
    """A builder that counts what it was asked for, written or not.

    Predictions for GPUs are fitted to that: what lies in arrays costs more than what
    was never there, although none of it may be loaded.
    """

    def _runs(self, what: str, kind: Any) -> None:
        if what != "cell":  # was counted as a store
            super()._runs(what, kind)

    def _spared(self, text: str, kind: Any) -> None:
        super()._runs(_operation(text), kind)


def never_changes(b: ir.IRBuilder, loaded: Any) -> None:
    """What was loaded stays as it is while the kernel runs."""
    nothing_more = b.module.add_metadata([])
    if not isinstance(loaded, Line):
        loaded.set_metadata(UNCHANGED, nothing_more)
    elif UNCHANGED not in loaded.text:
        loaded.text += f", !{UNCHANGED} {nothing_more.get_reference()}"


#: how often a branch goes each way: LLVM keeps those that nearly always go one
RARE = ("branch_weights", ir.Constant(ty.I32, 2000), ir.Constant(ty.I32, 1))
DIVISIONS = ("sdiv", "udiv", "srem", "urem")


def _operation(text: str) -> str:
    """What an instruction does: its name, or that of the intrinsic it calls."""
    if not text.startswith("call "):
        name = text.partition(" ")[0]
        fixed = name in DIVISIONS and "%" not in text.rpartition(",")[2]
        return f"{name} by a constant" if fixed else name
    return ".".join(text.partition("@")[2].split(".")[:2]).partition("(")[0].strip('"')


def _listed(*values: Any) -> str:
    return ", ".join([f"{value.type} {value.get_reference()}" for value in values])


def _aligned(align: int | None) -> str:
    return f", align {align}" if align else ""
