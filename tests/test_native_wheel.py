"""The wheel with native code is small, needs no compiler, and returns the same results as Numba.

The results are bit-for-bit identical to those of the code that Numba compiles. The environment
variable FASTCOS_WHEEL names the wheel. Without it, the tests build a wheel for the tiers of this
CPU, which takes minutes per tier.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fastcos.kernels import cpu, native

ROOT = Path(__file__).parents[1]
TIERS = cpu.supported_tiers()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None or not TIERS,
        reason="needs Linux, a C compiler and a CPU of some tier",
    ),
]
# Each of these operations is the first call of fastcos in a new process. NumPy has already been
# imported, because it makes the rows.
FIRST_CALLS = {
    "search": "from fastcos import top_k; top_k(rows, k=10)",
    "index": "from fastcos import SimilarityIndex as S; S().fit(rows).search(rows[:1], 10)",
    "product": "from fastcos import matmul; matmul(table(500, 64), rows[:64, :8])",
    "svd": "from fastcos import randomized_svd; randomized_svd(table(500, 64), 5)",
    "sparse": "from fastcos import top_k; top_k(table(5_000, 640), k=10)",
}
TABLE = """
import sys
import numpy as np
rows = np.random.default_rng(0).standard_normal((5_000, 64)).astype(np.float32)
def table(n, m):
    import scipy.sparse as sp
    return sp.random_array((n, m), density=0.05, format="csr", rng=0, dtype=np.float32)
"""
# Each key is a feature of a CPU, and its value is part of an instruction. Only the code for tiers
# with this feature may contain the instruction.
INSTRUCTIONS = {"avx512f": "%zmm", "avx512vnni": "vpdpbusd", "amx-int8": "tdpbssd"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if os.environ.get("FASTCOS_WHEEL"):
        return Path(os.environ["FASTCOS_WHEEL"])
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in ("fastcos", "kernels"):
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, source],
        check=True,
        env={**os.environ, "FASTCOS_BUILD_NATIVE": "1"},
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """Unpack the wheel's content as pip installs it; return the folder."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(*words, folder=ROOT, check=True, **environment):
    """Run Python with no environment variables except these."""
    return subprocess.run(
        [sys.executable, "-B", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment},
        check=check,
    )


def digests(**environment):
    return json.loads(run("-m", "tests.native_calls", **environment).stdout)


def libraries(site):
    return sorted((site / "fastcos" / "kernels").glob("*.so"))


def test_wheel_is_small_and_serves_every_python(wheel, site):
    assert re.search(r"-py3-none-(many)?linux\w*\.whl$", wheel.name)
    assert wheel.stat().st_size < 8 * 2**20
    assert set(TIERS) <= {path.stem for path in libraries(site)} <= set(native.TIERS)
    (metadata,) = site.glob("*.dist-info/METADATA")
    lines = metadata.read_text("utf8").splitlines()
    numba = [line for line in lines if line.startswith("Requires-Dist: numba")]
    assert len(numba) == 1  # Only the extra "compile" requires Numba.
    assert numba[0].endswith('extra == "compile"')
    assert not any(line.startswith("Requires-Dist: llvmlite") for line in lines)


@pytest.mark.parametrize("call", FIRST_CALLS)
def test_first_call_compiles_and_writes_nothing(site, tmp_path, call):
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    before = sorted(site.rglob("*"))
    done = run(
        "-c",
        f"{TABLE}{FIRST_CALLS[call]}\nprint('numba' in sys.modules)",
        folder=home,
        HOME=str(home),
        PYTHONPATH=str(site),
        OPENBLAS_NUM_THREADS="1",
    )
    assert done.stderr == ""
    assert done.stdout == "False\n"
    assert not list(home.iterdir())
    assert sorted(site.rglob("*")) == before


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compile the kernels of this clone with Numba; return digests of the results of all calls."""
    cache = str(tmp_path_factory.mktemp("cache"))
    return digests(FASTCOS_NATIVE="0", FASTCOS_CACHE_DIR=cache)


@pytest.mark.parametrize("tier", TIERS)
def test_native_code_gives_the_bits_of_numba(site, compiled, tmp_path, tier):
    shutil.copy(site / "fastcos" / "kernels" / f"{tier}.so", tmp_path)
    assert digests(FASTCOS_NATIVE=str(tmp_path), FASTCOS_REQUIRE_NATIVE="1") == compiled


def test_interpreted_kernels_give_the_bits_of_numba(compiled):
    interpreted = digests(NUMBA_DISABLE_JIT="1")
    assert len(interpreted) == 36
    assert interpreted == {name: compiled[name] for name in interpreted}


def test_operations_find_all_their_code_in_the_wheel(site):
    # The wheel contains no generic code, no code for int64 columns, and no code of the driver
    # prange. Numba compiles such code, so its tests are left out here. The tests in
    # test_filter_bound.py are left out, too: they call kernels of their own, and they call
    # pack_block directly, whereas searches call pack_block only from other kernels.
    left_out = "not instruction_set and not int64_indices and not drivers and not filter_bound"
    done = run(
        "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", left_out,
        "tests/search", "tests/linalg/test_products.py", "tests/linalg/test_svd.py",
        FASTCOS_NATIVE=str(site / "fastcos" / "kernels"), FASTCOS_REQUIRE_NATIVE="1", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_no_tier_has_instructions_of_a_wider_one(site):
    for path in libraries(site):
        listed = subprocess.run(
            ["objdump", "-d", path], capture_output=True, text=True, check=True
        ).stdout
        for feature, instruction in INSTRUCTIONS.items():
            if feature not in native.TIERS[path.stem][1]:
                assert instruction not in listed, path.stem
