"""Extract and install the two commits that are compared."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = ".benchgate"
# The number of commits that stay installed for the next run; folders of older runs are deleted.
MAX_FOLDERS = 4
# Packages that the environment of a project needs in addition to its own requirements.
TEST_PACKAGES = ("pytest", "pytest-benchmark>=5")


class UsageError(ValueError):
    """Raised if the user named something that does not exist; the exit status is then 2."""


def git(*arguments):
    """Return the output of a git command."""
    process = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return process.stdout.strip()


class Checkout:
    """The files of one commit in a separate folder, and the environment that runs them."""

    def __init__(self, revision, role, root):
        if revision == "WORKTREE":
            # git stash create makes a commit of changed files without moving the branch or the index.
            revision = git("-C", str(root), "stash", "create") or "HEAD"
        try:
            self.commit = git("-C", str(root), "rev-parse", "--verify", f"{revision}^{{commit}}")
        except subprocess.CalledProcessError:
            raise UsageError(f"{role.upper()} must be a commit of this repository, got {revision}") from None
        self.folder = root / FOLDER / f"{role}-{self.commit[:12]}"
        self.sources = self.folder / "sources"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.touch()  # prune keeps the folders with the newest modification times
        (root / FOLDER / ".gitignore").write_text("*\n")
        self.archive = self.folder / "sources.tar"
        if not self.archive.exists():
            git("-C", str(root), "archive", "--output", str(self.archive), self.commit)

    def restore(self, paths):
        """Extract the files of the commit, after removing the files that an earlier run copied to `paths`."""
        for path in paths:
            remove(self.sources / path)
        self.sources.mkdir(exist_ok=True)
        subprocess.run(["tar", "-xf", str(self.archive), "-C", str(self.sources)], check=True)

    def install(self, python, requirements):
        """Return an interpreter that has the requirements; without requirements, return ``python``."""
        if not requirements:
            return Path(python)
        home = self.folder / "venv"
        interpreter = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        mark = home / "installed"
        requirements_text = "\n".join(requirements)
        if not mark.exists() or mark.read_text() != requirements_text:
            shutil.rmtree(home, ignore_errors=True)
            _run([str(python), "-m", "venv", str(home)], self.sources)
            _run(
                [str(interpreter), "-m", "pip", "install", "--quiet", *requirements, *TEST_PACKAGES],
                self.sources,
            )
            mark.write_text(requirements_text)
        return interpreter


def _run(command, folder):
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode:
        lines = [line for line in (process.stderr + process.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
        raise OSError(f"{' '.join(command[2:4])} failed: {(errors or lines or ['no output'])[-1].strip()}")


def root_of_repository():
    """Return the folder of the Git repository that the working directory is in."""
    try:
        return Path(git("rev-parse", "--show-toplevel"))
    except subprocess.CalledProcessError:
        raise UsageError(f"the working directory must be in a Git repository, got {Path.cwd()}") from None


def remove(path):
    """Remove a file or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def test_paths(arguments, *checkouts):
    """Return those arguments of pytest that name a file or a folder in at least one commit."""
    words = [word.partition("::")[0] for word in arguments if not word.startswith("-")]
    paths = [
        word
        for word in dict.fromkeys(words)
        if any((checkout.sources / word).exists() for checkout in checkouts)
    ]
    if words and not paths and words == list(arguments):  # without options, every word must be a path
        raise UsageError(f"TESTS must be files or folders of one of the commits, got {' '.join(words)}")
    for path in paths:
        # Files outside the checkout belong to the user and must not be replaced.
        if Path(path).is_absolute() or ".." in Path(path).parts or not Path(path).parts:
            raise UsageError(f"TESTS must be files or folders inside the repository, got {path}")
    return paths


def copy_tests(paths, source, target):
    """Replace the tests of one commit by those of another, so that both commits run the same benchmarks.

    The conftest.py files of the folders above the tests are copied, too, because tests use their
    fixtures.
    """
    for path in paths:
        tests_of_source, tests_of_target = source.sources / path, target.sources / path
        remove(tests_of_target)
        if tests_of_source.is_dir():
            shutil.copytree(tests_of_source, tests_of_target, symlinks=True)
        elif tests_of_source.exists():
            tests_of_target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tests_of_source, tests_of_target)
        for parent in Path(path).parents:
            conftest = source.sources / parent / "conftest.py"
            if conftest.exists():
                (target.sources / parent).mkdir(parents=True, exist_ok=True)
                shutil.copy(conftest, target.sources / parent / "conftest.py")


def prune(root):
    """Delete the folders of all commits except the MAX_FOLDERS folders with the newest modification times."""
    folders = [path for path in (root / FOLDER).iterdir() if path.is_dir()]
    folders.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for folder in folders[MAX_FOLDERS:]:
        shutil.rmtree(folder, ignore_errors=True)
