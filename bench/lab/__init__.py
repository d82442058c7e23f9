"""Laboratory: measurements behind constants and figures, run by hand; nothing else imports them."""

from fastcos.parallel import readiness

# Time the compiled kernels, not the slower code that stands in until they are compiled.
readiness.compile_at_once()
