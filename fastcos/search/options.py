"""The options of a search: threads, working memory, and reports of progress."""

from typing import NamedTuple

from fastcos import config, parallel, validation


class ExecutionOptions(NamedTuple):
    """The threads and the memory that a call may use, and its reports of progress.

    Attributes
    ----------
    n_threads : int
    working_memory : float
        The number of bytes for buffers, besides inputs and outputs.
    progress : callable or None
        A function that is called with the number of answered queries and the number of all queries.
    """

    n_threads: int
    working_memory: float
    progress: parallel.Progress | None = None


def as_options(
    n_threads: int | None, working_memory: float | None, progress: parallel.Progress | None = None
) -> ExecutionOptions:
    """Return the validated options; an argument that is None is replaced by the setting."""
    validation.check_progress(progress)
    size = config.n_threads()
    if n_threads is not None:
        size = validation.as_thread_count("n_threads", n_threads)
    if working_memory is None:
        working_memory = config.working_memory()
    memory = validation.as_real("working_memory", working_memory, above=0)
    return ExecutionOptions(size, memory * 2**20, progress)
