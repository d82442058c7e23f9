"""Settings: set_config, else the environment, else defaults; invalid values are errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import joblib
import pytest
import sklearn

from fastcos import config
from fastcos.kernels import code_cache, cpu

ROOT = Path(__file__).parents[1]
VARIABLES = ("NUM_THREADS", "BACKEND", "ISA", "CACHE_DIR", "WORKING_MEMORY")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    monkeypatch.setattr(config, "overrides", {})
    for variable in VARIABLES:
        monkeypatch.delenv(f"FASTCOS_{variable}", raising=False)
    code_cache.set_cache_directory(None)
    yield
    code_cache.set_cache_directory(None)


def test_get_config_defaults():
    found = config.get_config()
    assert found.num_threads == joblib.cpu_count()
    assert found.backend == "pool"
    assert found.isa == cpu.supported_isas()[0]
    assert found.cache_dir == code_cache.cache_directory()
    with sklearn.config_context(working_memory=17):
        assert config.get_config().working_memory == 17


def test_get_config_reads_the_environment_at_each_call(monkeypatch, tmp_path):
    for variable, value in (
        ("NUM_THREADS", "3"),
        ("BACKEND", "prange"),
        ("ISA", "generic"),
        ("CACHE_DIR", str(tmp_path)),
        ("WORKING_MEMORY", "2.5"),
    ):
        monkeypatch.setenv(f"FASTCOS_{variable}", value)
    assert config.get_config() == (3, "prange", "generic", tmp_path, 2.5)


def test_set_config_overrides_the_environment(monkeypatch, tmp_path):
    for variable in VARIABLES:
        monkeypatch.setenv(f"FASTCOS_{variable}", "nonsense")
    config.set_config(
        num_threads=2, backend="pool", isa="generic", cache_dir=tmp_path, working_memory=64
    )
    assert config.get_config() == (2, "pool", "generic", tmp_path, 64.0)


def test_set_config_keeps_other_settings():
    config.set_config(num_threads=5, working_memory=9)
    config.set_config(working_memory=10)
    assert config.get_config().num_threads == 5
    assert config.get_config().working_memory == 10


def test_get_config_ignores_empty_variables(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.setenv(f"FASTCOS_{variable}", "")
    assert config.get_config().backend == "pool"
    assert config.get_config().num_threads == joblib.cpu_count()


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("num_threads", 0, "num_threads must be a whole number of at least 1, got 0"),
        ("num_threads", 1.5, "num_threads must be a whole number of at least 1, got 1.5"),
        ("num_threads", "2", "num_threads must be a whole number of at least 1, got '2'"),
        ("backend", "omp", "backend must be one of pool, prange, got 'omp'"),
        ("isa", "avx9", "isa must be one of .*vnni, .*generic, got 'avx9'"),
        ("isa", 3, "isa must be one of .*vnni, .*generic, got 3"),
        ("working_memory", 0, "working_memory must be a finite number > 0, got 0"),
        ("working_memory", float("inf"), "working_memory must be a finite number > 0, got inf"),
        ("working_memory", "big", "working_memory must be a finite number > 0, got 'big'"),
    ],
)
def test_set_config_refuses_invalid_values(setting, value, message):
    with pytest.raises(ValueError, match=message):
        config.set_config(**{setting: value})
    assert setting not in config.overrides


@pytest.mark.parametrize("value", [5, "", b"x", ["a"]])
def test_set_config_refuses_other_types_of_paths(value):
    with pytest.raises(TypeError, match="cache_dir must be a path, got"):
        config.set_config(cache_dir=value)


def test_set_config_changes_all_or_nothing(tmp_path):
    with pytest.raises(ValueError, match="working_memory"):
        config.set_config(num_threads=7, cache_dir=tmp_path, working_memory=-1)
    with pytest.raises(TypeError, match="cache_dir"):
        config.set_config(num_threads=7, cache_dir=3)
    assert config.overrides == {}
    assert code_cache.cache_directory() != tmp_path


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("NUM_THREADS", "many", "FASTCOS_NUM_THREADS must be a number, got 'many'"),
        ("NUM_THREADS", "0", "FASTCOS_NUM_THREADS must be a whole number of at least 1, got 0"),
        ("NUM_THREADS", "2.5", "FASTCOS_NUM_THREADS must be a whole number of at least 1, got 2.5"),
        ("NUM_THREADS", "nan", "FASTCOS_NUM_THREADS must be a whole number of at least 1, got nan"),
        ("NUM_THREADS", "inf", "FASTCOS_NUM_THREADS must be a whole number of at least 1, got inf"),
        ("BACKEND", "omp", "FASTCOS_BACKEND must be one of pool, prange, got 'omp'"),
        ("ISA", "sse", "FASTCOS_ISA must be one of .*vnni, .*generic, got 'sse'"),
        ("WORKING_MEMORY", "-1", "FASTCOS_WORKING_MEMORY must be a finite number > 0, got -1"),
        ("WORKING_MEMORY", "1 GB", "FASTCOS_WORKING_MEMORY must be a number, got '1 GB'"),
    ],
)
def test_get_config_names_an_invalid_variable(monkeypatch, variable, value, message):
    monkeypatch.setenv(f"FASTCOS_{variable}", value)
    with pytest.raises(ValueError, match=message):
        config.get_config()


def test_isa_that_the_cpu_lacks_is_refused(monkeypatch):
    monkeypatch.setattr(cpu, "supported_isas", lambda: ("avx2", "generic"))
    assert config.isa() == "avx2"
    message = r"must be supported by this CPU \(avx2, generic\), got 'vnni'"
    with pytest.raises(ValueError, match=f"^isa {message}"):
        config.set_config(isa="vnni")
    monkeypatch.setenv("FASTCOS_ISA", "vnni")
    with pytest.raises(ValueError, match=f"^FASTCOS_ISA {message}"):
        config.get_config()


def fresh(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_reads_no_variable():
    nonsense = {f"FASTCOS_{variable}": "nonsense" for variable in VARIABLES}
    fresh("import fastcos, fastcos.config, fastcos.parallel, fastcos.kernels.csr", **nonsense)


HEAVY = [
    "sklearn",
    "joblib",
    "scipy.stats",
    "matplotlib",
    "rich",
    "pyarrow",
    "pandas",
    "hypothesis",
]


@pytest.mark.parametrize(
    "modules", ["fastcos", "fastcos.parallel, fastcos.linalg.products, fastcos.config"]
)
def test_import_loads_no_heavy_package(modules):
    code = f"import json, sys, {modules}\nprint(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(fresh(code))
    found = [name for name in loaded if any(name == h or name.startswith(f"{h}.") for h in HEAVY)]
    assert not found
