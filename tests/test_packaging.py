"""A build and an installation contain each file of the fastcos packages once, and nothing else."""

import ast
import email
import itertools
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests import sources

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]
PAGE_FILES = (
    "explore.css", "explore.js", "leaderboard.css", "leaderboard.js", "parts.js", "style.css",
    "templates/base.html", "templates/explore.html", "templates/leaderboard.html",
    "templates/report.html", "templates/sections.html",
)  # fmt: skip
DEPENDENCIES = PROJECT["project"]["dependencies"]
IN_A_CLONE = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git clone")


def modules():
    """For each Python file of the package, return its path inside a wheel."""
    files = set()
    for folder, name in ((ROOT / "fastcos", "fastcos"), (ROOT / "kernels", "fastcos/kernels")):
        files |= {
            f"{name}/{path.relative_to(folder)}"
            for path in folder.rglob("*.py")
            if name != "fastcos" or "kernels" not in path.relative_to(folder).parts
        }
    return files


def test_packages_are_folders_with_an_init():
    folders = {Path(name).parent for name in modules() if name.endswith("/__init__.py")}
    assert sorted(SETUPTOOLS["packages"]) == sorted(".".join(folder.parts) for folder in folders)


def test_folders_with_python_files_have_an_init():
    names = modules()
    for name in names:
        assert f"{Path(name).parent}/__init__.py" in names


@IN_A_CLONE
def test_repository_has_no_symbolic_link():
    listed = subprocess.run(
        ["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout  # fmt: skip
    assert [line for line in listed.splitlines() if line.startswith("120000 ")] == []


def test_version_is_the_same_everywhere():
    version = PROJECT["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text("utf8")
    assert f"\nversion: {version}\n" in citation
    assert f"\n## {version}," in (ROOT / "CHANGELOG.md").read_text("utf8")
    assert f'\n  version: "{version}"\n' in (ROOT / "conda/recipe.yaml").read_text("utf8")


def test_conda_recipe_has_the_same_requirements():
    recipe = (ROOT / "conda/recipe.yaml").read_text("utf8")
    requirements = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    results = {line.strip("- ").replace(" ", "") for line in requirements.splitlines()}
    extras = PROJECT["project"]["optional-dependencies"]
    drawn = [one for one in extras["plots"] + extras["cli"] if not one.startswith("fastcos")]
    expected = {one.replace("matplotlib", "matplotlib-base") for one in DEPENDENCIES + drawn}
    assert results == expected | {f"python{PROJECT['project']['requires-python']}"}


def test_import_kernels_by_folder_name_is_refused():
    done = subprocess.run(
        [sys.executable, "-c", "import kernels"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "ImportError: import fastcos.kernels, not 'kernels'" in done.stderr


def test_requirements_have_lower_bounds_and_only_numba_an_upper_one():
    for requirement in PROJECT["project"]["dependencies"]:
        assert ">=" in requirement
        assert ("<" in requirement) == requirement.startswith("numba")
        assert "==" not in requirement


# Each key is the name of a package. The value is the name of the distribution that provides the
# package.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow", "yaml": "pyyaml"}
# fastcos does not depend on these packages. If the caller has imported one of them, fastcos may
# recognise objects of its types. For the other packages, fastcos contains adapters.
OF_THE_CALLER = {"langchain_core", "mteb", "scanpy", "torch", "vicinity", "anndata"}


def test_imported_packages_are_declared():
    extras = PROJECT["project"]["optional-dependencies"].values()
    declared = {
        re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")
        for requirement in itertools.chain(DEPENDENCIES, *extras)
    }
    missing = {}
    for path in [*(ROOT / "fastcos").rglob("*.py"), *(ROOT / "kernels").glob("*.py")]:
        for node in sources.nodes(sources.parsed(path), ast.Import, ast.ImportFrom):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in (name.partition(".")[0] for name in names):
                known = DISTRIBUTIONS.get(name, name).lower().replace("_", "-")
                is_ours = name == "fastcos" or name in sys.stdlib_module_names
                if not is_ours and name not in OF_THE_CALLER and known not in declared:
                    missing.setdefault(known, []).append(f"{path.name}:{node.lineno}")
    assert not missing


def test_oldest_python_is_the_declared_one():
    assert PROJECT["project"]["requires-python"] == ">=3.11"


def build(tmp_path, kind):
    """Build from a copy of the files that git would commit, so that leftovers have no effect."""
    pytest.importorskip("build", reason="build is not installed")
    source = tmp_path / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    ).stdout.split("\n")  # fmt: skip
    for name in filter(None, listed):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            target.write_bytes((ROOT / name).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "build", f"--{kind}", "--outdir", tmp_path / "dist", source],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (built,) = (tmp_path / "dist").iterdir()
    return built


@IN_A_CLONE
@pytest.mark.slow
def test_wheel_holds_each_module_once(tmp_path):
    with zipfile.ZipFile(build(tmp_path, "wheel")) as wheel:
        names = wheel.namelist()
        assert len(names) == len(set(names))
        code = {name for name in names if ".dist-info/" not in name}
        assert code == modules() | {
            "fastcos/py.typed",
            "fastcos/kernels/native.c",
            *(f"fastcos/plots/html/{name}" for name in PAGE_FILES),
        }
        info = next(name.split("/")[0] for name in names if ".dist-info/" in name)
        assert wheel.read(f"{info}/top_level.txt").split() == [b"fastcos"]
        metadata = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
        assert metadata["Name"] == "fastcos"
        assert metadata["License-Expression"] == "MIT"
        assert metadata.get_payload().strip()
        assert b"fastcos = fastcos.cli.main:entry_point" in wheel.read(f"{info}/entry_points.txt")
        assert any(name.endswith("LICENSE") for name in names)


@IN_A_CLONE
@pytest.mark.slow
def test_sdist_holds_each_kernel_once(tmp_path):
    with tarfile.open(build(tmp_path, "sdist")) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert len(names) == len(set(names))
    kernels = {f"kernels/{path.name}" for path in (ROOT / "kernels").glob("*.py")}
    assert kernels <= set(names)
    assert not [name for name in names if name.startswith("fastcos/kernels/")]
    assert {"pyproject.toml", "README.md", "LICENSE"} <= set(names)
