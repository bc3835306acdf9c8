"""The cases of `make bench-gpu`: the same loops, at the sizes a GPU is used for."""

from __future__ import annotations

import carries
import filters
import maps
import ode
import rl
import rnn
from case import Case

_MAPS = [case for case in maps.CASES if case.name.endswith("scalar")]
_LORENZ = [case for n in (1024, 100_000) for case in ode.lorenz_cases(n)]
_NBODY = [case for case in ode.CASES if case.name.startswith("nbody")]
_BIQUAD = [case for case in filters.CASES if case.name == "biquad"]
_CELLS = [
    rnn.cell_case(cell, kind, 64, hidden, steps)
    for cell in rnn.CELLS
    for kind in ("forward", "grad")
    for hidden, steps in ((128, 1000), (256, 200))
]

CASES: list[Case] = [
    *_MAPS,
    # the whole paths of 100,000 are a gigabyte, which says nothing that `gae` does not
    *(case for case in _LORENZ if case.name != "lorenz/100000/ys"),
    *_NBODY,
    *(rl.advantages_case(n, length=1024) for n in (64, 4096)),
    *map(rl.rollout_case, (16, 2048)),
    filters.kalman_case(4, None),
    filters.kalman_case(4, 1024),
    filters.kalman_case(8, None),
    *map(filters.hmm_case, (16, 64)),
    *_BIQUAD,
    *carries.CASES,
    rnn.cell_case("gru", "forward", 1, 32, 1000),
    *_CELLS,
]
