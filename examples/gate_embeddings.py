"""Compare retrained embeddings with an old version; exit with 1 if the neighbours changed too much.

    python examples/gate_embeddings.py old.npz new.npz --min-jaccard 0.6

Each file contains the arrays ``users`` (n, k) and ``items`` (p, k) of one training run. The script
prints three numbers: how much the predictions changed, whether the items span the same space (CCA
similarity), and how similar the neighbours by cosine are (Jaccard@10). If the neighbours changed,
but the predictions and the space stayed the same, the new version is a rescaled copy of the old
model. A rescaling does not change the canonical form of a model. The script therefore prints the
same three numbers for the canonical forms of the two versions. The exit status depends on how
similar the neighbours in the canonical forms are. Without files, the script shows an example.
"""

import argparse
import sys
from typing import NamedTuple

import numpy as np

import fastcos


class Version(NamedTuple):
    """The embeddings of one training run."""

    users: np.ndarray
    items: np.ndarray


class Change(NamedTuple):
    """The differences between two versions.

    predictions: the relative change of the predictions. space: the CCA similarity of the items.
    neighbors: the Jaccard index of the neighbour lists.
    """

    predictions: float
    space: float
    neighbors: float

    def __str__(self) -> str:
        """Return the three numbers as one line of text."""
        return (
            f"predictions changed by {self.predictions:.1%}, "
            f"CCA similarity {self.space:.3f}, Jaccard@10 {self.neighbors:.3f}"
        )


def change(old: Version, new: Version, k: int = 10) -> Change:
    """Compare two versions; row i of both versions belongs to the same user or item."""
    lists = [fastcos.top_k(version.items, k=k).indices for version in (old, new)]
    return Change(
        fastcos.metrics.model_change(*old, *new).relative,
        fastcos.metrics.cca_similarity(old.items, new.items),
        fastcos.metrics.jaccard_at_k(*lists),
    )


def canonical(version: Version) -> Version:
    """Return the canonical form, which makes the same predictions and is unique up to signs."""
    return Version(*fastcos.canonicalize(version.users, version.items)[:2])


def demonstration() -> list[Version]:
    """Return a model as it was trained, and a rescaled copy of it."""
    X = fastcos.simulate_interactions(400, 120, random_state=0).X
    model = fastcos.LinearMF(12).fit(X)
    return [
        Version(model.user_embeddings(X, rescaling), model.item_embeddings(rescaling))
        for rescaling in ("identity", "smoothed")
    ]


def main() -> int:
    """Compare two versions, print the differences, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", help="old.npz new.npz")
    parser.add_argument("--min-jaccard", type=float, default=0.6, metavar="SHARE")
    given = parser.parse_args()
    if given.files:
        versions = [Version(*(np.load(f)[name] for name in Version._fields)) for f in given.files]
    else:
        versions = demonstration()
    print("as trained:", change(*versions))
    found = change(*map(canonical, versions))
    print("canonical :", found)
    if found.neighbors < given.min_jaccard:
        print(f"failed: Jaccard@10 is less than {given.min_jaccard:g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
