"""Run one library on one dense search: `python dense_worker.py JOB.json`.

The job names the library, the .npy inputs, k, the measure and the file of the scores. Prints the
seconds of every call as JSON. adapters.py is read by path: this process may run in an environment
without fastcos.
"""

import json
import runpy
import sys
import time
from pathlib import Path

import numpy as np

ADAPTERS = runpy.run_path(str(Path(__file__).with_name("adapters.py")))
# queries of a warm-up and of a trial of BLAS kernels
FEW = 2000


def timed(call, seconds):
    """Return the seconds of the calls and the last answer; a call of 8 s or more runs once."""
    taken, stop = [], time.perf_counter() + seconds
    while (len(taken) < 3 and sum(taken) < 8) or time.perf_counter() < stop:
        started = time.perf_counter()
        found = call()
        taken.append(time.perf_counter() - started)
    return taken, found


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    queries = np.load(job["queries"])
    own = job["items"] is None
    items = queries if own else np.load(job["items"])
    make = ADAPTERS["search"]
    some = make(job["library"], items, job["k"], job["measure"], own=False)
    few = some.prepare(queries[:FEW])
    some.call(few)
    if job["trial"]:
        search, prepared = some, few
    else:
        del some, few
        search = make(job["library"], items, job["k"], job["measure"], own=own)
        prepared = search.prepare(queries)
        if own:
            search.call(prepared)
    seconds, found = timed(lambda: search.call(prepared), job["seconds"])
    np.save(job["answer"], np.asarray(search.read(found)[1], np.float32))
    print(json.dumps({"seconds": seconds}))
