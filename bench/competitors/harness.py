"""Ratios of fastcos and other libraries: every run is a process of its own, answers are compared.

fastcos runs before and after each competitor; a ratio is of medians within one call of
:func:`compare`. FASTCOS_COMPETITORS_PYTHON names an interpreter that has the competitors if this
one does not. FASTCOS_TABLE names a JSON file that every row is appended to.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parent
COMPETITORS_PYTHON = os.environ.get("FASTCOS_COMPETITORS_PYTHON", sys.executable)
OURS = ("fastcos", "fastcos_index", "prepared", "new_memory")


class Competitor(NamedTuple):
    """A library with its setting, the core type of its OpenBLAS, and the ratio we aim for."""

    library: str
    target: float | None = None
    setting: dict | None = None
    core_type: str = ""
    label: str = ""

    @property
    def name(self):
        return f"{self.label or self.library} {self.core_type}".strip()


def run(worker, job, library, folder, setting=None, core_type=""):
    """Return the worker's output and its answer; None if the library is not installed."""
    path, answer = folder / "job.json", folder / "answer.npy"
    job = {**job, "library": library, "setting": setting or {}, "answer": str(answer)}
    path.write_text(json.dumps(job))
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    if core_type:
        environment["OPENBLAS_CORETYPE"] = core_type
    is_ours = library in OURS
    if is_ours:
        environment["PYTHONPATH"] = str(HERE.parents[1])
    done = subprocess.run(
        [sys.executable if is_ours else COMPETITORS_PYTHON, str(HERE / worker), str(path)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not is_ours and any(e in done.stderr for e in ("ModuleNotFoundError", "ImportError")):
        return None
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), np.load(answer)


def compare(
    worker, work, job, competitors, folder, agree, *, ours="fastcos", setting=None, check=None
):
    """Return the rows of one case.

    agree(their run, our run, their setting) is whether the competitor's answer is correct;
    check(our answer) raises if ours is not.
    """
    first, rows = run(worker, job, ours, folder, setting), []
    if check is not None:
        check(first[1])
    for one in competitors:
        theirs = run(worker, job, one.library, folder, one.setting, one.core_type)
        if theirs is None:
            continue
        second = run(worker, job, ours, folder, setting)
        our_seconds = statistics.median(first[0]["seconds"] + second[0]["seconds"])
        seconds = statistics.median(theirs[0]["seconds"])
        rows.append(
            {
                "work": work, "competitor": one.name, "ratio": seconds / our_seconds,
                "ours_s": our_seconds, "competitor_s": seconds,
                "correct": agree(theirs, first, one.setting or {}), "target": one.target,
                "peak_mib": first[0].get("peak_mib"),
                "competitor_peak_mib": theirs[0].get("peak_mib"),
                "residual": first[0].get("residual"),
                "competitor_residual": theirs[0].get("residual"),
            }
        )  # fmt: skip
        first = second
    return rows


def report(rows, capsys):
    """Print the rows, append them to FASTCOS_TABLE, and fail if one misses its target."""
    table = os.environ.get("FASTCOS_TABLE")
    if table:
        path = Path(table)
        before = json.loads(path.read_text()) if path.exists() else []
        path.write_text(json.dumps(before + rows, indent=1))
    with capsys.disabled():
        for row in rows:
            target = f"(target {row['target']}x)" if row["target"] else "(no target)"
            residuals = (
                f", residuals {row['residual']:.1e} and {row['competitor_residual']:.1e}"
                if row["residual"] is not None
                else ""
            )
            print(
                f"\n{row['work']}: fastcos {cost(row['ours_s'], row['peak_mib'])}, "
                f"{row['competitor']} {cost(row['competitor_s'], row['competitor_peak_mib'])}, "
                f"{row['ratio']:.2f}x {target}{residuals}{'' if row['correct'] else ' WRONG'}"
            )
    for row in rows:
        if row["target"]:
            assert row["correct"], row
            assert row["ratio"] >= row["target"], row


def cost(seconds, mib):
    return f"{seconds:.4f} s" + (f" {mib:.0f} MiB" if mib is not None else "")
