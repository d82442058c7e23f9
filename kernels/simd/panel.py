"""The layout of a panel: 32 packed rows, which one operation reads.

A row has ``words`` words of 4 bytes, each of which holds 4 int8 codes or one float32. A panel is
read from its beginning to its end, so the CPU prefetches it. The words of a panel are ordered as
follows:
============= ================ ============================================= =====================
set           words of a row   items                                         queries
============= ================ ============================================= =====================
AMX           16 (d / 64)      step of 16 words, item, word                  step, half, word, query
others        2 (d / 8)        group of 8 items, word, item                  word, query
float32       d                item, word                                    word, query
============= ================ ============================================= =====================
"""

# The number of items, or of queries, in a panel.
PANEL = 32
# The number of items in a group. The words of a group lie together.
GROUP = 8
# The terms of the bounds of a panel of queries are stored in rows of 32 float32, one number per
# query. These are the row numbers of the threshold, the residual, the norm of the codes, and the
# weight of the offset. With projected codes, there is also the length of the query's remainder,
# which is the query minus its projection.
THRESHOLD, RESIDUAL_NORM, CODE_NORM, OFFSET_WEIGHT, REST_NORM = range(5)
