"""Run before NumPy is imported: one BLAS thread a process, since the tests run in several processes."""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
