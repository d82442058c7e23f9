"""X A and X'(X Q) against SciPy and MKL: `pytest -n 0 bench/competitors/test_products.py`.

"prepared" is fastcos on a matrix that was validated once, as in every iterative method. Results are
freed before the next call, and fastcos reuses their buffers; "new memory" is fastcos without that.
A sample of rows of each answer is compared.
"""

import numpy as np
import pytest

from bench.competitors import harness

# case: task, columns, ours, {library: target}
CASES = {
    "decks X A, 64 columns": ("product", 64, "fastcos", {"scipy": 3.0, "mkl": 1.2}),
    "decks X A, 128 columns": ("product", 128, "fastcos", {"scipy": 3.0, "mkl": 1.2}),
    "decks X'(X Q), 64 columns": ("gram", 64, "fastcos", {"scipy": 3.0, "mkl": None}),
    "zipf X'(X Q), 64 columns": ("gram", 64, "fastcos", {"scipy": 3.0, "mkl": None}),
    "zipf X A, 64 columns": ("product", 64, "fastcos", {"scipy": None, "mkl": None}),
    "decks X A, 64 columns, new memory": ("product", 64, "new_memory", {"mkl": None}),
    "decks X A, 64 columns, prepared": ("product", 64, "prepared", {"scipy": None}),
    "decks X'(X Q), 64 columns, prepared": ("gram", 64, "prepared", {"scipy": None}),
    "zipf X'(X Q), 64 columns, prepared": ("gram", 64, "prepared", {"scipy": None}),
}


def agree(theirs, ours, setting):
    return np.allclose(theirs[1], ours[1], atol=1e-4 * np.abs(ours[1]).max())


@pytest.mark.parametrize("case", CASES)
def test_product_ratio(case, matrix, tmp_path, capsys):
    task, width, ours, targets = CASES[case]
    job = {"task": task, "width": width, "matrix": matrix, "k": None, "seconds": 1.0}
    competitors = [harness.Competitor(name, target) for name, target in targets.items()]
    rows = harness.compare("sparse_worker.py", case, job, competitors, tmp_path, agree, ours=ours)
    harness.report(rows, capsys)
