"""A script: passes odd dense arrays to the search, and compares the results with those of NumPy.

    python -m tests.robustness.malformed_dense SEED CASES

Every case must return correct scores, or raise a ValueError or TypeError that begins with the name
of the argument. The input must not change. The script prints how many cases were refused and
accepted.
"""

import faulthandler
import sys
import warnings
from typing import Any

import numpy as np

from fastcos import top_k

faulthandler.enable()
warnings.simplefilter("ignore")  # warnings about zero rows and NumPy's conversions
VALUES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e-300, 1e-30, 1e30, 1e300, -1.0)
TYPES = ("f2", "f4", "f8", ">f4", ">f8", "g", "i1", "i8", "u8", "?", "c8", "U3", "O", "M8[s]")


def odd_values(X: Any, random: Any) -> Any:
    X = X.copy()
    with np.errstate(all="ignore"):
        X.flat[random.integers(X.size, size=2)] = random.choice(VALUES)
    return X


def another_type(X: Any, random: Any) -> Any:
    return X.astype(random.choice(TYPES))


def another_shape(X: Any, random: Any) -> Any:
    shapes = [X[0], X[None], X[:0], X[:, :0], X[0, 0], X.reshape(-1, 1), X.reshape(1, -1)]
    return shapes[random.integers(len(shapes))]


def another_layout(X: Any, random: Any) -> Any:
    if X.dtype == object:
        return X
    padded = np.zeros(X.nbytes + 1, np.uint8)[1:].view(X.dtype).reshape(X.shape)
    padded[:] = X
    layouts = [np.asfortranarray(X), X[::-1], X[:, ::-1], np.repeat(X, 2, axis=1)[:, ::2], padded]
    layouts += [np.broadcast_to(X[:1], X.shape), X.T.copy().T]
    return layouts[random.integers(len(layouts))]


def another_container(X: Any, random: Any) -> Any:
    inputs = [X.tolist(), np.ma.masked_array(X), [*X.tolist(), [1.0]], tuple(X.tolist()), "X"]
    return inputs[random.integers(len(inputs))]


BREAKERS = (odd_values, another_type, another_shape, another_layout)


def answer(Q: Any, B: Any, k: int) -> Any:
    """Return what top_k returns, or its error message."""
    try:
        return top_k(Q, B, k)
    except (ValueError, TypeError) as error:
        return str(error)


def expected_scores(Q: Any, B: Any, k: int) -> Any:
    """Return the k largest cosines of each row, or None if the rows are not finite numbers."""
    Q, B = (np.asarray(X, np.float64) for X in (Q, B))
    Q = np.atleast_2d(Q)  # a query may be a single row (d,)
    if not (np.isfinite(Q).all() and np.isfinite(B).all()):
        return None
    Q, B = (X / np.maximum(np.abs(X).max(axis=1, keepdims=True), 5e-324) for X in (Q, B))
    norms = np.outer(np.linalg.norm(Q, axis=1), np.linalg.norm(B, axis=1))
    scores = np.divide(Q @ B.T, norms, out=np.zeros_like(norms), where=norms > 0)
    return -np.sort(-scores, axis=1)[:, :k]


def try_case(random: Any) -> bool:
    d = int(random.integers(1, 9))
    sides = [random.standard_normal((int(random.integers(1, n)), d)) for n in (6, 40)]
    side = int(random.integers(2))
    for breaker in random.choice(np.array(BREAKERS, object), random.integers(0, 3)):
        if np.ndim(sides[side]) == 2 and np.size(sides[side]):
            sides[side] = breaker(sides[side], random)
    if random.random() < 0.1 and np.ndim(sides[side]) == 2:
        sides[side] = another_container(sides[side], random)
    Q, B = sides
    before, k = repr((Q, B)), int(random.choice([1, 1, 2, 5, 0, -1, 2**40]))
    result = answer(Q, B, k)
    if isinstance(result, str):
        assert result.startswith(("queries", "items", "k ")), result
        return False
    assert repr((Q, B)) == before, "the input has changed"
    truth = expected_scores(Q, B, k)
    assert truth is not None, "accepted"
    np.testing.assert_allclose(result.scores, truth, atol=1e-6)
    return True


if __name__ == "__main__":
    accepted = 0
    for case in range(int(sys.argv[2])):
        print("case", case, file=sys.stderr, flush=True)
        accepted += try_case(np.random.default_rng([int(sys.argv[1]), case]))
    print(int(sys.argv[2]) - accepted, accepted)
