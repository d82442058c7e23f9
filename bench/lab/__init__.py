"""Scripts that a developer runs by hand, to measure constants of fastcos and to draw figures."""

from fastcos.parallel import readiness

# The scripts time compiled kernels, and not the NumPy code that runs until they are compiled.
readiness.compile_at_once()
