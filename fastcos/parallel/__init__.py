"""The thread pool under every kernel: blocks of rows, progress, cancellation."""

from fastcos.parallel.pool import (
    Blocks as Blocks,
    Progress as Progress,
    row_blocks as row_blocks,
    rows_at_work as rows_at_work,
    run as run,
    unfilled as unfilled,
    work_blocks as work_blocks,
    writer_lock as writer_lock,
)
