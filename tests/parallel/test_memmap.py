"""Audits and leaderboards are the same for memory-mapped rows and for rows in memory."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from fastcos import io
from fastcos.auditing.item_audit import audit
from fastcos.cli.main import main
from fastcos.comparison import compare_vectors


@pytest.fixture(scope="module")
def model():
    """Return clustered items (with zero rows and duplicates), users, labels and popularity."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 20, 4000)
    items = rng.standard_normal((20, 12))[labels] + rng.standard_normal((4000, 12))
    items[[7, 2100]] = 0
    items[3900:3930] = items[:30]
    users = rng.standard_normal((2100, 12)).astype(np.float32)
    return items.astype(np.float32), users, labels, rng.integers(0, 99, 4000)


@pytest.fixture
def few_mib(monkeypatch):
    """Set a working memory of 2 MiB, so that every kind of row takes several blocks."""
    monkeypatch.setenv("FASTCOS_WORKING_MEMORY", "2")


def on_disk(folder, **arrays):
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
        yield np.load(folder / f"{name}.npy", mmap_mode="r")


@pytest.mark.slow
@pytest.mark.usefixtures("few_mib")
def test_audit_of_mapped_rows_equals_rows_in_memory(model, tmp_path):
    items, users, labels, popularity = model
    arguments = {"labels": labels, "popularity": popularity, "k": 4, "condition": 1.2}
    expected = audit(items, users, **arguments)
    assert (expected.n_zero, expected.n_duplicates) == (3, 29)
    result = audit(*on_disk(tmp_path, items=items, users=users), **arguments)
    assert json.dumps(result.to_dict()) == json.dumps(expected.to_dict())


MEASURES = ["neg_euclidean", "whitened_cosine", "scaled_similarity"]


@pytest.mark.slow
def test_leaderboard_of_mapped_rows_equals_rows_in_memory(model, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTCOS_WORKING_MEMORY", "2")
    items, labels = model[0][:2500], model[2][:2500]
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, len(items), (300, 2)), rng.random(300)
    [mapped] = on_disk(tmp_path, items=items)
    for data in ({"labels": labels}, {"pairs": pairs}):
        expected = compare_vectors(items, measures=MEASURES, **data)
        comparison = compare_vectors(mapped, measures=MEASURES, **data)
        assert comparison.rows == expected.rows
        assert comparison.conclusion == expected.conclusion


def test_measures_that_need_all_rows_are_left_out_or_refused(model, tmp_path, monkeypatch):
    items, _, labels, _ = model
    [mapped] = on_disk(tmp_path, items=items[:500])
    monkeypatch.setenv("FASTCOS_WORKING_MEMORY", "0.5")  # Rows that fit into this memory are read.
    with pytest.raises(ValueError, match=r"measures must have the capability 'blocks', got 'csls'"):
        compare_vectors(mapped, labels[:500], measures=["dot", "csls"])
    pairs = np.arange(100).reshape(50, 2), np.arange(50.0)
    left_out = compare_vectors(mapped, pairs=pairs).left_out
    assert left_out["csls"] == left_out["recos"] == "rows in memory"
    assert "whitened_cosine" not in left_out


@pytest.mark.slow
def test_audit_command_maps_a_large_file(model, tmp_path, monkeypatch, capsys):
    items = np.repeat(model[0][:2500], 3, axis=1) + np.arange(36)
    np.save(tmp_path / "items.npy", items)
    audits = []
    for memory in ("0.64", "200"):
        monkeypatch.setenv("FASTCOS_WORKING_MEMORY", memory)
        items_read = io.read_factors(tmp_path / "items.npy").items
        assert isinstance(items_read, np.memmap) == (memory == "0.64")
        out = str(tmp_path / memory)
        assert main(["audit", str(tmp_path / "items.npy"), "--k", "3", "--out", out]) == 0
        audits.append(json.loads((tmp_path / memory / "audit.json").read_text())["audit"])
    assert audits[0] == audits[1]
    items[1234, 5] = np.nan
    np.save(tmp_path / "items.npy", items)
    monkeypatch.setenv("FASTCOS_WORKING_MEMORY", "0.64")
    assert main(["audit", str(tmp_path / "items.npy"), "--out", str(tmp_path / "no")]) == 2
    assert "must be finite, got NaN or infinity in row" in capsys.readouterr().err


LIMITED = """
    import sys, numpy as np, fastcos
    small = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)
    fastcos.set_config(working_memory=64, n_threads=2)
    fastcos.audit(small, k=1)
    peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
    before = peak()
    fastcos.audit(np.load(sys.argv[1], mmap_mode="r"), k=1)
    print((peak() - before) / 1024)
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_audit_does_not_hold_all_mapped_rows(tmp_path):
    n, width = 150_000, 512  # 293 MiB
    items = np.lib.format.open_memmap(tmp_path / "items.npy", "w+", np.float32, (n, width))
    generator = np.random.default_rng(0)
    for lo in range(0, n, 5000):
        items[lo : lo + 5000] = generator.standard_normal((5000, width), dtype=np.float32)
    items.flush()
    command = [sys.executable, "-c", textwrap.dedent(LIMITED), str(tmp_path / "items.npy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < items.nbytes / 2**20
