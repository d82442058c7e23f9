"""The labels that a verb has read: as arguments, as provenance, in words."""

from typing import Any

from fastcos.io import ItemLabels


def labels_or_none(labelled: ItemLabels) -> list[str | None]:
    """Labels as compare takes them."""
    return [None if code < 0 else str(labelled.classes[code]) for code in labelled.labels]


def counts_of_labels(labelled: ItemLabels) -> dict[str, Any]:
    """What goes into the provenance."""
    return {
        "classes": labelled.classes.tolist(),
        "labelled": int((labelled.labels >= 0).sum()),
        "left_out_several": labelled.n_several,
        "left_out_none": labelled.n_none,
        "left_out_other": labelled.n_other,
        "unknown_items_in_file": labelled.n_unknown,
    }


def told_of_labels(labelled: ItemLabels) -> str:
    """What was read, in a line."""
    return (
        f"labels: {(labelled.labels >= 0).sum():,} items in {len(labelled.classes)} classes; "
        f"left out {labelled.n_several:,} with several labels, {labelled.n_none:,} with none, "
        f"{labelled.n_other:,} with another; {labelled.n_unknown:,} items of the file have no "
        "interactions"
    )
