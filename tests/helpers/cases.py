"""The one table of named loops; every engine and every transformation runs it all."""

from __future__ import annotations

import loops_containers
import loops_control
import loops_models
import loops_numbers
from table import CASES, Case, Problem

__all__ = ["CASES", "DIFFERENTIABLE", "FILES", "Case", "Problem"]

FILES = (loops_models, loops_numbers, loops_control, loops_containers)
DIFFERENTIABLE = {name: case for name, case in CASES.items() if case.differentiable}
