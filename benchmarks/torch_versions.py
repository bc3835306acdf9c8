"""The recurrent networks by cuDNN, as a PyTorch user has them: `torch.nn.GRU`.

Called as case.py says of `kernel`s, but for the results: they are put into the
arrays once, with full float32 products, and stay on the GPU when it is timed.  What
is timed has PyTorch's defaults, by which cuDNN may use TF32, as XLA may by JAX's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

CELLS = {"gru": "GRU", "lstm": "LSTM"}


def version(
    name: str,
    sizes: tuple[int, ...],
    inputs: list[np.ndarray],
    outputs: list[np.ndarray],
) -> Callable[[], object] | None:
    """A call that starts cuDNN's version of `name`, if there is one."""
    cell, _, kind = name.partition("_")
    if cell not in CELLS or not find_spec("torch"):
        return None
    torch: Any = import_module("torch")
    if not torch.cuda.is_available():
        return None
    run = _forward if kind == "forward" else _gradient
    compute = run(torch, *_network(torch, cell, inputs))
    allowed = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    for output, result in zip(outputs, compute(), strict=True):
        output[...] = result.detach().cpu().numpy()
    torch.backends.cudnn.allow_tf32 = allowed
    return compute


def wait() -> None:
    """For all that PyTorch has started on the GPU."""
    if torch := sys.modules.get("torch"):
        torch.cuda.synchronize()


def _network(torch: Any, cell: str, inputs: list[np.ndarray]) -> tuple[Any, ...]:
    """The module with the case's weights, its first state, and its inputs."""
    b, wh, wx, h, xs = (torch.tensor(x, device="cuda") for x in inputs)
    module = getattr(torch.nn, CELLS[cell])(h.shape[1], h.shape[1]).to("cuda")
    with torch.no_grad():
        module.weight_ih_l0.copy_(wx.T)
        module.weight_hh_l0.copy_(wh.T)
        module.bias_ih_l0.copy_(b)
        module.bias_hh_l0.zero_()
    module.flatten_parameters()
    start = h[None]
    return module, (start, torch.zeros_like(start)) if cell == "lstm" else start, xs


def _forward(torch: Any, module: Any, start: Any, xs: Any) -> Callable[[], list[Any]]:
    def compute() -> list[Any]:
        with torch.no_grad():
            return [module(xs, start)[0]]

    return compute


def _gradient(torch: Any, module: Any, start: Any, xs: Any) -> Callable[[], list[Any]]:
    weights = [module.bias_ih_l0, module.weight_hh_l0, module.weight_ih_l0]

    def compute() -> list[Any]:
        loss = (module(xs, start)[0] ** 2).mean()
        b, wh, wx = torch.autograd.grad(loss, weights)
        return [b, wh.T, wx.T]

    return compute
