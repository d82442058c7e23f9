"""Argument checks: convert what can be converted, refuse the rest with one line.

A public function converts its arguments once, on entry. What passes has the one form that kernels
take, so nothing below scans or converts it again::

    argument -> containers.as_array -> as_rows, as_vector -> C order, float32 or float64, finite
                    |                      |
                    +----------------------+-> ValueError or TypeError:
                                               "<argument> must <rule>, got <value>"

`as_x` returns the converted argument, `check_x` returns nothing and refuses. Only checks that
several modules share are here; a rule of one function is checked in that function. Sparse matrices
are checked by :func:`fastcos.linalg.csr.as_interactions`, rows on disk by
:mod:`fastcos.storage.memmap`, which read them in blocks.
"""

from fastcos.validation.arguments import (
    Array as Array,
    Floats as Floats,
    Integers as Integers,
    Kind as Kind,
    Rows as Rows,
    any_sparse as any_sparse,
    as_choice as as_choice,
    as_count as as_count,
    as_flag as as_flag,
    as_generator as as_generator,
    as_instance as as_instance,
    as_item_numbers as as_item_numbers,
    as_labels as as_labels,
    as_list as as_list,
    as_neighbor_count as as_neighbor_count,
    as_number as as_number,
    as_partial_labels as as_partial_labels,
    as_path as as_path,
    as_positive_diagonal as as_positive_diagonal,
    as_probabilities as as_probabilities,
    as_real as as_real,
    as_row_shape as as_row_shape,
    as_rows as as_rows,
    as_thread_count as as_thread_count,
    as_vector as as_vector,
    check_callable as check_callable,
    check_fitted as check_fitted,
    check_length as check_length,
    check_memory as check_memory,
    check_none as check_none,
    check_progress as check_progress,
    check_same_width as check_same_width,
    check_scorable as check_scorable,
    check_shape as check_shape,
    check_squarable as check_squarable,
    check_text as check_text,
    did_you_mean as did_you_mean,
    format_value as format_value,
    is_float_array as is_float_array,
    read_only as read_only,
)
from fastcos.validation.column_names import (
    ITEM_WORDS as ITEM_WORDS,
    NAME_WORDS as NAME_WORDS,
    USER_WORDS as USER_WORDS,
    VALUE_WORDS as VALUE_WORDS,
    column_word as column_word,
    is_id as is_id,
)
from fastcos.validation.containers import (
    as_array as as_array,
    as_shared_array as as_shared_array,
    format_rows as format_rows,
    from_arrow as from_arrow,
    from_container as from_container,
    is_sparse as is_sparse,
)
