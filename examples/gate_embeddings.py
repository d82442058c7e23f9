"""A gate for a pull request that retrains embeddings: exit 1 if the neighbours changed too much.

    python examples/gate_embeddings.py old.npz new.npz --least-jaccard 0.6

Each file holds the arrays ``users`` (n, k) and ``items`` (p, k) of one training. Three numbers say
three things: model_change, whether the predictions changed; CCA similarity, whether items span
the same space; Jaccard@10, whether neighbours by cosine changed. If only the last one moves, the
model is no better and no worse: it is the same one, rescaled, and the remedy is to bring both
versions into canonical form before they are compared or served. Without files: a demonstration.
"""

import argparse
import sys
from typing import NamedTuple

import numpy as np

import fastcos


class Version(NamedTuple):
    """The embeddings of one training."""

    users: np.ndarray
    items: np.ndarray


class Change(NamedTuple):
    """What changed from one version to the next."""

    predictions: float
    space: float
    neighbors: float


def change(old: Version, new: Version, k: int = 10) -> Change:
    """Compare two versions of the same users and items, row by row."""
    lists = [fastcos.top_k(version.items, k=k).indices for version in (old, new)]
    return Change(
        fastcos.metrics.model_change(*old, *new).relative,
        fastcos.metrics.cca_similarity(old.items, new.items),
        fastcos.metrics.jaccard_at_k(*lists),
    )


def told(name: str, found: Change) -> None:
    """Print one line."""
    print(
        f"{name}: predictions changed by {found.predictions:.1%}, "
        f"CCA similarity {found.space:.3f}, Jaccard@10 {found.neighbors:.3f}"
    )


def balanced(version: Version) -> Version:
    """The canonical form: the same predictions, no freedom left but signs."""
    return Version(*fastcos.canonicalize(version.users, version.items)[:2])


def demonstration() -> tuple[Version, Version]:
    """One model twice: as its training left it, and rescaled."""
    X = fastcos.simulate_interactions(400, 120, random_state=0).X
    model = fastcos.LinearMF(12).fit(X)
    return tuple(
        Version(model.user_embeddings(X, rescaling), model.item_embeddings(rescaling))
        for rescaling in ("identity", "smoothed")
    )


def main() -> int:
    """Compare, tell, judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", help="old.npz new.npz")
    parser.add_argument("--least-jaccard", type=float, default=0.6, metavar="SHARE")
    given = parser.parse_args()
    if given.files:
        versions = [Version(*(np.load(f)[name] for name in Version._fields)) for f in given.files]
    else:
        versions = demonstration()
    told("as trained", change(*versions))
    found = change(*map(balanced, versions))
    told("canonical ", found)
    if found.neighbors < given.least_jaccard:
        print(f"failed: Jaccard@10 is less than {given.least_jaccard:g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
