"""fastcos bench: how fast it is here, against whichever rivals are installed."""

import argparse
from pathlib import Path
from typing import Any

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.terminal import print_json, print_table, progress_bar, say
from fastcos.storage import FastcosFormatError, provenance

DESCRIPTION = """\
Measure searches among embeddings (.npy, or .npz of one matrix), or products and item neighbours of
interactions (any other file that fastcos compare reads); of Gaussian rows where no file is given.
The answers of all libraries are checked against float64 first; the machine's peak is measured in
the same run. Rivals that are not installed are left out by name; FASTCOS_RIVALS_PYTHON names
another interpreter that has them. Writes bench.json and bench.png. Exit status 1 if an answer of
fastcos is not exact."""
EPILOG = """\
examples:
  fastcos bench
  fastcos bench vectors.npy --k 100
  fastcos bench ratings.csv --seconds 3 --out speed"""
BUILT_IN = (20_000, 128)
HEADER = (
    "work", "library", "BLAS kernels", "ms", "Gpairs/s", "GFLOP/s", "of peak",
    "p50 ms", "p99 ms", "peak MiB", "exact", "x ours",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    parser.add_argument("data", nargs="?", metavar="DATA", help="embeddings or interactions")
    parser.add_argument("--k", type=int, default=10, metavar="K", help="neighbours (default 10)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, metavar="S", help="per measurement (default 1)"
    )
    parser.add_argument(
        "--rivals", metavar="A,B,...", help="only these; '' for none (default: all installed)"
    )
    options.add_output(parser, "bench")
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Read, measure, write, show."""
    from fastcos.speed import OURS, measure_speed
    from fastcos.speed_display import SpeedDisplay

    options.apply_common(given)
    folder = options.out_directory(given)
    rivals = None if given.rivals is None else [name for name in given.rivals.split(",") if name]
    data, name = _data(given)
    with progress_bar("measuring") as progress:
        found = measure_speed(
            data, k=given.k, seconds=given.seconds, rivals=rivals, progress=progress
        )
    parameters = {"data": name, "shape": list(data.shape), "k": given.k, "seconds": given.seconds}
    document = provenance.json_ready(
        {
            **provenance.provenance(parameters),
            "peak": found.peak._asdict(),
            "speeds": [speed._asdict() for speed in found.speeds],
            "scaling": [point._asdict() for point in found.scaling],
            "skipped": found.skipped,
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    io.write_json(folder / "bench.json", document)
    with io.atomic_path(folder / "bench.png") as path:
        SpeedDisplay(found).plot().savefig(path, format="png", dpi=150)
    if given.json:
        print_json(document)
    else:
        peak = found.peak
        title = (
            f"{name}, {data.shape[0]:,} x {data.shape[1]:,}, k = {given.k}; peak measured: sgemm "
            f"{peak.gflops:,.0f} GFLOP/s, copy {peak.gigabytes:.0f} GB/s"
        )
        print_table(title, HEADER, [_cells(speed) for speed in found.speeds])
    for rival in found.skipped:
        say(f"not installed: {rival}")
    say(f"wrote {folder / 'bench.json'}, {folder / 'bench.png'}")
    return int(any(speed.exact < 1 for speed in found.speeds if speed.library == OURS))


def _data(given: argparse.Namespace) -> tuple[Any, str]:
    """Rows or interactions, and what to call them."""
    if given.data is None:
        import numpy as np

        seed = validation.as_count("--seed", given.seed, low=0)
        return np.random.default_rng(seed).standard_normal(BUILT_IN, np.float32), "Gaussian rows"
    path = Path(given.data)
    if path.suffix.lower() in (".npy", ".npz"):
        try:
            return io.read_vectors(path).vectors, path.name
        except FastcosFormatError:
            if path.suffix.lower() == ".npy":
                raise
    return io.read_interactions(path).X, path.name


def _cells(speed: Any) -> tuple[Any, ...]:
    milliseconds = [None if value is None else 1e3 * value for value in (speed.p50, speed.p99)]
    return (
        speed.work,
        speed.library,
        speed.setting or "its own",
        1e3 * speed.seconds,
        speed.pairs,
        speed.gflops,
        speed.share,
        *milliseconds,
        round(speed.peak_bytes / 2**20),
        speed.exact,
        speed.ratio,
    )
