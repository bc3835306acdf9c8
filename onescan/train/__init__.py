"""Whole training runs as compiled loops: `fit`, `batches`, and the `Run` they give."""

from onescan.train.arguments import batches as batches
from onescan.train.fit import fit as fit
from onescan.train.run import Run as Run
