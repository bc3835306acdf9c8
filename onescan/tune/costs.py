"""What the instructions of a kernel, and a step of XLA's loops, cost on a processor.

One frozen record for each kind of processor.  The numbers are fits by eye to some fifty
loops on one machine with AVX-512, and to a hundred random ones on a Neoverse N1; those
of other processors are guesses.  A prediction is good to a factor of two or so, which
is why `choose` measures where engines are closer than that.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Of one kind of processor; times in nanoseconds on one core."""

    name: str
    vector_bits: int
    #: ns of an operation on one register, and of one that divides or takes a root
    operation: float = 0.17
    division: float = 3.0
    #: ns of moving one element in or out of a register
    element: float = 0.25
    #: ns of loading a register from the L1 cache, and of storing one
    load: float = 0.17
    store: float = 0.35
    #: ns of an address or another scalar integer
    address: float = 0.06
    #: ns of an integer division of one element
    integer_division: float = 6.0
    #: how much longer a kernel takes than its instructions, which wait for each other
    waiting: float = 2.0
    #: ns of a byte that a loop reads from its xs or writes to its ys
    streamed_byte: float = 0.3
    #: ns of a number that XLA's program turns, because its batch lies in front of time
    xla_turned: float = 1.0
    #: ns of an operation, of an equation, and of a step in XLA's loops
    xla_operation: float = 0.2
    xla_equation: float = 10.0
    xla_step: float = 400.0
    #: bytes of carry up to which XLA makes one kernel of a loop, and its ns of a step
    #: and of an equation (scalars of `benchmarks/textbook.py`)
    xla_small: int = 1024
    xla_small_step: float = 20.0
    xla_small_equation: float = 1.0
    #: ns of a matrix that XLA gives to a library, and of an operation there
    #: (`benchmarks/linalg.py`)
    xla_matrix: float = 500.0
    xla_matrix_operation: float = 1.0
    #: the same of Fourier transforms (`benchmarks/programs.py --only split`)
    xla_transform: float = 900.0
    xla_transform_operation: float = 0.1
    #: multiply-adds of a product from which XLA gives it to a library, ns of each
    #: there, and from how many on that runs at what vectors can do (LSTM 64 x 256 and
    #: GRU 16 x 128 of `benchmarks/programs.py` and `run.py`: 0.04 to 0.1 ns)
    xla_product: float = 5e5
    xla_product_operation: float = 0.07
    xla_library: float = 3e7
    #: ns of a multiply-add of a product of bytes in XLA, and of a byte of the larger
    #: operand (the layers of `benchmarks/products.py`)
    xla_bytes_operation: float = 0.01
    xla_byte: float = 0.25


AVX512 = Costs("x86 with AVX-512", 512)
AVX2 = Costs("x86 with AVX2", 256)
SSE = Costs("x86", 128)
NEON = Costs(
    "aarch64",
    128,
    operation=0.2,
    load=0.2,
    waiting=1.1,
    xla_turned=1.5,
    xla_operation=0.25,
)


def costs_of(vector_bits: int, triple: str) -> Costs:
    """The record of a processor with such vectors."""
    if triple.startswith("aarch64"):
        return NEON
    return {512: AVX512, 256: AVX2}.get(vector_bits, SSE)
