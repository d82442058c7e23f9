"""Scripts, run by hand, whose measurements determine constants of fastcos and fill figures."""

from fastcos.parallel import readiness

# Measured times are those of compiled kernels, not those of the NumPy code that runs before.
readiness.compile_at_once()
