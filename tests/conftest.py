"""What every test process has: Ctrl-C as in a terminal."""

import signal

# a shell without job control starts its background jobs with SIGINT ignored, children inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
