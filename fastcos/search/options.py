"""The options of a search: the number of threads, the working memory, and a progress callback."""

from typing import NamedTuple

from fastcos import config, parallel, validation


class ExecutionOptions(NamedTuple):
    """The threads and the memory that a call may use, and the function that reports its progress.

    Attributes
    ----------
    n_threads : int
        The number of threads.
    working_memory : float
        The number of bytes that the call may use in addition to its inputs and outputs.
    progress : callable or None
        A function that is called with the number of answered queries and the number of all queries.
    """

    n_threads: int
    working_memory: float
    progress: parallel.Progress | None = None

    def for_part(self, first: int, last: int, total: int) -> "ExecutionOptions":
        """Return the options for a search of the queries from ``first`` to ``last - 1``.

        These queries are a part of ``total`` queries. The returned options convert the progress
        within this part to the progress of all queries: every query before ``first`` counts as
        answered, and no query after the part does.
        """
        progress = self.progress
        if progress is None:
            return self

        def report(n_done: int, n: int) -> None:
            progress(first + (last - first) * n_done // n, total)

        return self._replace(progress=report)


def as_options(
    n_threads: int | None, working_memory: float | None, progress: parallel.Progress | None = None
) -> ExecutionOptions:
    """Return the validated options of a call; ``working_memory`` is in MiB.

    If ``n_threads`` or ``working_memory`` is None, the setting of the same name is used.
    """
    validation.check_progress(progress)
    size = config.n_threads()
    if n_threads is not None:
        size = validation.as_thread_count("n_threads", n_threads)
    if working_memory is None:
        working_memory = config.working_memory()
    memory = validation.as_real("working_memory", working_memory, above=0)
    return ExecutionOptions(size, memory * 2**20, progress)
