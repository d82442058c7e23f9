"""Build a wheel of Python code only, or a wheel that also contains compiled kernels.

To compile the kernels, run ``FASTCOS_BUILD_NATIVE=1 pip wheel .``. Instead of 1, the variable may
contain the names of tiers of CPUs, separated by commas (docs/dev/native.md).
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
        """Copy the sources, delete libraries of earlier builds, and compile kernels if required."""
        super().run()
        for left_over in Path(self.build_lib, "fastcos", "kernels").glob("*.so"):
            left_over.unlink()
        if not IS_NATIVE:
            return
        tiers = [] if TIERS == ["1"] else TIERS
        # The build saves an index, and saving looks up the version of fastcos. In an isolated
        # build, Python finds the version in the egg-info folder, which lies beside this file.
        paths = [os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent.absolute())]
        subprocess.run(
            [sys.executable, "-m", "fastcos.kernels.build", "fastcos/kernels", *tiers],
            cwd=self.build_lib,  # Python imports the fastcos that was just built in this folder.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            check=True,
        )


class NativeDistribution(Distribution):
    """A distribution; if it contains compiled libraries, it is specific to one platform.

    A wheel that contains compiled libraries works without Numba. Users of such a wheel get Numba
    only if they install the extra `compile`.
    """

    def parse_config_files(self, *arguments, **keywords):
        """Read pyproject.toml; a wheel with libraries requires neither Numba nor llvmlite."""
        super().parse_config_files(*arguments, **keywords)
        if IS_NATIVE:
            required = PROJECT["project"]["dependencies"]
            required = [one for one in required if not one.startswith(("numba", "llvmlite"))]
            self.install_requires = self.metadata.install_requires = required

    def has_ext_modules(self):
        """Return whether the wheel contains files that only work on one platform."""
        return IS_NATIVE


class PlatformWheel(bdist_wheel):
    """A wheel whose file name states the versions of Python and the platform that it supports.

    A wheel with libraries is for one platform, but for every version of Python 3, because the
    libraries do not call Python.
    """

    def get_tag(self):
        """Return the tags of Python, of the ABI (binary interface) and of the platform."""
        return ("py3", "none", super().get_tag()[2]) if IS_NATIVE else super().get_tag()


build_requirements = []
if IS_NATIVE:  # The build runs operations, to find out which kernels they compile.
    build_requirements = [*PROJECT["project"]["dependencies"], "ml_dtypes"]
setup(
    distclass=NativeDistribution,
    cmdclass={"build_py": BuildWithLibraries, "bdist_wheel": PlatformWheel},
    setup_requires=build_requirements,
)
