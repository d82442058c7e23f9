"""set_config overrides the environment, which overrides the defaults.

Invalid values raise an error.
"""

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
VARIABLES = ("N_THREADS", "BACKEND", "ISA", "CACHE_DIR", "WORKING_MEMORY")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    monkeypatch.setattr(config, "overrides", {})
    for variable in VARIABLES:
        monkeypatch.delenv(f"FASTCOS_{variable}", raising=False)
    code_cache.set_cache_directory(None)
    yield
    code_cache.set_cache_directory(None)


def test_get_config_defaults():
    settings = config.get_config()
    assert settings.n_threads == joblib.cpu_count()
    assert settings.backend == "pool"
    assert settings.isa == cpu.supported_isas()[0]
    assert settings.cache_dir == code_cache.cache_directory()
    with sklearn.config_context(working_memory=17):
        assert config.get_config().working_memory == 17


def test_get_config_reads_the_environment_at_each_call(monkeypatch, tmp_path):
    for variable, value in (
        ("N_THREADS", "3"),
        ("BACKEND", "prange"),
        ("ISA", "generic"),
        ("CACHE_DIR", str(tmp_path)),
        ("WORKING_MEMORY", "2.5"),
    ):
        monkeypatch.setenv(f"FASTCOS_{variable}", value)
    assert config.get_config() == (3, "prange", "generic", tmp_path, 2.5)


def test_working_memory_default_imports_no_sklearn(monkeypatch):
    monkeypatch.delitem(sys.modules, "sklearn")
    monkeypatch.delenv("SKLEARN_WORKING_MEMORY", raising=False)
    assert config.working_memory() == 1024
    monkeypatch.setenv("SKLEARN_WORKING_MEMORY", "77")
    assert config.working_memory() == 77
    assert "sklearn" not in sys.modules
    for value in ("many", "-1"):
        monkeypatch.setenv("SKLEARN_WORKING_MEMORY", value)
        with pytest.raises(ValueError, match="SKLEARN_WORKING_MEMORY must be a"):
            config.working_memory()


def test_count_cpus_agrees_with_joblib():
    assert config.count_cpus() == joblib.cpu_count()


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "10000 100000\n"}, 1),  # a tenth of a CPU
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "-1 100000"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu.max": "5 0"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000"}, None),
    ],
)
def test_count_cpus_reads_the_quota_of_a_container(monkeypatch, tmp_path, files, limit):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert config.count_cpus(tmp_path) == (5 if limit is None else limit)


def test_count_cpus_reads_the_affinity(monkeypatch, tmp_path):
    (tmp_path / "cpu.max").write_text("800000 100000")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 7}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert config.count_cpus(tmp_path) == 2


def test_set_config_overrides_the_environment(monkeypatch, tmp_path):
    for variable in VARIABLES:
        monkeypatch.setenv(f"FASTCOS_{variable}", "nonsense")
    config.set_config(
        n_threads=2, backend="pool", isa="generic", cache_dir=tmp_path, working_memory=64
    )
    assert config.get_config() == (2, "pool", "generic", tmp_path, 64.0)


def test_set_config_keeps_other_settings():
    config.set_config(n_threads=5, working_memory=9)
    config.set_config(working_memory=10)
    assert config.get_config().n_threads == 5
    assert config.get_config().working_memory == 10


def test_get_config_ignores_empty_variables(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.setenv(f"FASTCOS_{variable}", "")
    assert config.get_config().backend == "pool"
    assert config.get_config().n_threads == joblib.cpu_count()


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("n_threads", 0, "n_threads must be a whole number from 1 to 4096, got 0"),
        ("n_threads", 1.5, "n_threads must be a whole number from 1 to 4096, got 1.5"),
        ("n_threads", "2", "n_threads must be a whole number from 1 to 4096, got '2'"),
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
        config.set_config(n_threads=7, cache_dir=tmp_path, working_memory=-1)
    with pytest.raises(TypeError, match="cache_dir"):
        config.set_config(n_threads=7, cache_dir=3)
    assert config.overrides == {}
    assert code_cache.cache_directory() != tmp_path


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("N_THREADS", "many", "FASTCOS_N_THREADS must be a number, got 'many'"),
        ("N_THREADS", "0", "FASTCOS_N_THREADS must be a whole number from 1 to 4096, got 0"),
        (
            "N_THREADS",
            "2.5",
            "FASTCOS_N_THREADS must be a whole number from 1 to 4096, got 2.5",
        ),
        (
            "N_THREADS",
            "nan",
            "FASTCOS_N_THREADS must be a whole number from 1 to 4096, got nan",
        ),
        (
            "N_THREADS",
            "inf",
            "FASTCOS_N_THREADS must be a whole number from 1 to 4096, got inf",
        ),
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
    code = """
import fastcos, fastcos.config, fastcos.parallel, fastcos.kernels.csr
try:
    fastcos.get_config()
except ValueError as error:
    print("read now:", error)
"""
    nonsense = {f"FASTCOS_{variable}": "nonsense" for variable in VARIABLES}
    assert fresh(code, **nonsense).startswith("read now: FASTCOS_")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_a_changed_affinity_is_seen_at_once():
    before = os.sched_getaffinity(0)
    try:
        config.get_config()
        os.sched_setaffinity(0, {min(before)})
        assert config.get_config().n_threads == 1
    finally:
        os.sched_setaffinity(0, before)
    assert config.get_config().n_threads == joblib.cpu_count()
