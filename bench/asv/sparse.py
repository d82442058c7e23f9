"""Products, truncated SVD and nearest items of 40,000 users x 20,000 items, 0.8 M non-zeros."""

import fastcos
from bench import data

SHAPE = (40_000, 20_000, 800_000)


class Products:
    """The products X A, X'Y and X'(X A)."""

    params = [[16, 64]]
    param_names = ["columns"]
    version = "1"

    def setup(self, columns):
        self.X = data.interactions(*SHAPE)
        self.A, self.Y = (data.gaussian(n, columns) for n in self.X.shape[::-1])
        fastcos.matmul(self.X, self.A)
        fastcos.rmatmul(self.X, self.Y)
        fastcos.gram_matmul(self.X, self.A)

    def time_matmul(self, *_):
        fastcos.matmul(self.X, self.A)

    def time_rmatmul(self, *_):
        fastcos.rmatmul(self.X, self.Y)

    def time_gram_matmul(self, *_):
        fastcos.gram_matmul(self.X, self.A)


class TruncatedSVD:
    """Sixteen singular triplets, computed to a certified residual."""

    params = [[1e-2, 1e-4]]
    param_names = ["residual"]
    version = "1"

    def setup(self, tolerance):
        self.X = data.interactions(*SHAPE)
        fastcos.randomized_svd(self.X, 16, tol=tolerance)

    def time_randomized_svd(self, tolerance):
        fastcos.randomized_svd(self.X, 16, tol=tolerance)


class ItemNeighbors:
    """The nearest items of every item; items are similar if the same users interacted with them."""

    params = [[10, 100]]
    param_names = ["k"]
    version = "1"

    def setup(self, k):
        self.items = data.interactions(10_000, 3_000, 400_000).T.tocsr()
        fastcos.top_k(self.items, k=k)

    def time_top_k(self, k):
        fastcos.top_k(self.items, k=k)
