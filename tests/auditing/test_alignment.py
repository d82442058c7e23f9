"""Tests of the alignment of retrained models.

The tests plant changes in a model, and compare the results with NumPy.
"""

import numpy as np
import pytest

import fastcos
from fastcos.auditing import align


def model(rng, n=400, p=300, k=8):
    return rng.standard_normal((n, k)), rng.standard_normal((p, k))


def balanced(users, items):
    """Return balanced factors, from an SVD of all predictions."""
    k = items.shape[1]
    U, s, Vt = np.linalg.svd(users @ items.T, full_matrices=False)
    return U[:, :k] * np.sqrt(s[:k]), Vt[:k].T * np.sqrt(s[:k])


def retrained(rng, users, items):
    """Return factors with the same predictions in other coordinates."""
    G = rng.standard_normal((items.shape[1],) * 2)
    return users @ np.linalg.inv(G).T, items @ G


def test_reparametrised_model_comes_back():
    rng = np.random.default_rng(0)
    users, items = balanced(*model(rng))
    G = np.linalg.qr(rng.standard_normal((8, 8)))[0] * np.geomspace(0.5, 2, 8)
    users2, items2 = users @ np.linalg.inv(G).T, items @ G
    alignment = align(items2, items, users=users2, old_users=users)
    assert alignment.old_vectors_valid
    assert np.abs(alignment.items - items).max() < 1e-13
    assert np.abs(alignment.users - users).max() < 1e-13
    assert alignment.residual < 1e-13
    assert alignment.self_match_rate == 1
    assert alignment.self_match_rate_before < 0.1
    assert not len(alignment.moved)
    np.testing.assert_array_equal(alignment.old_items, items)
    np.testing.assert_allclose(items2 @ alignment.map, alignment.items, atol=1e-12)
    np.testing.assert_allclose(users2 @ alignment.user_map, alignment.users, atol=1e-12)


def test_predictions_stay_to_rounding():
    rng = np.random.default_rng(1)
    (users, items), (old_users, old_items) = model(rng), model(rng)
    alignment = align(items, old_items, users=users, old_users=old_users)
    predictions = users @ items.T
    error = np.abs(alignment.users @ alignment.items.T - predictions).max()
    assert error < 1e-12 * np.abs(predictions).max()
    old = alignment.old_users @ alignment.old_items.T
    np.testing.assert_allclose(old, old_users @ old_items.T, atol=1e-11)
    assert not alignment.old_vectors_valid


def test_rotation_is_the_nearest_one():
    """No further rotation brings the aligned items nearer to the old items.

    The test tries 500 random rotations, and 500 small rotations that change the solution only
    slightly.
    """
    rng = np.random.default_rng(2)
    old = rng.standard_normal((60, 3))
    new = old @ np.linalg.qr(rng.standard_normal((3, 3)))[0] + 0.3 * rng.standard_normal((60, 3))
    alignment = align(new, old)
    least = np.linalg.norm(alignment.items - old)
    for i in range(1000):
        size = 3.0 if i % 2 else 0.01
        R = np.linalg.qr(np.eye(3) + size * rng.standard_normal((3, 3)))[0]
        R *= np.sign(np.diag(R))
        assert np.linalg.norm(alignment.items @ R - old) >= least - 1e-12
    np.testing.assert_allclose(alignment.map.T @ alignment.map, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(alignment.items @ alignment.items.T, new @ new.T, atol=1e-12)
    assert alignment.residual == pytest.approx(least / np.linalg.norm(old))
    moves = np.linalg.norm(alignment.items - old, axis=1)
    np.testing.assert_allclose(alignment.drift, moves / np.linalg.norm(old, axis=1).mean())


def test_tied_singular_values_are_fixed_by_the_rotation():
    rng = np.random.default_rng(3)
    U = np.linalg.qr(rng.standard_normal((400, 4)))[0]
    V = np.linalg.qr(rng.standard_normal((300, 4)))[0]
    root = np.sqrt([9.0, 5.0, 5.0, 5.0])
    R = np.eye(4)
    R[1:, 1:] = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    users, items = U * root, V * root
    canonical, other = (
        fastcos.canonicalize(users, items),
        fastcos.canonicalize(users @ R, items @ R),
    )
    assert np.abs(np.abs(canonical.items) - np.abs(other.items)).max() > 1e-3
    alignment = align(items @ R, items, users=users @ R, old_users=users)
    assert np.abs(alignment.items - items).max() < 1e-13


@pytest.mark.parametrize(("old_rank", "rank"), [(8, 5), (5, 8)])
def test_ranks_may_differ(old_rank, rank):
    rng = np.random.default_rng(4)
    U, s, Vt = np.linalg.svd(rng.standard_normal((90, 90)))

    def factors(k):
        return U[:, :k] * np.sqrt(s[:k]), Vt[:k].T * np.sqrt(s[:k])

    users, items = retrained(rng, *factors(rank))
    old_users, old_items = factors(old_rank)
    alignment = align(items, old_items, users=users, old_users=old_users)
    assert alignment.items.shape == alignment.old_items.shape == (90, 8)
    np.testing.assert_allclose(alignment.users @ alignment.items.T, users @ items.T, atol=1e-10)
    # The two models share the five leading columns of their SVDs.
    np.testing.assert_allclose(alignment.items[:, :5], alignment.old_items[:, :5], atol=1e-10)
    assert alignment.self_match_rate_before is None
    without = align(items, old_items)
    np.testing.assert_allclose(without.items, items @ without.map, atol=1e-13)
    np.testing.assert_allclose(without.items @ without.items.T, items @ items.T, atol=1e-10)


def test_rank_deficient_product():
    rng = np.random.default_rng(5)
    users, items = model(rng)
    items[:, 3] = items[:, 2]
    users2, items2 = retrained(rng, users, items)
    alignment = align(items2, items, users=users2, old_users=users)
    assert np.isfinite(alignment.items).all()
    assert np.abs(alignment.users @ alignment.items.T - users @ items.T).max() < 1e-10
    assert alignment.residual < 1e-10


def test_planted_moved_items_are_found():
    rng = np.random.default_rng(6)
    users, items = model(rng)
    later = items + 0.05 * rng.standard_normal(items.shape)
    moved = rng.choice(300, 15, replace=False)
    later[moved] = rng.standard_normal((15, 8))
    users2, items2 = retrained(rng, users, later)
    alignment = align(items2, items, users=users2, old_users=users)
    assert sorted(alignment.moved) == sorted(moved)
    assert alignment.self_cosines[alignment.moved[0]] == alignment.self_cosines.min()


def test_third_of_the_items_new_matched_by_id():
    rng = np.random.default_rng(7)
    users, items = model(rng)
    old_ids, ids = np.arange(200), rng.permutation(np.arange(100, 300))
    users2, items2 = retrained(rng, users, items)
    alignment = align(
        items2[ids], items[old_ids], users=users2, old_users=users,
        ids=[f"film {i}" for i in ids], old_ids=[f"film {i}" for i in old_ids],
    )  # fmt: skip
    assert (alignment.n_new, alignment.n_removed, len(alignment.shared)) == (100, 100, 100)
    np.testing.assert_array_equal(ids[alignment.shared], old_ids[alignment.old_shared])
    np.testing.assert_allclose(alignment.users @ alignment.items.T, users @ items[ids].T, atol=1e-9)
    assert alignment.self_match_rate == 1
    # The balanced form of a model depends on its catalogue of items. The two catalogues differ, so
    # the residual is not 0.
    assert alignment.residual < 0.3


@pytest.mark.slow
def test_chain_of_thirty_days_does_not_drift():
    rng = np.random.default_rng(8)
    users, items = model(rng)
    first = yesterday = balanced(users, items)
    for _ in range(30):
        users = users + 0.03 * rng.standard_normal(users.shape)
        items = items + 0.03 * rng.standard_normal(items.shape)
        users2, items2 = retrained(rng, users, items)
        # as stored: float32
        stored = [rows.astype(np.float32) for rows in yesterday]
        today = align(items2, stored[1], users=users2, old_users=stored[0])
        assert today.old_vectors_valid
        assert today.self_match_rate == 1
        yesterday = today.users, today.items
    direct = align(items2, first[1], users=users2, old_users=first[0])
    chained = np.linalg.norm(today.items - first[1]) / np.linalg.norm(first[1])
    assert chained == pytest.approx(direct.residual, rel=0.05)


def test_equal_rows_stay_equal_and_count_as_found():
    rng = np.random.default_rng(9)
    users, items = model(rng)
    items = items[np.sort(rng.integers(0, 40, 300))]
    users2, items2 = retrained(rng, users, items)
    distinct, group_of = np.unique(items2, axis=0, return_inverse=True)
    first = np.unique(group_of.ravel(), return_index=True)[1]
    # In the function `retrained`, a matrix product may round equal rows differently, so this line
    # makes these rows equal again.
    items2 = items2[first][group_of.ravel()]
    alignment = align(items2, items, users=users2, old_users=users)
    assert len(np.unique(alignment.items, axis=0)) == len(distinct)
    assert alignment.self_match_rate == 1


def test_repr_is_short():
    rng = np.random.default_rng(10)
    users, items = model(rng)
    assert len(repr(align(items, items, users=users, old_users=users)).splitlines()) < 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"old_users": None}, "users and old_users must be given for both"),
        ({"ids": None}, "ids and old_ids must be given for both"),
        ({"old_ids": np.arange(1000, 1300)}, "ids must contain at least one of the old_ids"),
        ({"ids": [f"a{i}" for i in range(300)]}, "ids and old_ids must both be text"),
        ({"ids": np.zeros(300, int)}, "ids must"),
        ({"users": np.ones((4, 7))}, "users must have as many columns as items"),
        ({"items": np.full((300, 8), np.nan)}, "items must"),
        ({"ids": None, "old_ids": None, "items": np.ones((9, 8))}, "as many rows as old_items"),
        ({"items": np.ones((400, 8)), "users": np.ones((300, 8)), "ids": None, "old_ids": None},
         "the users and the items of one version seem to be swapped"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(change, message):
    rng = np.random.default_rng(11)
    users, items = model(rng)
    arguments = {
        "items": items, "old_items": items, "users": users, "old_users": users,
        "ids": np.arange(300), "old_ids": np.arange(300),
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        align(**{**arguments, **change})
