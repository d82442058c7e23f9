"""Tests of the overlap that map_encoder predicts, on encoders whose true overlap is known."""

import numpy as np
import pytest

from fastcos.auditing import map_encoder


def encoders(rng, n=3000, d=16, noise=0.3):
    """Return two encoders of the same texts: each rotates a common part and adds its own noise."""
    common = rng.standard_normal((n, d))
    R = np.linalg.qr(rng.standard_normal((d + 4, d + 4)))[0]
    old = common + noise * rng.standard_normal((n, d))
    wider = np.concatenate([common, np.zeros((n, 4))], axis=1)
    return old, wider @ R + noise * rng.standard_normal((n, d + 4))


def nearest(queries, corpus, own, k):
    """Return the k nearest rows of each query by cosine, in any order.

    The row of the query's own text is left out.
    """
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, corpus)]
    scores = units[0] @ units[1].T
    scores[np.arange(len(own)), own] = -2
    return np.argpartition(-scores, k, axis=1)[:, :k]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["orthogonal", "linear"])
def test_interval_holds_the_truth(kind):
    held, errors = 0, []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        old, new = encoders(rng)
        order = rng.permutation(len(old))
        sample, fresh = order[:400], order[400:1400]
        encoder_map = map_encoder(new[sample], old, sample, kind=kind, k=5, random_state=seed)
        mapped = nearest(encoder_map.transform(new[fresh]), old, fresh, 5)
        truth = nearest(old[fresh], old, fresh, 5)
        share = np.mean([len({*a} & {*b}) / 5 for a, b in zip(mapped, truth, strict=True)])
        assert share > 0.2  # far from chance
        held += encoder_map.overlap_low <= share <= encoder_map.overlap_high
        errors.append(encoder_map.overlap - share)
        assert encoder_map.overlap_high - encoder_map.overlap_low < 0.08
    assert held >= 9
    assert abs(np.mean(errors)) < 0.01


def test_rotated_encoder_is_mapped_exactly():
    rng = np.random.default_rng(1)
    old = rng.standard_normal((500, 8)).astype(np.float32)
    R = np.linalg.qr(rng.standard_normal((12, 12)))[0][:8]
    rows = rng.permutation(500)[:200]
    encoder_map = map_encoder((old @ R)[rows] * 3, old, rows, k=5)
    assert encoder_map.overlap == encoder_map.overlap_low == encoder_map.overlap_high == 1
    np.testing.assert_allclose(encoder_map.map, R.T, atol=1e-6)
    units = old / np.linalg.norm(old, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder_map.transform(old @ R), units, atol=1e-6)
    assert len(repr(encoder_map).splitlines()) < 15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": np.zeros(200, int)}, "rows must all be different, got 0 twice"),
        (
            {"rows": np.arange(199)},
            "rows must contain one whole number per row of new, in the shape",
        ),
        (
            {"rows": np.arange(400, 600)},
            "rows must contain row numbers of old_corpus, from 0 to 499",
        ),
        ({"new": np.ones((99, 8)), "rows": np.arange(99)}, "new must have at least 100 rows"),
        ({"kind": "affine"}, "kind must be"),
        ({"k": 500}, "k must be"),
        ({"new": np.zeros((200, 8))}, "new must have no zero row"),
        ({"old_corpus": np.full((500, 8), np.inf)}, "old_corpus must"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    rng = np.random.default_rng(2)
    old = rng.standard_normal((500, 8))
    arguments = {"new": old[:200], "old_corpus": old, "rows": np.arange(200)}
    with pytest.raises(ValueError, match=message):
        map_encoder(**{**arguments, **change})
