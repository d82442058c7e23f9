"""Programs without source files: frozen by PyInstaller, in a zip file, or only bytecode.

Their searches return correct results, name the running code in one line, do not start the program a
second time, and run no code from the working directory. After an upgrade of the program, the old
kernels never run.
"""

import compileall
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipapp
from pathlib import Path

import numba
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled"),
]
FORMS = [
    pytest.param(
        "frozen",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("PyInstaller") is None, reason="needs PyInstaller"
        ),
    ),
    "zip",
    "bytecode",
]
# Packages that a search does not need. Without them, PyInstaller takes only half a minute.
LEFT_OUT = (
    "IPython", "PIL", "anndata", "dask", "distributed", "faiss", "h5py", "jinja2",
    "langchain_core", "matplotlib", "mteb", "pandas", "polars", "pyarrow", "pytest", "scanpy",
    "scipy", "sentence_transformers", "setuptools", "sklearn", "tkinter", "torch", "vicinity",
)  # fmt: skip
# If its argument is "search", the program first pretends that earlier searches in NumPy have taken
# one second, and then searches. Otherwise, the program calls a single kernel. The program also
# records every start.
PROGRAM = """
import json, os, sys
with open(os.environ["STARTS"], "a") as starts:
    starts.write("started\\n")
import numpy as np
import fastcos
from fastcos.kernels import pair_scores, records
from fastcos.parallel import background, readiness

result = {"file": fastcos.__file__}
if sys.argv[1] == "search":
    rows = np.random.default_rng(0).standard_normal((600, 16)).astype(np.float32)
    index = fastcos.SimilarityIndex().fit(rows)
    readiness.state.seconds_in_numpy = 1.0
    neighbors = index.search(rows[:3], 4)
    result["indices"], result["scores"] = neighbors.indices.tolist(), neighbors.scores.tolist()
    result["code"] = index.explain(3, 4).code
    if background.state.child is not None:
        background.state.child.process.kill()
        background.state.child.process.wait()
else:
    rows, norms = np.array([[3.0, 4.0]]), np.zeros(1)
    rows.flags.writeable = False
    pair_scores.row_norms(0, 1, records.rows_of(rows), norms)
    hits = sum(pair_scores.row_norms._cache_hits.values())
    result["norm"], result["from_cache"] = norms[0], hits
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def publish(tmp_path_factory):
    """Return a function; it publishes the program, and returns the command for starting it."""
    published = {}

    def publish(form, factor):
        """Publish the program in one of the FORMS; its kernel multiplies norms by a factor."""
        if (form, factor) not in published:
            folder = tmp_path_factory.mktemp(f"{form}{factor}")
            published[form, factor] = _publish(form, folder, factor)
        return published[form, factor]

    return publish


def _publish(form, folder, factor):
    site = folder / "site"
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "fastcos", site / "fastcos", ignore=ignore)
    shutil.copytree(ROOT / "kernels", site / "fastcos/kernels", ignore=ignore, dirs_exist_ok=True)
    kernels = site / "fastcos/kernels/pair_scores.py"
    text = kernels.read_text("utf8")
    assert text.count("norms[i] = math.sqrt(") == 1
    kernels.write_text(text.replace("= math.sqrt(", f"= {factor} * math.sqrt("), "utf8")
    (site / "__main__.py").write_text(PROGRAM)
    if form == "zip":
        zipapp.create_archive(site, folder / "program.pyz")
        return [sys.executable, str(folder / "program.pyz")]
    if form == "bytecode":
        assert compileall.compile_dir(site, quiet=1, legacy=True)
        for source in site.rglob("*.py"):
            source.unlink()
        return [sys.executable, str(site / "__main__.pyc")]
    paths = [str(site), os.environ.get("PYTHONPATH", "")]
    excluded = [option for name in LEFT_OUT for option in ("--exclude-module", name)]
    subprocess.run(
        [
            sys.executable, "-m", "PyInstaller", "--onedir", "--name", "program", "--log-level",
            "ERROR", "--noconfirm", "--paths", str(site), *excluded, str(site / "__main__.py"),
        ],
        cwd=folder, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    shutil.rmtree(site)
    return [str(folder / "dist/program/program")]


def start(command, folder, *arguments):
    """Run the program in a folder with foreign modules.

    Return its result, its error output, and how many times it was started.
    """
    work, starts = folder / "work", folder / "starts"
    work.mkdir(exist_ok=True)
    starts.write_text("")
    for name in ("numba", "numpy", "fastcos", "llvmlite"):
        (work / f"{name}.py").write_text("open('was_run', 'w')")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"FASTCOS_CACHE_DIR": str(folder / "cache"), "STARTS": str(starts)}
    done = subprocess.run(
        [*command, *arguments], cwd=work, env=environment, capture_output=True, text=True,
        check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (work / "was_run").exists()
    result = json.loads(done.stdout)
    assert not result["file"].startswith(str(ROOT))
    return result, done.stderr, starts.read_text().count("started")


@pytest.mark.parametrize("form", FORMS)
def test_a_search_is_right_and_says_which_code_runs(publish, tmp_path, form):
    result, said, starts = start(publish(form, 1.0), tmp_path, "search")
    rows = np.random.default_rng(0).standard_normal((600, 16)).astype(np.float32).astype("f8")
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    cosines = unit[:3] @ unit.T
    np.testing.assert_array_equal(result["indices"], np.argsort(-cosines, axis=1)[:, :4])
    np.testing.assert_allclose(result["scores"], -np.sort(-cosines, axis=1)[:, :4], rtol=1e-6)
    assert starts == 1
    (line,) = said.splitlines()
    if form == "frozen":
        assert "not compiled in the background (this program is frozen)" in line
        assert "NumPy at first" in result["code"]
    else:
        assert "compiling the search kernels in the background" in line
        assert result["code"] == "NumPy, while another process compiles the kernels"


@pytest.mark.parametrize("form", FORMS)
def test_after_an_upgrade_the_old_kernels_never_run(publish, tmp_path, form):
    runs = [start(publish(form, factor), tmp_path, "norm")[0] for factor in (1.0, 1.0, 2.0)]
    assert [(run["norm"], run["from_cache"]) for run in runs] == [(5.0, 0), (5.0, 1), (10.0, 0)]
