"""One careful comparison of fastcos with other libraries: `python -m bench.compare`.

Words that this package defines:

process
    Every library works in an operating-system process of its own. Five fresh processes of each
    follow one another, because the placement of threads and memory pages differs between processes
    by more than times differ within one.
turn
    In a turn every library is called once, in a random order, or for 20 ms if a call is shorter;
    the median of these calls counts. Disturbances of the machine last longer than a turn, so that
    both times of a ratio meet the same ones.
ratio
    The time of the other library divided by that of fastcos, in the same turn. The ratio of a
    process is the median over its turns; the published ratio is the geometric mean over processes.
interval
    A repetition of the whole run on the same machine is expected to give a ratio within it in 95 of
    100 cases: Student's prediction interval for the mean of as many processes.
"""
