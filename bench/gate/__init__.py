"""Performance regression gate: is the code of one commit slower than that of another?

``python -m bench.gate BASE HEAD -- TESTS`` answers for two commits of any project with tests of
pytest-benchmark; action.yml is a GitHub Action of it. The package needs NumPy and SciPy, not
fastcos.

    BASE, HEAD
       |  serve       a pytest plugin: times benchmarks on request
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

from .compare import MIN_PAIRS, Verdict, compare_pairs
from .intervals import Ratio
from .processes import Command, interleaved

__all__ = ["MIN_PAIRS", "Command", "Ratio", "Verdict", "compare_pairs", "interleaved"]
