"""Rows of the sparse tables: us against each rival, every run in a process of its own.

Ours runs before and after each competitor; a ratio is of medians within one call.
FASTCOS_COMPETITORS_PYTHON
names an interpreter that has the rivals where this one has not; FASTCOS_TABLE a JSON file that
every row is appended to.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

WORKER = Path(__file__).with_name("sparse_worker.py")
COMPETITORS_PYTHON = os.environ.get("FASTCOS_COMPETITORS_PYTHON", sys.executable)
OURS = ("fastcos", "prepared", "new_memory")
MISSING = ("ModuleNotFoundError", "ImportError")


def run(job, library, folder, setting=None, core_type=""):
    """What sparse_worker prints, and the answer; None without the library."""
    path, answer = folder / "job.json", folder / "answer.npy"
    job = {"seconds": 1.0, "k": None, "width": None, **job}
    job |= {"library": library, "setting": setting or {}, "answer": str(answer)}
    path.write_text(json.dumps(job))
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    if core_type:
        environment["OPENBLAS_CORETYPE"] = core_type
    is_ours = library in OURS
    if is_ours:
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable if is_ours else COMPETITORS_PYTHON, str(WORKER), str(path)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not is_ours and any(error in done.stderr for error in MISSING):
        return None
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), np.load(answer)


def compared(work, job, rivals, folder, agree, ours="fastcos", our_setting=None):
    """Rows of one case. rivals: (name, library, setting, core type, at least, aim) each.

    agree(rival's run, our run, rival's setting) says whether the rival's answer may have a time.
    """
    first, rows = run(job, ours, folder, our_setting), []
    for name, library, setting, core_type, at_least, aim in rivals:
        theirs = run(job, library, folder, setting, core_type)
        if theirs is None:
            continue
        second = run(job, ours, folder, our_setting)
        ours_s = statistics.median(first[0]["seconds"] + second[0]["seconds"])
        rival_s = statistics.median(theirs[0]["seconds"])
        rows.append(
            {
                "work": work, "rival": f"{name} {core_type}".strip(), "ratio": rival_s / ours_s,
                "ours_s": ours_s, "rival_s": rival_s, "correct": agree(theirs, first, setting),
                "at_least": at_least, "aim": aim, "peak_mib": first[0]["peak_mib"],
                "rival_peak_mib": theirs[0]["peak_mib"], "residual": first[0]["residual"],
                "rival_residual": theirs[0]["residual"],
            }
        )  # fmt: skip
        first = second
    return rows


def kept(rows, capsys):
    """Print the rows, append them to FASTCOS_TABLE, and hold them to what is promised."""
    table = os.environ.get("FASTCOS_TABLE")
    if table:
        path = Path(table)
        before = json.loads(path.read_text()) if path.exists() else []
        path.write_text(json.dumps(before + rows, indent=1))
    with capsys.disabled():
        for row in rows:
            least = f"(at least {row['at_least']}x)" if row["at_least"] else "(table only)"
            residuals = (
                f", residuals {row['residual']:.1e} and {row['rival_residual']:.1e}"
                if row["residual"] is not None
                else ""
            )
            print(
                f"\n{row['work']}: ours {row['ours_s']:.4f} s {row['peak_mib']:.0f} MiB, "
                f"{row['rival']} {row['rival_s']:.4f} s {row['rival_peak_mib']:.0f} MiB, "
                f"{row['ratio']:.2f}x {least}{residuals}{'' if row['correct'] else ' WRONG'}"
            )
    for row in rows:
        if row["at_least"]:
            assert row["correct"], row
            assert row["ratio"] >= row["at_least"], row
