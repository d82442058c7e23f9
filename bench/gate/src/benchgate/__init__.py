"""Performance regression gate: is the code of one commit slower than the code of another?

``benchgate BASE HEAD -- TESTS`` compares two commits of any project that has pytest-benchmark tests.

The modules, from the bottom up:

- ``serve`` is a pytest plugin that runs in the environment of the project and times one benchmark at a
  time on request;
- ``processes`` starts one such process per commit; the two processes take turns at every benchmark;
- ``intervals`` estimates the ratio of two times, with a confidence interval;
- ``compare`` measures until every benchmark has a verdict;
- ``summary`` renders the verdict as Markdown and JSON;
- ``checkouts`` extracts and installs the two commits;
- ``selftest`` compares a commit with itself;
- ``cli`` is the command line.
"""

from .compare import MIN_PAIRS, Outcome, Verdict, compare_pairs
from .intervals import Ratio
from .processes import Command, Failure, Measurement, Side, interleaved

__version__ = "0.1.0"

__all__ = [
    "MIN_PAIRS",
    "Command",
    "Failure",
    "Measurement",
    "Outcome",
    "Ratio",
    "Side",
    "Verdict",
    "compare_pairs",
    "interleaved",
]
