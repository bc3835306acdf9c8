"""Loops with options: memory of gradients, progress, early exit, masks, checks.

Everything here stands in front of `plain.scan` and rewrites the user's loop into
loops of loops, so it works under every transformation and on every engine. In the
order of a loop's way: `options` are checked, `schedule` says how to cut the loop,
`step` is what one step does beside the user's function, `nest` puts the loops
together, `ticks` and `bars` show how far it is, `finite` and `blame` find what went
wrong; `loop` has all of it in one function.
"""

from onescan.long.blame import NonFinite as NonFinite
from onescan.long.first import first_nonfinite as first_nonfinite
from onescan.long.loop import scan as scan
from onescan.long.options import Options as Options
