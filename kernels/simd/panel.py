"""The layout of a panel, which consists of 32 packed rows.

A row has ``words`` words of 4 bytes, each of which holds 4 int8 codes or one float32. The words of
a panel are stored in the order in which they are read, so the CPU prefetches them. The following
list gives the order of the words, from the outermost to the innermost loop, for rows of d columns:

- With AMX, d is rounded up to a multiple of 64, and a row has 16 words per 64 columns. The words of
  a panel of items are ordered by step (of 16 words), item and word. The words of a panel of queries
  are ordered by step, half (of 16 queries), word and query.
- With int8 codes but without AMX, d is rounded up to a multiple of 8, and a row has 2 words per 8
  columns. The words of a panel of items are ordered by group (of 8 items), word and item. The words
  of a panel of queries are ordered by word and query.
- With float32, a row has d words. The words of a panel of items are ordered by item and word. The
  words of a panel of queries are ordered by word and query.

With int8 codes but without AMX, for example, a panel of items begins with word 0 of each of the
first 8 items, followed by word 1 of each of these 8 items.

The panels of full codes are laid out *by item*, except with AMX, if the items have a projection, or
if the rows have at least ``InstructionSet.least_words_by_item`` words. In a panel that is laid out
by item, the words of each item lie together, as in a panel of float32. Panels of projected codes
are always laid out as in the list above.
"""

# The number of items, or of queries, in a panel.
PANEL = 32
# The number of items in a group. The docstring of this module gives the order of a group's words.
GROUP = 8
# The columns of the array ``statistics`` (panels, 5), which describes each panel of items.
# INVERSE_STEP is 1 over the quantisation step of the panel. MAX_NORM is the largest norm of a row.
# The residual of a row is the row minus the product of its codes and the step. MAX_RESIDUAL is the
# largest norm of a residual. MAX_OFFSET and MIN_OFFSET are the largest and the smallest offset of
# an item. Norms are rounded up, and the range of the offsets is widened by their rounding errors.
INVERSE_STEP, MAX_NORM, MAX_RESIDUAL, MAX_OFFSET, MIN_OFFSET = range(5)
N_STATISTICS = 5
# An array ``bound_terms`` (5, 32) holds five float32 numbers for each of the 32 queries of a panel.
# Each of the following constants is the index of a row of ``bound_terms``. THRESHOLD is the
# threshold of the query. A query is approximated by its codes and, with some instruction sets, also
# by the codes of its remainder (see ``query_blocks``). RESIDUAL_NORM is an upper bound on the norm
# of the difference between the query and this approximation; the bound includes rounding errors
# (SLACK), and is the factor of MAX_NORM in ``candidate_filter``. CODE_NORM is an upper bound on the
# norm of the query's codes after they have been multiplied by the step, and is the factor of
# MAX_RESIDUAL. OFFSET_WEIGHT is the weight by which the offsets of items are multiplied.
# UNREFINED_RESIDUAL_NORM is the RESIDUAL_NORM without the remainder. All five numbers are divided
# by the step of the query. They then have the same unit as products of codes, and can be compared
# with them.
THRESHOLD, RESIDUAL_NORM, CODE_NORM, OFFSET_WEIGHT, UNREFINED_RESIDUAL_NORM = range(5)
N_BOUND_TERMS = 5
# A second array of the shape (5, 32) holds the bound terms for projected codes. The first row of
# this array, STEP_RATIO, does not hold thresholds. For each query, this row holds a ratio: the step
# of the full codes divided by the step of the projected codes. A threshold for the full codes,
# multiplied by this ratio, is the threshold for the projected codes. The last row, REMAINDER_NORM,
# holds the norm of the remainder of each query. The remainder of a query is the query minus its
# projection.
STEP_RATIO, REMAINDER_NORM = 0, 4
N_PROJECTED_TERMS = 5
