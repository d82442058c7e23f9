"""Truncated SVD of a sparse X to a certified residual."""

import numpy as np

import fastcos
from bench import answers
from bench.products import SHAPES, interactions


class TruncatedSVD(answers.Situation):
    """randomized_svd to a residual, and the residuals of a given SVD."""

    params = [list(SHAPES), [1e-2, 1e-4]]
    param_names = ["shape", "tol"]
    n_components = 16

    @answers.once
    def setup(self, shape, tol):
        self.X, self.tol = interactions(shape), tol
        self.svd = self.time_randomized_svd()
        s, Vt = self.svd.s, self.svd.Vt.astype(np.float64)
        wide = self.X.astype(np.float64)
        gram = wide.T @ (wide @ Vt.T) - Vt.T * s**2
        self.residual = answers.at_most(3 * tol, np.linalg.norm(gram, axis=0).max() / s[0] ** 2)
        if shape == "2,000 x 500":  # larger ones take too long with LAPACK
            best = np.linalg.svd(wide.toarray(), compute_uv=False)[: self.n_components]
            answers.at_most(tol, answers.relative_error(s, best))

    def time_randomized_svd(self, *_):
        return fastcos.randomized_svd(self.X, self.n_components, tol=self.tol)

    def time_svd_residuals(self, *_):
        return fastcos.svd_residuals(self.X, self.svd)

    def track_residual(self, *_):
        return self.residual

    track_residual.unit = "share of the largest eigenvalue"

    def track_peak_bytes(self, *_):
        return answers.peak_bytes(self.time_randomized_svd)

    track_peak_bytes.unit = "bytes"
