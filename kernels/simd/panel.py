"""The layout of a panel: 32 packed rows, which one operation reads.

A row has ``words`` words of 4 bytes: 4 int8 codes each, or one float32. A panel is read from its
beginning to its end, so that the CPU fetches it ahead:

============= ================ ============================================= =====================
set           words of a row   items                                         queries
============= ================ ============================================= =====================
AMX           16 (d / 64)      step of 16 words, item, word                  step, half, word, query
others        2 (d / 8)        group of 8 items, word, item                  word, query
float32       d                item, word                                    word, query
============= ================ ============================================= =====================
"""

# Items, and queries, of a panel.
PANEL = 32
# Items of a group: their words lie together.
GROUP = 8
# Rows of the lanes of a panel of queries: the threshold, the residual, the norm of the codes, and
# the weight of the offset; with projected codes also the length of what is left of the query.
THRESHOLD, RESIDUAL_NORM, CODE_NORM, OFFSET_WEIGHT, REST_NORM = range(5)
