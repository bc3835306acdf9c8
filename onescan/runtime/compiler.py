"""LLVM for the CPU we run on: text of a module in, addresses of its functions out.

Each module is parsed into a context of its own, optimised, turned into an object file
and linked; context, IR and object are gone before the address is returned, so a kernel
costs the process its code pages and little else.  A linker (LLVM's ORC with JITLink)
serves some kernels, and goes with the last of them.  JITLink lays out an object in one
piece, which is what makes the small code model, with constants addressed relative to
the instruction, right.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import llvmlite
from llvmlite import binding
from llvmlite.binding import ffi
from llvmlite.binding.newpassmanagers import NewPassManager

from onescan.errors import ScanError
from onescan.runtime import kept, memory

DEFAULT_LEVEL = 2
#: libraries of one linker, which goes when all are unloaded, with 9 KB for each of them
GROUP = 16


class CompilerError(ScanError, RuntimeError):
    """LLVM refused the code of a kernel: a fault of onescan, never of the user."""


@functools.cache
def host() -> str:
    """What the generated code depends on: the processor and the version of LLVM."""
    return "\n".join([version(), triple(), *_processor()])


def version() -> str:
    """Of LLVM, and of what we call it by."""
    llvm = ".".join(map(str, binding.llvm_version_info))
    return f"{llvmlite.__version__}, LLVM {llvm}"


@functools.cache
def triple() -> str:
    """The platform of this process, in LLVM's words."""
    return binding.get_process_triple()


@functools.cache
def data_layout() -> str:
    """Sizes and alignments of the types on this platform, in LLVM's words."""
    return str(_target_machine().target_data)


def host_features() -> str:
    """What the processor can do, in LLVM's words."""
    return _processor()[1]


@functools.cache
def _processor() -> tuple[str, str]:
    features = binding.get_host_cpu_features()
    if triple().startswith("x86_64"):
        # LLVM keeps to 256-bit vectors on most processors with AVX-512, for the sake of
        # programs that use few of them.  A loop of vector code is not such a program.
        features["prefer-256-bit"] = False
    return binding.get_host_cpu_name(), features.flatten()


def _target_machine() -> Any:
    """The processor we run on, one for each thread."""
    if _here.machine is None:
        _here.machine = _new_machine()
    return _here.machine


class _Here(threading.local):
    machine: Any = None


_here = _Here()


def _new_machine() -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    name, features = _processor()
    return binding.Target.from_triple(triple()).create_target_machine(
        cpu=name, features=features, opt=3, reloc="pic", codemodel="small", jit=True
    )


@functools.lru_cache(maxsize=1)
def _linker(_: int) -> Any:
    """The linker of some libraries, by the number of that group."""
    _target_machine()
    return binding.create_lljit_compiler(use_jit_link=True, suppress_errors=True)


@contextmanager
def optimised(
    text: str, level: int = DEFAULT_LEVEL, machine: Any = None
) -> Iterator[Any]:
    """The module of this text, verified and optimised, while the context lasts."""
    memory.require(len(text))
    text = HEAD.sub(rf"\1 {NO_COPIES}\2", text)
    with ExitStack() as stack:
        module = stack.enter_context(_parsed(text))
        optimise(module, level, machine)
        if not _is_well_formed(module):
            module = stack.enter_context(_parsed(VECTOR_READ.sub(_twice, text)))
            optimise(module, level, machine)
            _checked(module.verify)
        if PARTS.search(text):
            made = str(module)
            if (changed := FUNCTION.sub(lambda f: with_parts(f[0]), made)) != made:
                module = stack.enter_context(_parsed(changed))
        yield module


@contextmanager
def _parsed(text: str) -> Iterator[Any]:
    with (
        closing(binding.create_context()) as context,
        closing(_checked(binding.parse_assembly, text, context)) as module,
    ):
        _checked(module.verify)
        yield module


#: LLVM makes one copy of a loop that copies an array, and SROA cuts both arrays where
#: either is: `c = jnp.roll(c, 1)` of 1,000 numbers came out in 250 pieces, in 4 seconds
NO_COPIES = '"no-builtin-memcpy" "no-builtin-memmove"'
HEAD = re.compile(r"^(define .*\).*?)( {)?$", re.MULTILINE)
#: LLVM 22 joins vectors that are stored side by side and read as one (SROA's merge by a
#: tree).  Where the last of them was stored first, it uses some before they are there,
#: and code generation ends the process.  What is read twice is not joined.
VECTOR_READ = re.compile(r"^( +%\S+)( = load <\d+ x .*)$", re.MULTILINE)


def _twice(read: re.Match[str]) -> str:
    name = f'{read[1][:-1]}.again"' if read[1].endswith('"') else f"{read[1]}.again"
    return f"{read[0]}\n{name}{read[2]}"


#: vectors of small integers, whose elements may be read
PARTS = re.compile(r"<\d+ x i(8|16|32)> %")
#: what LLVM 22 makes of the first of them where it is taken to i64 and masked: the
#: first i64 of the vector.  With an x86 processor's addresses the mask is lost, and its
#: neighbour is in the upper half (`c[index]` then reads far outside of `c`).
AS_WHOLES = re.compile(
    r"^  (%\S+) = bitcast <(\d+) x (i8|i16|i32)> (%\S+) to <\d+ x i64>$", re.MULTILINE
)
FIRST = re.compile(
    r"^  (%\S+) = extractelement <\d+ x i64> (%\S+), i64 0$", re.MULTILINE
)


#: names are those of a function
FUNCTION = re.compile(r"^define .*?^}", re.MULTILINE | re.DOTALL)


def with_parts(text: str) -> str:
    """An optimised function that takes the first of some integers by itself."""
    wholes = {m[1]: (m[2], m[3], m[4]) for m in AS_WHOLES.finditer(text)}

    def part(first: re.Match[str]) -> str:
        if first[2] not in wholes:
            return first[0]
        (count, kind, vector), name = wholes[first[2]], re.escape(first[1])
        masks = re.findall(rf"and i64 {name}, (\d+)", text)
        others = len(re.findall(rf"{name}(?![\w.])", text)) - 1 - len(masks)
        if others or any(int(mask) >> int(kind[1:]) for mask in masks):
            return first[0]
        there = f'%"part of {first[1][1:].strip(chr(34))}"'
        return (
            f"  {there} = extractelement <{count} x {kind}> {vector}, i64 0\n"
            f"  {first[1]} = zext {kind} {there} to i64"
        )

    return FIRST.sub(part, text) if wholes else text


def _is_well_formed(module: Any) -> bool:
    try:
        module.verify()
    except RuntimeError:
        return False
    return True


def _checked(step: Callable[..., Any], *args: Any) -> Any:
    try:
        return step(*args)
    except RuntimeError as error:
        raise CompilerError(f"LLVM refused the code of a kernel: {error}") from error


def optimise(module: Any, level: int = DEFAULT_LEVEL, machine: Any = None) -> None:
    """Make the code of a parsed module good, in place; `level` is 0 to 3 as in ``-O``.

    Calls of functions marked ``alwaysinline`` are inlined.  Then each function goes
    through LLVM's simplification pipeline: stack slots become registers, common and
    dead code goes, invariant code leaves its loop.  What the emitter decided stays as
    it is: nothing is unrolled or vectorised, which is most of what the rest of LLVM's
    ``-O2`` would do.  On a CPU, functions for rare cases (``cold``) are left as they
    are written, because they would take longer than all the rest.
    """
    if level == 0:
        return
    spared = machine is None
    machine = machine or _target_machine()
    _run(_inlining, module, level, machine)
    for function in module.functions:
        if not function.is_declaration and not (spared and _is_cold(function)):
            _run(binding.PassBuilder.getFunctionPassManager, function, level, machine)


def _is_cold(function: Any) -> bool:
    return any(b"cold" in attributes.split() for attributes in function.attributes)


def _inlining(_: Any) -> Any:
    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    # Finds out that kernels throw nothing, which saves them unwind tables.
    passes.add_post_order_function_attributes_pass()
    return passes


@functools.cache
def _look_for_no_checksums() -> None:
    """LLVM 22 looks for a checksum in every loop of one block, in time exponential in
    the depth of its body: with 40 operations in a row it never ends.
    """
    if binding.llvm_version_info[0] == 22:  # an option that LLVM lacks ends the process
        binding.set_option("onescan", "-disable-loop-idiom-hashrecognize")


def _run(pipeline: Callable[[Any], Any], unit: Any, level: int, machine: Any) -> None:
    """Run the passes that `pipeline` makes from a builder over a module or function."""
    _look_for_no_checksums()
    options = binding.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    # A builder keeps pointers into its first run, so it must not see a second one.
    builder = binding.create_pass_builder(machine, options)
    passes = pipeline(builder)
    what = "Module" if isinstance(unit, binding.ModuleRef) else "Function"
    try:
        _unlocked(f"LLVMPY_RunNew{what}PassManager")(passes, unit, builder)
    finally:  # llvmlite never frees pass managers by itself
        NewPassManager._dispose(passes)
        passes.detach()


def _unlocked(name: str) -> Callable[..., Any]:
    """A function of LLVM without llvmlite's lock, which lets in one thread at a time.

    For what takes long: threads have modules, contexts and targets of their own.
    """
    locked = getattr(ffi.lib, name)
    return getattr(locked, "_cfn", locked)


def _object(module: Any) -> bytes:
    """The machine code of a module."""
    with ffi.OutputString() as error:
        made = _unlocked("LLVMPY_TargetMachineEmitToMemory")(
            _target_machine(), module, 1, error
        )
        if not made:
            raise RuntimeError(str(error))
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(made)
        return ctypes.string_at(start, ffi.lib.LLVMPY_GetBufferSize(made))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(made)


def assembly(text: str, level: int = DEFAULT_LEVEL) -> str:
    """The machine code of a module as text."""
    with optimised(text, level) as module:
        return _target_machine().emit_assembly(module)


class Linked:
    """Machine code in this process, and the addresses of what it exports."""

    def __init__(self, library: Any, linker: Any, exports: Sequence[str]) -> None:
        self.addresses = {symbol: library[symbol] for symbol in exports}
        self._library, self._linker = library, linker

    def kept(self) -> dict[str, int]:
        """The addresses of code that is never unloaded."""
        self._library.detach()
        _kept.append(self._linker)
        return self.addresses

    def unload(self) -> None:
        """Give the memory back; nothing may call the code any more."""
        _checked(self._library.close)


def link(
    text: str,
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
    level: int = DEFAULT_LEVEL,
) -> Linked:
    """Compile a module and load it.

    `imports` are addresses of functions the module declares; what else it declares is
    looked up in the process (libc and libm).
    """
    imports = imports or {}
    follows_from = f"{host()}\n{level}\n{text}"
    make = functools.partial(_made, text, imports, level)
    code = kept.code(follows_from, (__file__,), make)
    library = binding.JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in exports:
        library.export_symbol(symbol)
    for symbol, address in imports.items():
        library.import_symbol(symbol, address)
    number = next(_libraries)
    linker = _linker(number // GROUP)
    loaded = _checked(library.link, linker, f"onescan.{number}")
    return Linked(loaded, linker, exports)


def _made(text: str, imports: Mapping[str, int], level: int) -> bytes:
    """The machine code of a module all of whose functions there are."""
    with optimised(text, level) as module:
        if missing := [name for name in _declared(module) if not _found(name, imports)]:
            raise CompilerError(
                f"A kernel calls {', '.join(missing)}, which this process does not have"
            )
        return _checked(_object, module)


_libraries = itertools.count()
_kept: list[Any] = []  # linkers that are never taken down


def _declared(module: Any) -> list[str]:
    names = [function.name for function in module.functions if function.is_declaration]
    return [name for name in names if not name.startswith("llvm.")]


def _found(name: str, imports: Mapping[str, int]) -> bool:
    return name in imports or hasattr(ctypes.CDLL(None), name)
