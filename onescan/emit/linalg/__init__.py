"""Small dense linear algebra inside a body."""

from onescan.emit.linalg import (
    cholesky,
    complex_eigh,
    complex_qr,
    complex_svd,
    eigh,
    lu,
    qr,
    svd,
    triangular,
)

REAL = (cholesky, triangular, lu, qr, eigh, svd)
COMPLEX = (complex_qr, complex_eigh, complex_svd)
RULES = {name: rule for file in REAL + COMPLEX for name, rule in file.RULES.items()}
