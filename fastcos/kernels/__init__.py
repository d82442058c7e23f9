"""The package of compiled loops, whose source is in the folder ``kernels`` beside ``fastcos``.

In a clone, this file makes the folder ``kernels`` importable as ``fastcos.kernels``. A wheel does
not contain this file, because in a wheel the folder ``kernels`` itself is ``fastcos/kernels``.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

__path__ = [str(Path(__file__).parents[2] / "kernels")]

if TYPE_CHECKING:  # Type checkers do not read __path__, so they would not find the submodules.

    def __getattr__(name: str) -> Any: ...
