"""Run before NumPy is imported: one BLAS thread a process, since the tests run in several processes."""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from hypothesis import settings  # noqa: E402 (NumPy comes with it)

# Machines that run tests are shared, so no test may depend on how long an example takes.
settings.register_profile("dppl", deadline=None)
settings.load_profile("dppl")
