"""Kernels without vector IR: the order and the rounding that the vector kernels must reproduce."""

from fastcos.kernels.intrinsics import multiply_add
from fastcos.kernels.jit import kernel


@kernel
def matmul(indptr, indices, data, A, Y):
    """Y = X A; products in the order of the non-zeros, each added with one rounding."""
    Y[:] = 0
    for i in range(Y.shape[0]):
        for t in range(indptr[i], indptr[i + 1]):
            for c in range(A.shape[1]):
                Y[i, c] = multiply_add(data[t], A[indices[t], c], Y[i, c])


@kernel
def rmatmul(indptr, indices, data, Y, Z):
    """Z = X'Y, rows in order."""
    Z[:] = 0
    for i in range(Y.shape[0]):
        for t in range(indptr[i], indptr[i + 1]):
            for c in range(Y.shape[1]):
                Z[indices[t], c] = multiply_add(data[t], Y[i, c], Z[indices[t], c])


@kernel
def cross(B, Z, C):
    """C = B'Z, rows in order; products and sums are rounded separately."""
    C[:] = 0
    for i in range(Z.shape[0]):
        for j in range(C.shape[0]):
            for c in range(Z.shape[1]):
                C[j, c] += B[i, j] * Z[i, c]


@kernel
def add_product(B, C, Z):
    """Z += B C, columns of B in order."""
    for i in range(Z.shape[0]):
        for j in range(C.shape[0]):
            for c in range(C.shape[1]):
                Z[i, c] += B[i, j] * C[j, c]


@kernel
def dots(rows, columns, out):
    """out[i, j] = rows[i] . columns[j], dimensions in order."""
    for i in range(rows.shape[0]):
        for j in range(columns.shape[0]):
            total = 0.0
            for k in range(rows.shape[1]):
                total += rows[i, k] * columns[j, k]
            out[i, j] = total
