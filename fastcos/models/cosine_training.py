"""The training loop of ``CosineMF``, with negative sampling and early stopping."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import parallel
from fastcos.kernels import training
from fastcos.linalg.transpose import transposed
from fastcos.validation import Integers, as_count, read_only

Floats = npt.NDArray[np.float32]

# Number of vectors that a thread adds in one task. Adding 8,000 vectors takes a few milliseconds.
_WORK_PER_BLOCK = 8_000
# Processing one interaction takes about as long as processing this many pairs of a user and a
# negative sample.
_POOL_PER_INTERACTION = 4
# Initial norm of the rows if the similarity is "dot". A small norm lets strong directions grow
# first.
_SMALL_START = 0.3
# Largest number of items, because the kernels store the indices of items as int32.
MAX_ITEMS = 2**31 - 1


class Parameters(NamedTuple):
    """The float32 arrays that the training loop changes: A (p, k), B (p, k) and bias (p,)."""

    A: Floats
    B: Floats
    bias: Floats


class TrainingResult(NamedTuple):
    """The parameters after the best epoch, the popularity of the items, and the losses by epoch.

    - `log_counts` (p,): the logarithm of each item's number of users.
    - `best_epoch`: the number of the epoch with the smallest held-out loss, counted from 1.
    - `losses`: for every epoch, the mean of the losses of all training interactions.
    - `validation_losses`: for every epoch, the mean loss of all held-out interactions, computed
      after the epoch.
    """

    parameters: Parameters
    log_counts: npt.NDArray[np.float64]
    best_epoch: int
    losses: list[float]
    validation_losses: list[float]


def log_popularity(X: sp.csr_array) -> npt.NDArray[np.float64]:
    """Return the logarithm (p,) of each item's number of users, and -inf for items without users.

    X must not contain stored zeros.
    """
    with np.errstate(divide="ignore"):
        return np.log(np.bincount(X.indices, minlength=X.shape[1]).astype(np.float64))


def negative_sampling_distribution(
    log_counts: npt.NDArray[np.float64], exponent: float
) -> npt.NDArray[np.float64]:
    """Return item probabilities (p,), proportional to count^exponent, but 0 for a count of 0."""
    is_empty = np.isneginf(log_counts)
    logs = np.where(is_empty, 0, log_counts)
    weights = np.where(is_empty, 0, np.exp(exponent * (logs - logs.max())))
    return np.asarray(weights / weights.sum())


def draw_items(
    random: np.random.Generator, cumulative: npt.NDArray[np.float64], count: int
) -> tuple[Integers, Integers]:
    """Draw `count` items with replacement; return the distinct items, ascending, and their counts.

    `cumulative` (p,) contains the cumulative weights of the items. Items with the weight 0 are
    never drawn.
    """
    items = np.searchsorted(cumulative, random.random(count) * cumulative[-1], side="right")
    return np.unique(np.minimum(items, len(cumulative) - 1), return_counts=True)


def split_held_out(
    X: sp.csr_array, fraction: float, random: np.random.Generator
) -> tuple[sp.csr_array, sp.csr_array]:
    """Split the interactions of every user at random into training and held-out interactions.

    On average, the held-out share of a user's interactions is about `fraction`. Every user and
    every item that has interactions keeps at least one of them for training.
    """
    row_lengths = np.diff(X.indptr)
    row = np.repeat(np.arange(X.shape[0]), row_lengths)
    # The sort key is the row number plus a random number below 1. Sorting by this key is faster
    # than a lexsort by the two numbers.
    order = np.argsort(row + random.random(X.nnz))
    rank = np.empty(X.nnz, np.int64)
    rank[order] = np.arange(X.nnz) - X.indptr[row]
    n_held_out = np.floor(fraction * row_lengths + random.random(X.shape[0]))
    n_held_out = np.minimum(n_held_out, row_lengths - 1)
    is_held_out = rank < n_held_out[row]
    n_remaining = np.bincount(X.indices[~is_held_out], minlength=X.shape[1])
    is_held_out &= n_remaining[X.indices] > 0

    def select(mask: npt.NDArray[np.bool_]) -> sp.csr_array:
        starts = np.concatenate([[0], np.cumsum(mask)])[X.indptr]
        return sp.csr_array((X.data[mask], X.indices[mask], starts), shape=X.shape)

    return select(~is_held_out), select(is_held_out)


def train(
    X: sp.csr_array, settings: SimpleNamespace, seed: int, progress: parallel.Progress | None
) -> TrainingResult:
    """Train a model on X (n, p), and return the result of the training.

    X must be in canonical form, non-negative and not empty. `settings` contains the validated
    parameters of CosineMF. Results are bit-for-bit identical for any number of threads.
    """
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4)]
    training_X, held_out_X = split_held_out(X, settings.validation_fraction, streams[0])
    trainer = _Trainer(training_X, X, settings, streams[1], streams[2])
    held_out = None
    if held_out_X.nnz:
        held_out = _HeldOutLoss(training_X, held_out_X, X, trainer, streams[3])
    losses: list[float] = []
    validation: list[float] = []
    best, best_epoch = trainer.parameters, settings.max_iter
    for epoch in range(1, settings.max_iter + 1):
        losses.append(trainer.run_epoch())
        if held_out is not None:
            validation.append(held_out.mean())
            if validation[-1] <= min(validation):
                best, best_epoch = Parameters(*map(np.copy, trainer.parameters)), epoch
        if progress is not None:
            progress(epoch, settings.max_iter)
        if held_out is not None and epoch - best_epoch >= settings.n_iter_no_change:
            break
    return TrainingResult(best, trainer.log_counts, best_epoch, losses, validation)


def _weights(X: sp.csr_array, log_counts: npt.NDArray[np.float64], exponent: float) -> Any:
    """Return the weight x / count^exponent of each interaction, scaled to the mean 1."""
    log_weights = np.log(X.data.astype(np.float64)) - exponent * log_counts[X.indices]
    weights = np.exp(log_weights - log_weights.max(initial=-np.inf))
    return weights / weights.mean()


def _user_blocks(indptr: Integers, n_pool: int) -> parallel.Blocks:
    """Return blocks of users, such that training on each block takes about the same time.

    The time for a user depends on the user's number of interactions, and on `n_pool`, the number of
    items that were drawn as negative samples.
    """
    pool = np.arange(len(indptr)) * (n_pool // _POOL_PER_INTERACTION)
    return parallel.work_blocks(indptr + pool, _WORK_PER_BLOCK)


def _kernel_csr(X: sp.csr_array) -> tuple[Integers, npt.NDArray[np.int32]]:
    """Return the arrays ``indptr`` and ``indices`` of X in the types that the kernels require."""
    return read_only(X.indptr.astype(np.int64)), read_only(X.indices.astype(np.int32))


def _unit_profiles(X: sp.csr_array) -> Floats:
    """Return the stored values of X, after dividing each row of X by its norm."""
    X = X.astype(np.float64)
    norms = np.sqrt(X.power(2).sum(axis=1))
    return (X.data / np.repeat(norms, np.diff(X.indptr))).astype(np.float32)


class _Trainer:
    """Trains a CosineMF by Adagrad; each call of ``run_epoch`` makes one pass over the users."""

    def __init__(
        self,
        X: sp.csr_array,
        all_X: sp.csr_array,
        settings: SimpleNamespace,
        start: np.random.Generator,
        order: np.random.Generator,
    ) -> None:
        n, p = X.shape
        as_count("number of items", p, high=MAX_ITEMS)
        self.settings, self._random = settings, order
        self.log_counts = log_popularity(X)
        self.cumulative = np.cumsum(
            negative_sampling_distribution(self.log_counts, settings.negative_exponent)
        )
        users = order.permutation(n)
        X, all_X = X[users], all_X[users]
        self._all_interactions = _kernel_csr(all_X)
        self._indptr, self._indices = _kernel_csr(X)
        self._values = read_only(_unit_profiles(X))
        weights = _weights(X, self.log_counts, settings.propensity_exponent)
        self._weights, self._total = read_only(weights.astype(np.float32)), float(weights.sum())
        self._raw, self.parameters = self._start(start, p)
        self._accumulators = tuple(np.zeros((p, 1), np.float32) for _ in range(3))
        self._cuts = parallel.row_blocks(n, settings.batch_size)
        self.scale = np.float32(1 / settings.temperature)
        self.unit, self.softmax = settings.similarity != "dot", settings.loss == "info_nce"

    def _start(self, random: np.random.Generator, p: int) -> tuple[Floats, Parameters]:
        """Return the item vectors before the first training step, and the initial parameters.

        The initial rows of A and B have random directions. For rows with random directions, the
        initial biases are optimal.
        """
        k, is_empty = self.settings.n_components, np.isneginf(self.log_counts)
        A, raw = random.standard_normal((2, p, k))
        for rows in (A, raw):
            if self.settings.similarity == "layer_norm":
                rows -= rows.mean(axis=1, keepdims=True)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            rows[is_empty] = 0
        if self.settings.similarity == "dot":
            A, raw = _SMALL_START * A, _SMALL_START * raw
        A, raw = A.astype(np.float32), raw.astype(np.float32)
        q = negative_sampling_distribution(self.log_counts, self.settings.negative_exponent)
        expected_draws = np.where(is_empty, 1, self.settings.n_negatives * q)
        shares = np.where(is_empty, 1, negative_sampling_distribution(self.log_counts, 1.0))
        bias = np.log(shares / expected_draws) if self.settings.item_bias else np.zeros(p)
        return raw, Parameters(A, raw.copy(), bias.astype(np.float32))

    def objective(self, penalty: float = 0.0) -> training.Objective:
        return training.Objective(self.scale, np.float32(penalty), self.unit, self.softmax)

    def draw_pool(self, random: np.random.Generator) -> training.Pool:
        items, counts = draw_items(random, self.cumulative, self.settings.n_negatives)
        rows = self.parameters.B[items]
        position_of = np.full(len(self.cumulative), -1, np.int32)
        position_of[items] = np.arange(len(items))
        bias, weights = self.parameters.bias[items], counts.astype(np.float32)
        arrays: tuple[Any, ...] = (rows, np.ascontiguousarray(rows.T), bias, weights, position_of)
        return training.Pool(*map(read_only, arrays))

    def run_epoch(self) -> float:
        """Make one pass over the users; return the mean loss of an interaction.

        The loss of an interaction is computed before the training step that uses the interaction.
        """
        loss = 0.0
        for batch in self._random.permutation(len(self._cuts) - 1):
            loss += self._step(int(self._cuts[batch]), int(self._cuts[batch + 1]))
        if self.settings.norm_penalty > 0:
            norms = np.linalg.norm(self._raw[~np.isneginf(self.log_counts)], axis=1)
            loss += self.settings.norm_penalty * float(((norms - 1) ** 2).sum())
        return loss / self._total

    def _step(self, first: int, last: int) -> float:
        """Make a training step on users [first, last); return their total loss before the step."""
        pool = self.draw_pool(self._random)
        n, (m, d) = last - first, pool.rows.shape
        start, stop = int(self._indptr[first]), int(self._indptr[last])
        shapes = (n, d), (n, d), (n, d), (stop - start, 3), (n, m)
        gradients = training.Gradients(*(parallel.unfilled(s, np.float32) for s in shapes))
        losses = np.zeros(n)
        indptr = read_only(self._indptr[first : last + 1] - start)
        penalty = self.settings.norm_penalty
        parallel.run(
            training.user_gradients, first + _user_blocks(indptr, m), first,
            (self._indptr, self._indices, self._values, self._weights),
            training.LossInputs(
                tuple(map(read_only, self.parameters)), self._all_interactions, pool,
                self.objective(penalty),
            ),
            gradients, losses,
        )  # fmt: skip
        items, entries = self._indices[start:stop], np.arange(stop - start, dtype=np.int32)
        item_starts, users, positions = transposed(
            indptr, read_only(items), read_only(entries), len(self._raw), np.int32
        )
        pool_work = np.cumsum(pool.position_of >= 0) * (n // _POOL_PER_INTERACTION)
        parallel.run(
            training.item_updates,
            parallel.work_blocks(item_starts + np.append(0, pool_work), _WORK_PER_BLOCK),
            training.StepByItem(item_starts, users, positions, self._values[start:stop]),
            training.Gradients(*map(read_only, gradients)), pool.position_of,
            self.objective(penalty * n / (len(self._indptr) - 1)),
            training.Adagrad(
                np.float32(self.settings.learning_rate), self._accumulators, self._raw
            ),
            tuple(self.parameters),
        )  # fmt: skip
        if not self.settings.item_bias:
            self.parameters.bias[:] = 0  # the kernel updates the biases even if the model has none
        return float(losses.sum())


class _HeldOutLoss:
    """Computes the mean loss of held-out interactions, with negative samples from a fixed seed."""

    def __init__(
        self,
        training_X: sp.csr_array,
        held_out_X: sp.csr_array,
        all_X: sp.csr_array,
        trainer: _Trainer,
        random: np.random.Generator,
    ) -> None:
        self._trainer, self._seed = trainer, random.integers(2**63)
        weights = _weights(held_out_X, trainer.log_counts, trainer.settings.propensity_exponent)
        self._total = float(weights.sum())
        self._arrays: list[Any] = [
            *_kernel_csr(training_X), read_only(_unit_profiles(training_X)),
            *_kernel_csr(held_out_X), read_only(weights.astype(np.float32)), *_kernel_csr(all_X),
        ]  # fmt: skip

    def mean(self) -> float:
        trainer = self._trainer
        pool = trainer.draw_pool(np.random.default_rng(self._seed))
        indptr, losses = self._arrays[0], np.zeros(len(self._arrays[0]) - 1)
        parallel.run(
            training.held_out_losses,
            _user_blocks(indptr, len(pool.rows)),
            tuple(self._arrays[:3]), tuple(self._arrays[3:6]),
            training.LossInputs(
                tuple(map(read_only, trainer.parameters)), tuple(self._arrays[6:]), pool,
                trainer.objective(),
            ),
            losses,
        )  # fmt: skip
        return float(losses.sum()) / self._total
