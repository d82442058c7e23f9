"""X A and X'(X Q) against SciPy and MKL: `pytest bench/competitors/test_products.py`.

"prepared" is ours on a matrix that was checked once, as every iterative method has it. Every caller
lets a result go before the next call: ours then takes the same memory again, and "new memory" is
ours kept from that. The .npy rows of an answer that are kept are compared before a ratio is made.
"""

import numpy as np
import pytest
import sparse_ratios

# case: task, columns, ours, {rival: (at least, aim)}
NONE = None, None
CASES = {
    "decks X A, 64 columns": ("product", 64, "fastcos", {"scipy": (3.0, 6.0), "mkl": (1.2, 2.0)}),
    "decks X A, 128 columns": ("product", 128, "fastcos", {"scipy": (3.0, 6.0), "mkl": (1.2, 2.0)}),
    "decks X'(X Q), 64 columns": ("gram", 64, "fastcos", {"scipy": (3.0, 6.0), "mkl": NONE}),
    "zipf X'(X Q), 64 columns": ("gram", 64, "fastcos", {"scipy": (3.0, 6.0), "mkl": NONE}),
    "zipf X A, 64 columns": ("product", 64, "fastcos", {"scipy": NONE, "mkl": NONE}),
    "decks X A, 64 columns, new memory": ("product", 64, "new_memory", {"mkl": NONE}),
    "decks X A, 64 columns, prepared": ("product", 64, "prepared", {"scipy": NONE}),
    "decks X'(X Q), 64 columns, prepared": ("gram", 64, "prepared", {"scipy": NONE}),
    "zipf X'(X Q), 64 columns, prepared": ("gram", 64, "prepared", {"scipy": NONE}),
}


def agree(theirs, ours, setting):
    return np.allclose(theirs[1], ours[1], atol=1e-4 * np.abs(ours[1]).max())


@pytest.mark.parametrize("case", CASES)
def test_ratio(case, matrix, tmp_path, capsys):
    task, width, ours, promised = CASES[case]
    job = {"task": task, "width": width, "matrix": matrix}
    rivals = [(name, name, {}, "", *promise) for name, promise in promised.items()]
    rows = sparse_ratios.compared(case, job, rivals, tmp_path, agree, ours)
    sparse_ratios.kept(rows, capsys)
