"""Performance regression gate: is the code of one commit slower than that of another?

``python -m bench.gate BASE HEAD -- TESTS`` answers for two commits of any project with tests of
pytest-benchmark; action.yml is a GitHub Action of it. It needs NumPy and SciPy, not fastcos.
serve, a pytest plugin, times benchmarks on request; processes takes turns at them in a pair of
fresh processes; intervals estimates the ratio of a benchmark; compare measures until it has a
verdict.
"""

from .compare import MIN_PAIRS, Verdict, compare_pairs
from .intervals import Ratio
from .processes import Command, interleaved

__all__ = ["MIN_PAIRS", "Command", "Ratio", "Verdict", "compare_pairs", "interleaved"]
