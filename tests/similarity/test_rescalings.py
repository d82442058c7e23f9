import dataclasses

import numpy as np
import pytest

from fastcos.similarity.rescalings import Rescaling, as_diagonal, rescaling_grid, rescalings

SINGULAR_VALUES = np.array([9.0, 4.0, 1.0])
SHRINKAGE = SINGULAR_VALUES**2 / (SINGULAR_VALUES**2 + 2.0)

# The theory of the family of rescalings. Each row contains a name and three pairs of exponents:
# (shrinkage, spectrum) of D, (a, b) of the items, and (a, b) of the users.
FAMILY = [
    ("identity", (0, 0), (0.5, 0), (0.5, 1)),
    ("orthonormal", (0.5, 0), (0, 0), (1, 1)),
    ("weights", (-0.5, 0), (1, 0), (0, 1)),
    ("balanced", (0, -0.5), (0.5, 0.5), (0.5, 0.5)),
    ("smoothed", (-0.5, -1), (1, 1), (0, 0)),
    ("data", (0.5, -1), (0, 1), (1, 0)),
]


@pytest.mark.parametrize(
    ("known", "expected"),
    list(zip(rescalings(), FAMILY, strict=True)),
    ids=[row[0] for row in FAMILY],
)
def test_rescalings_are_the_six_of_the_family(known, expected):
    name, exponents, items, users = expected
    assert known.name == known.rescaling.name == name
    assert (known.rescaling.shrinkage, known.rescaling.spectrum) == exponents
    assert known.rescaling.item_exponents == items
    assert known.rescaling.user_exponents == users
    assert known.item_cosine
    assert known.user_cosine


def test_rescaling_writes_out_embeddings_and_formulas():
    written = {known.name: (known.items, known.users) for known in rescalings()}
    assert written == {
        "identity": ("V_k S^1/2", "U_k S^1/2 Σ"),
        "orthonormal": ("V_k", "U_k S Σ"),
        "weights": ("V_k S", "U_k Σ"),
        "balanced": ("V_k S^1/2 Σ^1/2", "U_k S^1/2 Σ^1/2"),
        "smoothed": ("V_k S Σ", "U_k"),
        "data": ("V_k Σ", "U_k S"),
    }
    assert Rescaling(0.25, -2).formula == Rescaling(0.25, -2).name == "S^0.25 Σ^-2"
    assert Rescaling().formula == "I"
    assert Rescaling(-0.5, 0.5).formula == "S^-1/2 Σ^1/2"


def test_as_diagonal_accepts_names_exponents_and_arrays():
    for name, (shrinkage, spectrum), _, _ in FAMILY:
        expected = SHRINKAGE**shrinkage * SINGULAR_VALUES**spectrum
        for rescaling in (name, Rescaling(shrinkage, spectrum), expected, expected.tolist()):
            D = as_diagonal(rescaling, SHRINKAGE, SINGULAR_VALUES)
            np.testing.assert_allclose(D, expected, rtol=1e-14)
            assert D.dtype == np.float64
    np.testing.assert_array_equal(as_diagonal(None, SHRINKAGE, SINGULAR_VALUES), np.ones(3))


def test_rescaling_is_a_frozen_value():
    assert Rescaling(0.5) == Rescaling(shrinkage=0.5, spectrum=0)
    assert len({Rescaling(0.5), Rescaling(0.5, 0.0), Rescaling(0.5, -0.0)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        Rescaling().shrinkage = 1
    assert repr(Rescaling(1, 2)) == "Rescaling(shrinkage=1.0, spectrum=2.0)"


def test_rescaling_of_items_inverts_item_exponents():
    for a, b in np.random.default_rng(0).normal(size=(20, 2)):
        assert Rescaling.of_items(a, b).item_exponents == pytest.approx((a, b), abs=1e-15)
    one = Rescaling(0.3, -0.7)
    a, b = one.item_exponents
    assert one.user_exponents == pytest.approx((1 - a, 1 - b))


def test_rescaling_grid_has_every_pair_and_all_named():
    grid = rescaling_grid()
    pairs = [(rescaling.shrinkage, rescaling.spectrum) for rescaling in grid]
    assert pairs == [(a, b) for a in (-0.5, 0, 0.5) for b in (-1, -0.5, 0, 0.5, 1)]
    assert {known.rescaling for known in rescalings()} <= set(grid)
    assert len(rescaling_grid(iter([0, 1]), iter([0, 1, 2]))) == 6


def test_as_diagonal_is_one_where_shrinkage_is_zero():
    s, S = np.array([3.0, 1.0, 0.0]), np.array([0.9, 0.5, 0.0])
    for known in rescalings():
        D = as_diagonal(known.name, S, s)
        assert D[2] == 1
        assert np.isfinite(D).all()
    # Objective (2) cuts off directions whose singular value is not zero.
    assert as_diagonal("data", np.array([0.9, 0.5, 0.0]), np.array([3.0, 1.0, 0.5]))[2] == 1


def test_as_diagonal_of_cancelling_powers_does_not_overflow():
    D = as_diagonal(Rescaling(400, 400), np.array([1e-3, 0.5]), np.array([1e3, 2.0]))
    np.testing.assert_allclose(D, 1, rtol=1e-10)


@pytest.mark.parametrize(
    ("rescaling", "message"),
    [
        ("cosine", "rescaling must be one of identity, orthonormal, weights, .*, got 'cosine'"),
        ([1.0, 0.0, 1.0], "rescaling must be positive, got 0 at position 1"),
        ([1.0, -2.0, 1.0], "rescaling must be positive, got -2 at position 1"),
        ([1.0, np.nan, 1.0], "rescaling must be finite, got nan at position 1"),
        ([1.0, np.inf, 1.0], "rescaling must be finite, got inf at position 1"),
        ([1.0, 2.0], r"rescaling must be of shape \(3,\), got shape \(2,\)"),
        (np.eye(3), r"rescaling must be of shape \(3,\), got shape \(3, 3\)"),
        (2.0, r"rescaling must be of shape \(3,\), got shape \(\)"),
        (Rescaling(spectrum=1000), "rescaling must be finite, got inf at position 0"),
        (Rescaling(spectrum=-1000), "rescaling must be positive, got 0 at position 0"),
    ],
    ids=str,
)
def test_as_diagonal_refuses_what_is_not_positive(rescaling, message):
    with pytest.raises(ValueError, match=message):
        as_diagonal(rescaling, SHRINKAGE, SINGULAR_VALUES)


@pytest.mark.parametrize("rescaling", [{"shrinkage": 1}, [1j, 1, 1], ["a", "b", "c"]], ids=str)
def test_as_diagonal_refuses_non_numbers(rescaling):
    with pytest.raises(TypeError, match="rescaling must hold real numbers"):
        as_diagonal(rescaling, SHRINKAGE, SINGULAR_VALUES)


@pytest.mark.parametrize("value", [np.nan, np.inf, "1", None, True])
def test_rescaling_refuses_non_finite_exponents(value):
    with pytest.raises(ValueError, match="spectrum must be a finite number"):
        Rescaling(spectrum=value)
    with pytest.raises(ValueError, match="a must be a finite number"):
        Rescaling.of_items(value, 0)
