"""fastcos compare, of vectors: which measure follows labels or people's ratings."""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.labels import counts_of_labels, labels_or_none, told_of_labels
from fastcos.cli.leaderboard import show_leaderboard, leaderboard_document, write_leaderboard
from fastcos.cli.model_folder import is_model_folder, read_model_folder
from fastcos.cli.terminal import print_json, progress_bar, say
from fastcos.comparison import Leaderboard
from fastcos.storage import provenance


class _Question(NamedTuple):
    """One question about the vectors: its name, arguments of compare_vectors, provenance."""

    name: str
    arguments: dict[str, Any]
    counts: dict[str, Any]


def compare_vectors_of(given: argparse.Namespace) -> int:
    """Read, compare, write, show; 1 where any question has no answer."""
    from fastcos.comparison import compare_vectors

    measures = options.chosen_measures(given)
    validation.as_choice("--preprocessing", given.preprocessing, ("none",))
    seed = validation.as_count("--seed", given.seed, low=0)
    asked = [given.labels] if given.labels is not None else given.pairs or ()
    if not asked:
        raise ValueError("--labels or --pairs must be given for vectors, got none")
    vectors, ids = _vectors(given.interactions)
    say(f"read {len(vectors):,} vectors of {vectors.shape[1]} numbers")
    questions = _questions(given, ids)
    found: dict[str, Leaderboard] = {}
    for question in questions:
        with progress_bar(f"comparing measures by {question.name}") as progress:
            found[question.name] = compare_vectors(
                vectors,
                **question.arguments,
                measures=measures,
                random_state=seed,
                progress=progress,
            )
    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    parameters = {
        "files": {"vectors": given.interactions, "labels": given.labels, "pairs": given.pairs},
        "n_vectors": len(vectors),
        "seed": seed,
        "questions": {question.name: question.counts for question in questions},
    }
    document = {
        **provenance.provenance(parameters),
        "leaderboard": {name: leaderboard_document(one) for name, one in found.items()},
    }
    written = [path for name, one in found.items() for path in write_leaderboard(one, folder, name)]
    io.write_json(folder / "comparison.json", document)
    if given.json:
        print_json(document)
    else:
        for name, one in found.items():
            show_leaderboard(one, name)
    say("wrote " + ", ".join(str(path) for path in (*written, folder / "comparison.json")))
    return 0 if all(one.beats_chance for one in found.values()) else 1


def _vectors(path: str) -> io.Vectors:
    """The vectors of a file, or of the items of a model under D = I."""
    if not is_model_folder(path):
        return io.read_vectors(path)
    found = read_model_folder(path)
    return io.Vectors(found.model.item_embeddings(), found.ids)


def _questions(given: argparse.Namespace, ids: Any) -> list[_Question]:
    questions: list[_Question] = []
    labelled = options.read_labels(given, ids)
    if labelled is not None:
        say(told_of_labels(labelled))
        questions.append(
            _Question("labels", {"labels": labels_or_none(labelled)}, counts_of_labels(labelled))
        )
    for path in given.pairs or ():
        read = io.read_pairs(path, ids)
        say(f"{path}: {len(read.pairs):,} pairs; {read.n_unknown:,} with an unknown item left out")
        counts = {"file": path, "pairs": len(read.pairs), "left_out_unknown": read.n_unknown}
        questions.append(_Question(Path(path).stem, {"pairs": (read.pairs, read.ratings)}, counts))
    return questions
