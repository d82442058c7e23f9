"""Exact similarity search at scale, and an audit of what cosine similarity means.

``ARCHITECTURE.md``, at the top of the repository, lists the packages from the lowest layer to the
highest: what each of them contains, and which packages it may import.

A name is imported when it is first used, so that ``import fastcos`` is fast. The modules of
``linalg``, ``parallel``, ``search``, ``similarity``, ``storage`` and ``validation`` import only
NumPy and the standard library at the top of their files. These modules import SciPy, scikit-learn
and other packages only inside functions, or under ``TYPE_CHECKING`` for annotations. The exception
is ``search.transformer``, because its class inherits from scikit-learn classes.
"""

import contextlib
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastcos import metrics as metrics
    from fastcos.auditing.alignment import align as align
    from fastcos.auditing.calibration.calibrate import calibrate as calibrate
    from fastcos.auditing.certificates import certified_neighbors as certified_neighbors
    from fastcos.auditing.item_audit import audit as audit
    from fastcos.comparison import compare as compare, compare_vectors as compare_vectors
    from fastcos.config import get_config as get_config, set_config as set_config
    from fastcos.io import from_model as from_model, read_interactions as read_interactions
    from fastcos.linalg.products import (
        gram_matmul as gram_matmul,
        matmul as matmul,
        rmatmul as rmatmul,
    )
    from fastcos.linalg.svd import (
        SVD as SVD,
        randomized_svd as randomized_svd,
        svd_residuals as svd_residuals,
    )
    from fastcos.models.cosine_mf import CosineMF as CosineMF
    from fastcos.models.linear_mf import LinearMF as LinearMF
    from fastcos.models.simulation import simulate_interactions as simulate_interactions
    from fastcos.search.explain import explain_top_k as explain_top_k
    from fastcos.search.index import SimilarityIndex as SimilarityIndex
    from fastcos.search.range_search import neighbors_above as neighbors_above
    from fastcos.search.rerank import rerank as rerank
    from fastcos.search.results import Neighbors as Neighbors
    from fastcos.search.score_blocks import similarity_blocks as similarity_blocks
    from fastcos.search.top_k import top_k as top_k
    from fastcos.search.transformer import NeighborsTransformer as NeighborsTransformer
    from fastcos.similarity import get_measure as get_measure, list_measures as list_measures
    from fastcos.similarity.canonical import (
        canonicalize as canonicalize,
        query_metric as query_metric,
    )
    from fastcos.similarity.rescalings import Rescaling as Rescaling, rescalings as rescalings

    __version__: str

_NAMES_OF = {
    "auditing.alignment": ("align",),
    "auditing.certificates": ("certified_neighbors",),
    "auditing.item_audit": ("audit",),
    "auditing.calibration.calibrate": ("calibrate",),
    "comparison": ("compare", "compare_vectors"),
    "config": ("get_config", "set_config"),
    "models.simulation": ("simulate_interactions",),
    "io": ("from_model", "read_interactions"),
    "linalg.products": ("gram_matmul", "matmul", "rmatmul"),
    "linalg.svd": ("SVD", "randomized_svd", "svd_residuals"),
    "similarity": ("get_measure", "list_measures"),
    "models.cosine_mf": ("CosineMF",),
    "models.linear_mf": ("LinearMF",),
    "search.score_blocks": ("similarity_blocks",),
    "search.explain": ("explain_top_k",),
    "search.index": ("SimilarityIndex",),
    "search.range_search": ("neighbors_above",),
    "search.rerank": ("rerank",),
    "search.results": ("Neighbors",),
    "search.top_k": ("top_k",),
    "search.transformer": ("NeighborsTransformer",),
    "similarity.canonical": ("canonicalize", "query_metric"),
    "similarity.rescalings": ("Rescaling", "rescalings"),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}

# These packages are attributes of fastcos, so that "import fastcos" is enough to use them.
_PACKAGES = {
    "auditing", "comparison", "distributed", "io", "linalg", "metrics", "models",
    "plots", "search", "similarity", "storage",
}  # fmt: skip

__all__ = [*sorted(_MODULE_OF), "metrics"]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"fastcos.{name}")
    if name == "__version__":
        return import_module("importlib.metadata").version("fastcos")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fastcos' has no attribute {name!r}{_package_hint(name)}")
    value = getattr(import_module(f"fastcos.{_MODULE_OF[name]}"), name)
    globals()[name] = value  # Later accesses to this name do not call __getattr__.
    return value


def _package_hint(name: str) -> str:
    """Return a hint that says which subpackage exports `name`; "" if no subpackage exports it."""
    from importlib.util import find_spec

    # "from fastcos import config" calls __getattr__ before it imports the module config. For the
    # name of a module, the function returns no hint. For any other name, find_spec returns None.
    if not name.startswith("_") and find_spec(f"fastcos.{name}") is None:
        for package in ("search", "metrics", "auditing", "similarity", "models", "io"):
            with contextlib.suppress(ImportError):  # A dependency may not be installed.
                if name in import_module(f"fastcos.{package}").__all__:
                    return f" (use fastcos.{package}.{name})"
    return ""


def __dir__() -> list[str]:
    return __all__
