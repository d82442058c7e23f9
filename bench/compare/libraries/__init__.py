"""One file per library. A new file here is found by being here; nothing else must be edited.

A file defines NAME, as the tables print it; REQUIRES, a requirement as pip writes it, which must be
met and from whose package the version is read; and a function for each operation that the library
has. The function prepares, which is not timed, what a user of the library would prepare once. It
returns the call to be timed, and a function that turns the result of this call into the answer:

========================= =================================================================
search(items, queries, k) the k nearest items of every query by cosine: indices (n, k)
self_join(rows, k)        the k nearest other rows of every row: indices (n, k). Nothing is
                          prepared: the call starts from the rows
sparse_join(X, k)         the k best cosines of every column of X with the others: scores (m, k).
                          The call starts from X; a library that only multiplies may prepare the
                          scaled columns and their transpose, which counts in its favour
product(X, A)             X A, for a CSR matrix X and a dense matrix A
gram(X, A)                X'(X A)
svd(X, k, tolerance)      k singular values and right singular vectors: (k, 1 + m), side by side
========================= =================================================================

Optional: SETTINGS, a list whose fastest member counts (bench/compare/settings.py); EXACT = False
for a library that approximates, which is then reported with its recall; versions(), further
versions.
"""
