"""Turn arguments into arrays and numbers, or refuse them with one line: argument, rule, value."""

from fastcos.validation.arguments import (
    Array as Array,
)
from fastcos.validation.arguments import (
    Kind as Kind,
)
from fastcos.validation.arguments import (
    OccupiedError as OccupiedError,
)
from fastcos.validation.arguments import (
    Rows as Rows,
)
from fastcos.validation.arguments import (
    as_asked as as_asked,
)
from fastcos.validation.arguments import (
    as_choice as as_choice,
)
from fastcos.validation.arguments import (
    as_count as as_count,
)
from fastcos.validation.arguments import (
    as_enough_memory as as_enough_memory,
)
from fastcos.validation.arguments import (
    as_fitted as as_fitted,
)
from fastcos.validation.arguments import (
    as_flag as as_flag,
)
from fastcos.validation.arguments import (
    as_float32 as as_float32,
)
from fastcos.validation.arguments import (
    as_generator as as_generator,
)
from fastcos.validation.arguments import (
    as_instance as as_instance,
)
from fastcos.validation.arguments import (
    as_item_numbers as as_item_numbers,
)
from fastcos.validation.arguments import (
    as_known_id as as_known_id,
)
from fastcos.validation.arguments import (
    as_known_items as as_known_items,
)
from fastcos.validation.arguments import (
    as_labels as as_labels,
)
from fastcos.validation.arguments import (
    as_length as as_length,
)
from fastcos.validation.arguments import (
    as_measure_of_blocks as as_measure_of_blocks,
)
from fastcos.validation.arguments import (
    as_measure_of_tasks as as_measure_of_tasks,
)
from fastcos.validation.arguments import (
    as_memory_of_worker as as_memory_of_worker,
)
from fastcos.validation.arguments import (
    as_neighbor_count as as_neighbor_count,
)
from fastcos.validation.arguments import (
    as_new_directory as as_new_directory,
)
from fastcos.validation.arguments import (
    as_none as as_none,
)
from fastcos.validation.arguments import (
    as_number as as_number,
)
from fastcos.validation.arguments import (
    as_output_directory as as_output_directory,
)
from fastcos.validation.arguments import (
    as_output_file as as_output_file,
)
from fastcos.validation.arguments import (
    as_partial_labels as as_partial_labels,
)
from fastcos.validation.arguments import (
    as_path as as_path,
)
from fastcos.validation.arguments import (
    as_positive_diagonal as as_positive_diagonal,
)
from fastcos.validation.arguments import (
    as_real as as_real,
)
from fastcos.validation.arguments import (
    as_replaceable as as_replaceable,
)
from fastcos.validation.arguments import (
    as_row_shape as as_row_shape,
)
from fastcos.validation.arguments import (
    as_rows as as_rows,
)
from fastcos.validation.arguments import (
    as_same_run as as_same_run,
)
from fastcos.validation.arguments import (
    as_same_width as as_same_width,
)
from fastcos.validation.arguments import (
    as_scorable as as_scorable,
)
from fastcos.validation.arguments import (
    as_shape as as_shape,
)
from fastcos.validation.arguments import (
    as_share_of_worker as as_share_of_worker,
)
from fastcos.validation.arguments import (
    as_shares as as_shares,
)
from fastcos.validation.arguments import (
    as_squarable as as_squarable,
)
from fastcos.validation.arguments import (
    as_supported as as_supported,
)
from fastcos.validation.arguments import (
    as_vector as as_vector,
)
from fastcos.validation.arguments import (
    read_only as read_only,
)
from fastcos.validation.arguments import (
    some_rows as some_rows,
)
from fastcos.validation.arguments import (
    told as told,
)
