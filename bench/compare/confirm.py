"""How many ratios of a later run lie in the intervals of earlier runs?"""

import itertools
import json
from pathlib import Path

from bench.compare import ratios, turns


def confirmations(earlier, later):
    """For each row and library, check whether a later run confirms the interval of earlier runs.

    A later run confirms an interval if the ratio of the later run lies in the interval.

    Parameters
    ----------
    earlier : list of dict
        Documents of results. One interval is computed from the processes of all documents.
    later : dict
        The document with the results of the later run.

    Returns
    -------
    list of tuple
        Each tuple contains the key of a row, the name of a library, and two booleans. The first
        boolean says whether, apart from fastcos, this library was the fastest exact library of the
        row in the earlier runs. The second boolean says whether the later run confirms the
        interval.
    """
    rows = []
    for key, result in later["results"].items():
        times = {}
        for name in result["libraries"]:
            processes = [_seconds(document, key, name) for document in [*earlier, later]]
            if all(processes):
                times[name] = list(itertools.chain(*processes[:-1])), processes[-1]
        ours = times.pop(turns.FASTCOS, None)
        if ours is None:
            continue
        exact = [name for name in times if "recall" not in result["libraries"][name]]
        fastest = min(exact, key=lambda name: ratios.time_of(times[name][0]), default=None)
        for name, theirs in times.items():
            _, low, high = ratios.ratio_of(theirs[0], ours[0])
            ratio, _, _ = ratios.ratio_of(theirs[1], ours[1])
            rows.append((key, name, name == fastest, low <= ratio <= high))
    return rows


def _seconds(document, key, name):
    result = document["results"].get(key, {"libraries": {}})
    return result["libraries"].get(name, {}).get("seconds")


def report(paths):
    """Print how many ratios of a later run lie in the intervals of earlier runs.

    The last path is the results file of the later run; the other paths belong to the earlier runs.
    """
    *earlier, later = (json.loads(Path(path).read_text("utf8")) for path in paths)
    rows = confirmations(earlier, later)
    for key, name, _, is_confirmed in rows:
        if not is_confirmed:
            print(f"not confirmed: {key}, {name}")
    of_fastest = [is_confirmed for _, _, is_fastest, is_confirmed in rows if is_fastest]
    confirmed = sum(is_confirmed for *_, is_confirmed in rows)
    print(
        f"{confirmed} of {len(rows)} ratios of the last run lie in the intervals of the earlier "
        f"runs; of the ratios to the fastest other exact library, {sum(of_fastest)} of "
        f"{len(of_fastest)} do"
    )
