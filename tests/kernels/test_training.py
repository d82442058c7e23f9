"""One step of training agrees with the loss in NumPy and with finite differences of this loss."""

import itertools

import numpy as np
import pytest

from fastcos.kernels import training
from tests.kernels.inputs import frozen

# The tests that train CosineMF are slow, because compiling the training takes 5 s.
pytestmark = pytest.mark.slow

CASES = list(itertools.product((True, False), (True, False), (0.0, 0.3)))


def problem(seed=0, n=5, p=9, d=6, m=5):
    rng = np.random.default_rng(seed)
    rows = [np.sort(rng.choice(p, size, replace=False)) for size in (3, 1, 0, 6, p)][:n]
    indices = np.concatenate(rows).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    drawn = np.sort(rng.choice(p, m, replace=False))
    return {
        "rows": rows,
        "indptr": indptr,
        "indices": indices,
        "x": rng.uniform(0.2, 1, len(indices)),
        "weights": rng.uniform(0.5, 2, len(indices)),
        "A": rng.normal(size=(p, d)),
        "B": rng.normal(size=(p, d)),
        "bias": rng.normal(size=p),
        "drawn": drawn,
        "counts": rng.integers(1, 4, m).astype(float),
        "scale": 1.7,
    }


def unit_row(v, unit):
    return v / np.linalg.norm(v) if unit else v


def slow_loss(q, unit, softmax, penalty):
    """Return the loss of all users in float64.

    The score of an interaction is computed from the other interactions of its user.
    """
    total = 0.0
    for u, items in enumerate(q["rows"]):
        span = slice(q["indptr"][u], q["indptr"][u + 1])
        x, weights = q["x"][span], q["weights"][span]
        free = [j for j, item in enumerate(q["drawn"]) if item not in items]
        if len(items) == 0 or not free:
            continue
        s = x @ q["A"][items]
        total += penalty * (np.linalg.norm(s) - 1) ** 2
        logit = np.array(
            [
                q["scale"] * unit_row(s, unit) @ unit_row(q["B"][q["drawn"][j]], unit)
                + q["bias"][q["drawn"][j]]
                for j in free
            ]
        )
        counts = q["counts"][free]
        for t, item in enumerate(items):
            rest = s - x[t] * q["A"][item]
            cosine = 0.0
            if len(items) > 1:
                cosine = unit_row(rest, unit) @ unit_row(q["B"][item], unit)
            own = q["scale"] * cosine + q["bias"][item]
            if softmax:
                total += weights[t] * (np.log(np.exp(own) + counts @ np.exp(logit)) - own)
            else:
                total += weights[t] * (np.log1p(np.exp(-own)) + counts @ np.log1p(np.exp(logit)))
    return total


def run(q, unit, softmax, penalty, rate=0.0, first=0, masked=None):
    """Call both kernels as in training: first on blocks of users, then on blocks of items.

    The gradients and losses are NaN before the first kernel writes them.
    """
    f = {k: np.asarray(q[k], np.float32) for k in ("x", "weights", "A", "B", "bias", "counts")}
    p, d = f["A"].shape
    n, m, nnz = len(q["rows"]), len(q["drawn"]), len(q["indices"])
    raw = f["B"].copy()
    B = np.array([unit_row(row, unit) for row in raw], np.float32)
    position_of = np.full(p, -1, np.int32)
    position_of[q["drawn"]] = np.arange(m)
    shapes = (n, d), (n, d), (n, d), (nnz, 3), (n, m)
    gradients = training.Gradients(*(np.full(shape, np.nan, np.float32) for shape in shapes))
    losses = np.full(n, np.nan)
    pool = B[q["drawn"]]
    seen = masked or (q["indptr"], q["indices"])
    pool = training.Pool(
        *frozen(pool, np.ascontiguousarray(pool.T), f["bias"][q["drawn"]], f["counts"], position_of)
    )
    objective = training.Objective(np.float32(q["scale"]), np.float32(penalty), unit, softmax)
    for lo, hi in ((0, 2), (2, n)):
        training.user_gradients(
            lo, hi, first, tuple(frozen(q["indptr"], q["indices"], f["x"], f["weights"])),
            training.LossInputs(
                tuple(frozen(f["A"], B, f["bias"])), tuple(frozen(*seen)), pool, objective
            ),
            gradients, losses,
        )  # fmt: skip
    users = np.repeat(np.arange(n, dtype=np.int32), np.diff(q["indptr"]))
    entries = np.argsort(q["indices"], kind="stable").astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(q["indices"], minlength=p))])
    memories = tuple(np.zeros((p, 1), np.float32) for _ in range(3))
    for lo, hi in ((0, 4), (4, p)):
        training.item_updates(
            lo, hi, training.StepByItem(*frozen(starts, users[entries], entries, f["x"])),
            training.Gradients(*frozen(*gradients)), pool.position_of, objective,
            training.Adagrad(np.float32(rate), memories, raw), (f["A"], B, f["bias"]),
        )  # fmt: skip
    return losses, memories, (f["A"], raw, B, f["bias"])


def differences(q, name, unit, softmax, penalty, step=1e-5):
    gradient = np.zeros_like(q[name])
    for at in np.ndindex(gradient.shape):
        ends = []
        for sign in (1, -1):
            moved = q[name].copy()
            moved[at] += sign * step
            loss = slow_loss(q | {name: moved}, unit, softmax, penalty)
            if name == "B":
                loss += penalty * ((np.linalg.norm(moved, axis=1) - 1) ** 2).sum()
            ends.append(loss)
        gradient[at] = (ends[0] - ends[1]) / (2 * step)
    return gradient


@pytest.mark.parametrize(("unit", "softmax", "penalty"), CASES)
def test_user_gradients_loss_equals_numpy(unit, softmax, penalty):
    q = problem()
    losses = run(q, unit, softmax, penalty)[0]
    np.testing.assert_allclose(losses.sum(), slow_loss(q, unit, softmax, penalty), rtol=2e-6)
    assert losses[2] == 0  # This user has no items.
    assert losses[4] == 0  # This user has all items, so no drawn item is a negative.


@pytest.mark.parametrize(("unit", "softmax", "penalty"), CASES)
def test_item_updates_follow_finite_differences(unit, softmax, penalty):
    q = problem(seed=1)
    _, memories, (A, raw, B, _) = run(q, unit, softmax, penalty, rate=1.0)
    for name, after, memory in (("A", A, memories[0]), ("B", raw, memories[1])):
        gradient = differences(q, name, unit, softmax, penalty)
        norms = np.linalg.norm(gradient, axis=1)
        np.testing.assert_allclose(np.sqrt(memory[:, 0]), norms, rtol=2e-4, atol=2e-5)
        large = norms > 1e-3
        assert large.sum() >= 6
        # The first step of Adagrad has length 1.
        step = (q[name] - after)[large]
        np.testing.assert_allclose(step, gradient[large] / norms[large, None], atol=1e-3)
    slope = differences(q, "bias", unit, softmax, penalty)
    np.testing.assert_allclose(np.sqrt(memories[2][:, 0]), np.abs(slope), rtol=2e-4, atol=2e-5)
    expected = np.array([unit_row(row, unit) for row in raw])
    np.testing.assert_allclose(B, expected, rtol=1e-5)


def test_adagrad_step_shrinks_later_steps():
    row, memory = np.zeros(2, np.float32), np.zeros(1, np.float32)
    for gradient in ([3.0, 4.0], [0.0, 12.0], [0.0, 0.0]):
        training.adagrad_step(np.float32(0.5), np.array(gradient, np.float32), memory, row)
    np.testing.assert_allclose(memory, [169])
    np.testing.assert_allclose(row, [-0.3, -0.4 - 0.5 * 12 / 13], rtol=1e-6)


def test_positive_loss_is_finite_for_extreme_logits():
    for own, largest in itertools.product((-1e4, -100.0, 0.0, 100.0, 1e4), repeat=2):
        loss, slope, share = training.positive_loss(
            True, np.float32(own), np.float32(largest), np.float32(1), np.float32(2)
        )
        gap = largest - own
        truth = 2 * (np.log1p(np.exp(-abs(gap))) + max(gap, 0))
        np.testing.assert_allclose(loss, truth, rtol=1e-5, atol=1e-30)
        assert -2 <= slope <= 0
        assert 0 <= share <= 2
    for own in (-1e4, 1e4):
        loss, slope, _ = training.positive_loss(
            False, np.float32(own), np.float32(0), np.float32(0), np.float32(1)
        )
        np.testing.assert_allclose(loss, max(-own, 0))
        np.testing.assert_allclose(slope, -1 if own < 0 else 0)


@pytest.mark.parametrize("softmax", [True, False])
def test_seen_items_are_masked_in_the_pool(softmax):
    q = problem(seed=2)
    everything = np.arange(len(q["A"]), dtype=np.int32)
    n = len(q["rows"])
    seen = (np.arange(n + 1) * len(everything), np.tile(everything, n))
    losses, memories, (A, *_) = run(q, True, softmax, 0.0, rate=1.0, masked=seen)
    assert not losses.any()
    assert not any(memory.any() for memory in memories)
    np.testing.assert_array_equal(A, q["A"].astype(np.float32))


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("softmax", [True, False])
def test_held_out_losses_equal_numpy(unit, softmax):
    q = problem(seed=3, n=4)
    rng = np.random.default_rng(4)
    rest = [np.setdiff1d(np.arange(9), row) for row in q["rows"]]
    held = [np.sort(rng.choice(r, 2, replace=False)) for r in rest]
    weights = rng.uniform(0.5, 2, 8)
    truth = np.zeros(4)
    for u, (items, target) in enumerate(zip(q["rows"], held, strict=True)):
        x = q["x"][q["indptr"][u] : q["indptr"][u + 1]]
        s = x @ q["A"][items]
        s = unit_row(s, unit) if len(items) else s
        free = [j for j, item in enumerate(q["drawn"]) if item not in {*items, *target}]
        score = np.array([q["scale"] * s @ unit_row(b, unit) for b in q["B"]]) + q["bias"]
        pool, counts = score[q["drawn"][free]], q["counts"][free]
        for t, item in enumerate(target if free else []):
            if softmax:
                value = np.log(np.exp(score[item]) + counts @ np.exp(pool)) - score[item]
            else:
                value = np.log1p(np.exp(-score[item])) + counts @ np.log1p(np.exp(pool))
            truth[u] += weights[2 * u + t] * value
    f32 = {k: np.asarray(q[k], np.float32) for k in ("x", "A", "bias", "counts")}
    B = np.array([unit_row(b, unit) for b in q["B"]], np.float32)
    position_of = np.full(9, -1, np.int32)
    position_of[q["drawn"]] = np.arange(len(q["drawn"]))
    both = [np.concatenate(pair).astype(np.int32) for pair in zip(q["rows"], held, strict=True)]
    seen_indptr = np.concatenate([[0], np.cumsum([len(row) for row in both])])
    losses = np.full(4, np.nan)
    pool = training.Pool(
        *frozen(
            B[q["drawn"]], np.ascontiguousarray(B[q["drawn"]].T), f32["bias"][q["drawn"]],
            f32["counts"], position_of,
        )
    )  # fmt: skip
    held_out = np.arange(0, 9, 2), np.concatenate(held).astype(np.int32), weights.astype(np.float32)
    training.held_out_losses(
        0, 4, tuple(frozen(q["indptr"], q["indices"], f32["x"])), tuple(frozen(*held_out)),
        training.LossInputs(
            tuple(frozen(f32["A"], B, f32["bias"])),
            tuple(frozen(seen_indptr, np.concatenate(both))), pool,
            training.Objective(np.float32(q["scale"]), np.float32(0), unit, softmax),
        ),
        losses,
    )  # fmt: skip
    assert truth.any()
    np.testing.assert_allclose(losses, truth, rtol=1e-5)
