"""The transpose of a CSR matrix, in parts that write to places of their own."""

from .jit import kernel


@kernel
def count_columns(lo, hi, cuts, indptr, indices, counts):
    """counts[part, j] = non-zeros of column j in the rows of a part, for parts lo .. hi.

    cuts (parts + 1,) int64 rows; indptr (n + 1,) int64; indices (nnz,) int; counts (parts, p)
    int64, out.
    """
    for part in range(lo, hi):
        counts[part] = 0
        for t in range(indptr[cuts[part]], indptr[cuts[part + 1]]):
            counts[part, indices[t]] += 1


@kernel
def place_entries(lo, hi, cuts, indptr, indices, data, places, rows, values):
    """Move the entries of parts lo .. hi to their places in the transpose.

    places (parts, p) int64: where the entries of column j from this part start; overwritten.
    data, values (nnz,) or both None; rows, values (nnz,) out. Rows come out rising in every column.
    """
    for part in range(lo, hi):
        for i in range(cuts[part], cuts[part + 1]):
            for t in range(indptr[i], indptr[i + 1]):
                place = places[part, indices[t]]
                places[part, indices[t]] = place + 1
                rows[place] = i
                if data is not None:
                    values[place] = data[t]
