"""The compiled loops, which lie in the folder ``kernels`` beside ``fastcos``.

This file lets a clone that nothing has built import them as ``fastcos.kernels``. A wheel does not
contain it: there, ``kernels/__init__.py`` itself is installed in its place.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

__path__ = [str(Path(__file__).parents[2] / "kernels")]

if TYPE_CHECKING:  # type checkers look for submodules beside this file, and find none

    def __getattr__(name: str) -> Any: ...
