"""Gradient noise: the scale of the dimensions at which stochastic gradient descent comes to rest.

One step of gradient descent on a loss f(PQ') changes P'P - Q'Q by exactly the squared step times
the difference of the two squared gradients (Theorem 9 of the explanation). Over many steps this
drift, and the decay of each side, move the factors along the maps that leave all predictions as
they are, until both sides balance. Two d x d matrices determine where that is, and how long it
takes.
"""

from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.reports import as_table
from fastcos.validation import Floats

# logarithm of the condition below which factors count as at rest
_AT_REST = 1e-3
# largest step and decay: their products with squares of slopes stay finite
_LARGEST = 1e60


@as_table
class GradientNoise(NamedTuple):
    """Where the gradient noise of both sides of a model balances, and how fast it gets there.

    Attributes
    ----------
    item_weights : ndarray (p,), float64
    user_weights : ndarray (n,), float64
        Drift that a row adds to the balance of the sides per epoch, in units of the step times its
        outer square: step times the sum of its squared slopes, plus twice its decay times its
        number of observations.
    balancing_map : ndarray (d, d), float64
        Symmetric and positive definite. ``items @ balancing_map`` are the items at which training
        comes to rest, up to a rotation, which changes no cosine.
    condition : float
        Of that map: 1 if training has already come to rest.
    epochs_to_forget : float
        Epochs in which the logarithm of the condition falls to 1/e of what it is now; of factors
        at rest, epochs in which a small rescaling in the slowest direction does. Infinite if it
        takes more than a hundred times as long as the slowest direction should.
    """

    item_weights: Floats
    user_weights: Floats
    balancing_map: Floats
    condition: float
    epochs_to_forget: float


def gradient_noise(
    items: Any,
    users: Any,
    slopes: Any,
    *,
    step: float,
    weight_decay: float | tuple[float, float] = 0.0,
) -> GradientNoise:
    """The scale of the dimensions that stochastic gradient descent would leave, and its time.

    A loss of dot products does not choose the scale of the latent dimensions, but its gradient
    noise does in the long run. At rest the sum over items of weight times outer square equals
    that over users. The only map to it is the geometric mean of two d x d matrices. With equal
    squared slopes of all observations it is the ``balanced_by_counts`` form of an audit.

    The statement is about plain stochastic gradient descent, with any batch size, near a minimum.
    Adam and other adaptive methods scale each gradient and need not come to rest there.

    Source: Ziyin, Wang, Li, Wu 2024, arXiv:2402.07193, for the fixed point; Ziyin, Li, Ueda 2023,
    arXiv:2308.06671, for the balance of noise.

    Parameters
    ----------
    items : array_like (p, d)
    users : array_like (n, d)
        Factors of the model, whose prediction of a pair is the dot product (biases aside).
    slopes : sparse matrix or array_like (n, p)
        Derivative of the loss of each observation by its prediction, at these factors: the
        residual, prediction minus value, for half of the squared error. Every stored entry of a
        sparse matrix is one observation, also a stored 0; of an array, every entry is.
    step : float
        Learning rate of one observation. If the loss is the mean over a batch, the learning rate
        divided by the batch size.
    weight_decay : float or (float, float)
        Decay λ that an observation adds to the gradient of its item and its user, λ times the row;
        a pair gives items and users separately.

    Returns
    -------
    GradientNoise
        item_weights, user_weights, balancing_map, condition and epochs_to_forget.

    Raises
    ------
    ValueError
        Widths or shapes that do not match; NaN or infinity; a step that is not positive or a decay
        that is negative; factors with fewer than d independent columns; slopes that are 0 for so
        many rows that, without decay, nothing moves the scale of some dimension.

    Notes
    -----
    O((n + p) d² + observations) for the balance, and a differential equation of d x d matrices for
    the time. Near rest the rates of all directions lie between the step times the extreme
    eigenvalues of the weighted second moments of both sides against the plain ones, and both ends
    are attained (Theorem 9).

    Predicted and measured times agreed within a factor of 1.4 in 36 trainings, and the condition
    at the end was at most 1.07 (``examples/scale_of_dimensions.py``). The prediction takes the
    predictions of the model as settled: decay that is as strong as the curvature of the loss makes
    the true time longer.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import gradient_noise
    >>> rng = np.random.default_rng(0)
    >>> users, items = rng.standard_normal((200, 3)), rng.standard_normal((100, 3))
    >>> residuals = rng.standard_normal((200, 100))   # of a model that fits all entries
    >>> noise = gradient_noise(items * [1, 2, 4], users / [1, 2, 4], residuals, step=0.01)
    >>> round(noise.condition, 1), round(noise.epochs_to_forget)
    (4.2, 97)
    >>> rested = items * [1, 2, 4] @ noise.balancing_map
    >>> back = users / [1, 2, 4] @ np.linalg.inv(noise.balancing_map)
    >>> round(gradient_noise(rested, back, residuals, step=0.01).condition, 6)
    1.0
    """
    Q, P = (
        validation.as_rows(name, side, dtype=np.float64).astype(np.float64, copy=False)
        for name, side in (("items", items), ("users", users))
    )
    validation.check_same_width("users", P, "items", Q)
    validation.check_squarable("items", Q)
    validation.check_squarable("users", P)
    step = validation.as_real("step", step, above=0, high=_LARGEST)
    decays = _as_decays(weight_decay)
    squares, counts = _squares_and_counts(slopes, (len(P), len(Q)))
    item_weights, user_weights = (
        step * squares[side] + 2 * decay * counts[side] for side, decay in enumerate(decays)
    )
    grams = [_weighted_gram(rows, None) for rows in (Q, P)]
    d = Q.shape[1]
    for name, gram in zip(("items", "users"), grams, strict=True):
        rank = np.linalg.matrix_rank(gram, hermitian=True)
        if rank < d:
            raise ValueError(f"{name} must have {d} linearly independent columns, got {rank}")
    # a common factor of the weights changes the time alone, and may be far from 1
    unit = float(max(item_weights.max(), user_weights.max())) or 1.0
    noise_of_items = _weighted_gram(Q, item_weights / unit)
    noise_of_users = _weighted_gram(P, user_weights / unit)
    rank = min(
        np.linalg.matrix_rank(one, hermitian=True) for one in (noise_of_items, noise_of_users)
    )
    if rank < d:
        raise ValueError(
            f"slopes must differ from 0 for rows of items and users that span all {d} dimensions, "
            f"got {rank} (without noise or weight_decay nothing moves the scale of a dimension)"
        )
    metric = geometric_mean(noise_of_items, noise_of_users)
    values, vectors = np.linalg.eigh(metric)
    G: Floats = (vectors * np.sqrt(values)) @ vectors.T
    inverse: Floats = (vectors / np.sqrt(values)) @ vectors.T
    condition = float(np.sqrt(values[-1] / values[0]))
    # both sides at rest, where the noise of both is the same
    plain_items, plain_users = G @ grams[0] @ G, inverse @ grams[1] @ inverse
    drift = G @ noise_of_items @ G
    epochs = _epochs_to_forget(inverse, plain_items, plain_users, drift) / step / unit
    return GradientNoise(item_weights, user_weights, G, condition, epochs)


def _epochs_to_forget(start: Floats, items: Floats, users: Floats, drift: Floats) -> float:
    """Return the time in which the log condition of the map from rest falls to 1/e, at step 1.

    items, users: second moments of both sides at rest; drift: weighted ones, of either side.
    """
    import scipy.integrate
    import scipy.linalg

    d = len(start)
    slowest = float(scipy.linalg.eigh(2 * drift, items + users, eigvals_only=True)[0])
    goal = np.log(np.linalg.cond(start)) / np.e
    if goal < _AT_REST:
        return 1 / slowest

    def velocity(_: float, flat: Floats) -> Floats:
        G = flat.reshape(d, d)
        back = np.linalg.inv(G)
        total = G.T @ items @ G + back @ users @ back.T
        excess = G.T @ drift @ G - back @ drift @ back.T
        S = scipy.linalg.solve_continuous_lyapunov(total, -excess)
        return np.ravel(G @ S)

    def reaches(_: float, flat: Floats) -> float:
        return float(np.log(np.linalg.cond(flat.reshape(d, d))) - goal)

    reaches.terminal = True  # type: ignore[attr-defined]
    path = scipy.integrate.solve_ivp(
        velocity, (0, 100 / slowest), np.ravel(start), method="LSODA", events=reaches,
        rtol=1e-4, atol=1e-6 * float(np.abs(start).max()),
    )  # fmt: skip
    return float(path.t_events[0][0]) if len(path.t_events[0]) else np.inf


def geometric_mean(A: Floats, B: Floats) -> Floats:
    """Return the only positive definite M with M A M = B, for positive definite A and B."""
    values, vectors = np.linalg.eigh(A)
    root, inverse = ((vectors * values**power) @ vectors.T for power in (0.5, -0.5))
    inner, turn = np.linalg.eigh(root @ B @ root)
    half = inverse @ turn
    M: Floats = (half * np.sqrt(np.maximum(inner, 0.0))) @ half.T
    return (M + M.T) / 2


def _as_decays(weight_decay: Any) -> tuple[float, float]:
    """Return the decay of items and of users."""
    if np.ndim(weight_decay) == 0:
        weight_decay = (weight_decay, weight_decay)
    if len(weight_decay) != 2:
        rule = "be one number, or two for items and users"
        raise ValueError(f"weight_decay must {rule}, got {len(weight_decay)}")
    of_items, of_users = (
        validation.as_real("weight_decay", one, low=0, high=_LARGEST) for one in weight_decay
    )
    return of_items, of_users


def _squares_and_counts(
    slopes: Any, shape: tuple[int, int]
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return sums of squares and numbers of observations, of items and of users."""
    import scipy.sparse as sp

    if sp.issparse(slopes):
        triplets = sp.coo_array(slopes)
        validation.check_shape("slopes", triplets.shape, shape)
        values = validation.as_vector("slopes", triplets.data)
        validation.check_squarable("slopes", values)
        users, items = triplets.coords
        sides = ((items, shape[1]), (users, shape[0]))
        ones = np.ones(len(values))
        of_items, of_users, item_counts, user_counts = (
            np.bincount(rows, weights, size).astype(np.float64)
            for weights in (np.square(values), ones)
            for rows, size in sides
        )
        return (of_items, of_users), (item_counts, user_counts)
    dense = validation.as_rows("slopes", slopes, dtype=np.float64)
    validation.check_shape("slopes", dense.shape, shape)
    validation.check_squarable("slopes", dense)
    squares = np.square(dense)
    counts = np.full(shape[1], float(shape[0])), np.full(shape[0], float(shape[1]))
    return (squares.sum(axis=0), squares.sum(axis=1)), counts


def _weighted_gram(rows: Floats, weights: Floats | None) -> Floats:
    """Return the sum over rows of weight times outer square."""
    ones = np.ones(len(rows)) if weights is None else weights
    with parallel.blas_lock():
        return (rows * ones[:, None]).T @ rows
