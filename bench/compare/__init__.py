"""One careful comparison of fastcos with other libraries: `python -m bench.compare`.

This package uses four words with a special meaning:

process
    Every library works in an operating-system process of its own. Each library is measured in five
    fresh processes, one after the other. The reason is that every process places its threads and
    memory pages differently: times vary more from process to process than within one process.
turn
    In a turn, every library is called once, in a random order. If a call is shorter than 20 ms, it
    is repeated for 20 ms, and the median time counts. A disturbance of the machine lasts longer
    than a turn, so it slows down all libraries of this turn in the same way.
ratio
    A ratio is the time of the other library divided by the time of fastcos in the same turn. The
    ratio of a process is the median of the ratios of its turns. The published ratio is the
    geometric mean of the ratios of all processes.
interval
    If the whole run is repeated on the same machine, the new ratio is expected to lie in this
    interval in 95 of 100 cases. The interval is Student's prediction interval for the mean of a
    second run with the same number of processes.
"""
