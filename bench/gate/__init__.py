"""Performance regression gate: is the code of one commit slower than that of another?

``python -m bench.gate BASE HEAD`` answers for two commits of this repository; :func:`compare_speed`
answers for any two commands. The package needs NumPy and SciPy, not fastcos: copy the folder to
guard a service of your own.

    BASE, HEAD
       |  processes   a pair of fresh processes, both alive, take turns at every benchmark
       v
    seconds per turn
       |  intervals   median ratio of a pair; trimmed mean of the pairs, bootstrap interval
       v
    Ratio per benchmark
       |  compare     more pairs while the interval contains the tolerance; suspects measured again
       v
    Verdict           passed, slower, undecided, missing; markdown() for a pull request
"""

from bench.gate.compare import MIN_PAIRS, Verdict, compare_pairs, compare_speed
from bench.gate.intervals import Ratio
from bench.gate.processes import Command, interleaved

__all__ = [
    "MIN_PAIRS",
    "Command",
    "Ratio",
    "Verdict",
    "compare_pairs",
    "compare_speed",
    "interleaved",
]
