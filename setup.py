"""Wheels with compiled kernels: FASTCOS_BUILD_NATIVE=1 pip wheel . (else a wheel of Python only).

The variable may also name tiers of CPUs, separated by commas; see docs/dev/native.md.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

TIERS = [tier for tier in os.environ.get("FASTCOS_BUILD_NATIVE", "0").split(",") if tier]
IS_NATIVE = TIERS not in ([], ["0"])
PROJECT = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text("utf8"))


class BuildWithLibraries(build_py):
    """Compile the copy of the sources that goes into the wheel."""

    def run(self):
        """Copy the sources without libraries of an earlier build; compile where required."""
        super().run()
        for left_over in Path(self.build_lib, "fastcos", "kernels").glob("*.so"):
            left_over.unlink()
        if not IS_NATIVE:
            return
        tiers = [] if TIERS == ["1"] else TIERS
        # saving an index reads the version, which an isolated build finds in the egg-info here
        paths = [os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent.absolute())]
        subprocess.run(
            [sys.executable, "-m", "fastcos.kernels.build", "fastcos/kernels", *tiers],
            cwd=self.build_lib,  # whose fastcos is imported
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            check=True,
        )


class NativeDistribution(Distribution):
    """Libraries belong where a platform's files are installed, and need no Numba: an extra."""

    def parse_config_files(self, *arguments, **keywords):
        """Read pyproject.toml; of a wheel with libraries, the extra `compile` has Numba."""
        super().parse_config_files(*arguments, **keywords)
        if IS_NATIVE:
            required = PROJECT["project"]["dependencies"]
            required = [one for one in required if not one.startswith(("numba", "llvmlite"))]
            self.install_requires = self.metadata.install_requires = required

    def has_ext_modules(self):
        """Return whether files are of a platform."""
        return IS_NATIVE


class PlatformWheel(bdist_wheel):
    """With libraries, a wheel of one platform for every Python: they do not call it."""

    def get_tag(self):
        """Return Python, ABI and platform."""
        return ("py3", "none", super().get_tag()[2]) if IS_NATIVE else super().get_tag()


build_requirements = []
if IS_NATIVE:  # operations are run, to learn what they compile
    build_requirements = [*PROJECT["project"]["dependencies"], "ml_dtypes"]
setup(
    distclass=NativeDistribution,
    cmdclass={"build_py": BuildWithLibraries, "bdist_wheel": PlatformWheel},
    setup_requires=build_requirements,
)
