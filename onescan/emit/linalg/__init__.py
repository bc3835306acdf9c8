"""Small dense linear algebra inside a body."""

from onescan.emit.linalg import (
    cholesky,
    complex_eigh,
    complex_qr,
    eigh,
    lu,
    qr,
    svd,
    triangular,
)

FILES = (cholesky, triangular, lu, qr, eigh, svd, complex_qr, complex_eigh)
RULES = {name: rule for file in FILES for name, rule in file.RULES.items()}
