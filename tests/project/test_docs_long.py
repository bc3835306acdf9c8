"""The code of docs/long-loops.md runs as written."""

from __future__ import annotations

import re
from pathlib import Path

import jax

PAGE = Path(__file__).parents[2] / "docs" / "long-loops.md"


def test_the_code_of_the_page_runs(capfd):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 8
    namespace = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), namespace)
    jax.effects_barrier()
    told = capfd.readouterr()
    assert "y is not finite after step 10 of cool (long-loops.md:1)" in told.out
    assert "logistic map" in told.err
    assert "200,000/200,000" in told.err
