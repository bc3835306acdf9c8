"""LLVM for the CPU we run on: text of a module in, addresses of its functions out.

Each module is parsed into a context of its own, optimised, turned into an object file
and linked; context, IR and object are gone before the address is returned, so a kernel
costs the process its code pages and little else.  One linker (LLVM's ORC with JITLink)
serves the process.  JITLink lays out an object in one piece, which is what makes the
small code model, with constants addressed relative to the instruction, right.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import llvmlite
from llvmlite import binding

from onescan.errors import ScanError

DEFAULT_LEVEL = 2


class CompilerError(ScanError, RuntimeError):
    """LLVM refused the code of a kernel: a fault of onescan, never of the user."""


@functools.cache
def host() -> str:
    """What the generated code depends on: the processor and the version of LLVM."""
    version = ".".join(map(str, binding.llvm_version_info))
    return "\n".join([llvmlite.__version__, version, triple(), *_processor()])


@functools.cache
def triple() -> str:
    """The platform of this process, in LLVM's words."""
    return binding.get_process_triple()


@functools.cache
def data_layout() -> str:
    """Sizes and alignments of the types on this platform, in LLVM's words."""
    return str(_target_machine().target_data)


def _processor() -> tuple[str, str]:
    features = binding.get_host_cpu_features()
    # LLVM keeps to 256-bit vectors on most processors with AVX-512, for the sake of
    # programs that use few of them.  A whole loop of vector code is not such a program.
    features["prefer-256-bit"] = False
    return binding.get_host_cpu_name(), features.flatten()


@functools.cache
def _target_machine() -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    name, features = _processor()
    return binding.Target.from_triple(triple()).create_target_machine(
        cpu=name, features=features, opt=3, reloc="pic", codemodel="small", jit=True
    )


@functools.cache
def _linker() -> Any:
    _target_machine()
    return binding.create_lljit_compiler(use_jit_link=True, suppress_errors=True)


@contextmanager
def optimised(text: str, level: int = DEFAULT_LEVEL) -> Iterator[Any]:
    """The module of this text, verified and optimised, while the context lasts."""
    context = binding.create_context()
    try:
        module = binding.parse_assembly(text, context)
        try:
            module.verify()
            optimise(module, level)
            yield module
        finally:
            module.close()
    except RuntimeError as error:
        raise CompilerError(f"LLVM refused the code of a kernel: {error}") from error
    finally:
        context.close()


def optimise(module: Any, level: int = DEFAULT_LEVEL) -> None:
    """Run LLVM's standard pipeline of this level (0 to 3) over a parsed module."""
    options = binding.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = binding.create_pass_builder(_target_machine(), options)
    builder.getModulePassManager().run(module, builder)


def assembly(text: str, level: int = DEFAULT_LEVEL) -> str:
    """The machine code of a module as text."""
    with optimised(text, level) as module:
        return _target_machine().emit_assembly(module)


def link(
    name: str,
    text: str,
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
    level: int = DEFAULT_LEVEL,
) -> dict[str, int]:
    """Compile a module, load it for good, and give the addresses of its `exports`.

    `imports` are addresses of functions the module declares; what else it declares is
    looked up in the process (libc and libm).  A name can be used only once.
    """
    with optimised(text, level) as module:
        code = _target_machine().emit_object(module)
    library = binding.JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in exports:
        library.export_symbol(symbol)
    for symbol, address in (imports or {}).items():
        library.import_symbol(symbol, address)
    try:
        tracker = library.link(_linker(), name)
    except RuntimeError as error:
        raise CompilerError(f"LLVM cannot link a kernel: {error}") from error
    _alive.append(tracker)
    return {symbol: tracker[symbol] for symbol in exports}


# A target cannot be unregistered from XLA, so its code must never be unloaded.
_alive: list[Any] = []
