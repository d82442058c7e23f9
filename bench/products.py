"""Products X A, X'Y and X'(X Q) of a sparse X."""

import functools

import numpy as np

import fastcos
from bench import answers, inputs

SHAPES = {"2,000 x 500": (2_000, 500, 40_000), "40,000 x 20,000": (40_000, 20_000, 800_000)}


@functools.cache
def interactions(shape):
    """Return Zipfian interactions of a shape."""
    return inputs.zipf_interactions(*SHAPES[shape])


class Products(answers.Situation):
    """The three products, and one with centred columns."""

    params = [list(SHAPES), [16, 64]]
    param_names = ["shape", "columns"]

    @answers.once
    def setup(self, shape, columns):
        self.X = X = interactions(shape)
        rng = np.random.default_rng(0)
        self.A = rng.standard_normal((X.shape[1], columns)).astype(np.float32)
        self.Y = rng.standard_normal((X.shape[0], columns)).astype(np.float32)
        self.center = np.asarray(X.mean(axis=0)).ravel()
        wide = X.astype(np.float64)
        centered = wide @ self.A - self.center @ self.A.astype(np.float64)
        answers_and_truths = [
            (self.time_matmul(), wide @ self.A),
            (self.time_matmul_centered(), centered),
            (self.time_rmatmul(), wide.T @ self.Y),
            (self.time_gram_matmul(), wide.T @ (wide @ self.A)),
        ]
        self.error = answers.at_most(
            1e-5, max(answers.relative_error(*pair) for pair in answers_and_truths)
        )

    def time_matmul(self, *_):
        return fastcos.matmul(self.X, self.A)

    def time_matmul_centered(self, *_):
        return fastcos.matmul(self.X, self.A, center=self.center)

    def time_rmatmul(self, *_):
        return fastcos.rmatmul(self.X, self.Y)

    def time_gram_matmul(self, *_):
        return fastcos.gram_matmul(self.X, self.A)

    def track_relative_error(self, *_):
        return self.error

    track_relative_error.unit = "share of the largest entry"

    def track_peak_bytes(self, *_):
        return answers.peak_bytes(self.time_gram_matmul)

    track_peak_bytes.unit = "bytes"
