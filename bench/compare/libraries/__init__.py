"""One file per library. The comparison finds every file in this folder, so no list must be edited.

A file defines NAME, which is the name of the library in tables, and REQUIRES, which is a
requirement in pip's format. The comparison leaves out a library whose requirement is not met. As
the version of the library, the comparison reports the version of the package that REQUIRES names. A
file also defines a function for each operation that the library has. The function prepares
everything that a user of the library would prepare once; preparing is not timed. The function
returns the call to be timed, and a function that turns the result of this call into the answer:

========================= =================================================================
search(items, queries, k) the k nearest items of every query by cosine: indices (n, k)
self_join(rows, k)        the k nearest other rows of every row: indices (n, k). Nothing is
                          prepared: the call starts from the rows
sparse_join(X, k)         the k best cosines of every column of X with the others: scores (m, k).
                          The call starts from X, with the exception below
product(X, A)             X A, for a CSR matrix X and a dense matrix A
gram(X, A)                X'(X A)
svd(X, k, tolerance)      k singular values and right singular vectors: (k, 1 + m), side by side
========================= =================================================================

There is one exception: for `sparse_join`, a library that can only multiply matrices may scale the
columns and transpose them before the timed call. The measured time does not include this work.

A file may also define three other names. SETTINGS is a list of settings; the library is
measured with the fastest of them (bench/compare/settings.py). EXACT = False marks an approximate
library, which the tables list with its recall. The function versions() returns the versions of
other packages or libraries.
"""
