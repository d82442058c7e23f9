"""The search engine: exact top-k by inner product, independent of measures.

Rows arrive encoded: transformed by a measure, with their norms and a bias per item. A ``Segment``
is an immutable block of encoded items that packs itself when a search first needs it, and plans
how a number of queries search it::

    encode_rows -> EncodedRows -> Segment.plan -+-> scan.score_all        few queries: every pair
                                                +-> scan.search_unpacked  more: rows as given
                                                +-> duplicates.search     one row of each group
                                                `-> scan.search           packed items
                                                       |
                    pack_items: scale, centre, rotate, quantise to int8 panels
                    tiles: drop what a rigorous bound excludes -> float64 scores of the rest

Exact means the order of float64 scores of the rows as given, ties by lower number. What the tiles
drop has a score strictly below the k-th best; the proof heads ``fastcos.kernels.candidate_filter``.
Survivors are scored in float64 in a fixed order of summation, so that the bits do not depend on
threads, blocks, segments or instruction set.

Up to 64 queries are searched by ``scan.scan_few``: one launch of one kernel, which measures,
scales and packs the queries, scans the panels, scores and sorts. ``neighbors.plain_search`` calls
it without the steps before it. While kernels are not compiled ``numpy_search`` answers, as
``readiness`` decides, and ``background`` starts a process that compiles (``compile_searches``).

``packing`` holds the types and the packed form, ``scan`` the search of packed items,
``range_candidates`` all items that may reach a threshold, ``segments`` planning and merging,
``duplicates`` groups of duplicate rows, ``safe_norms`` rows whose squares would underflow, and
``sparse_rows`` sparse rows by row and by column.
"""
