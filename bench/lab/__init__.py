"""Scripts, run by hand, whose measurements determine constants of fastcos and fill figures."""

from fastcos.parallel import readiness

# The scripts time compiled kernels, and not the NumPy code that runs until they are compiled.
readiness.compile_at_once()
