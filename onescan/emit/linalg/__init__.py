"""Small dense linear algebra inside a body."""

from onescan.emit.linalg import cholesky, lu, qr, triangular

RULES = {**cholesky.RULES, **triangular.RULES, **lu.RULES, **qr.RULES}
