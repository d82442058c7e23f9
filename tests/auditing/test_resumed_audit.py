"""An audit that was stopped goes on from its last finished part, to the same card."""

import json

import numpy as np
import pytest

from fastcos import config, storage
from fastcos.auditing import embeddings, variant_scores
from fastcos.auditing.embeddings import audit
from fastcos.storage import checkpoint

K = 5


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(checkpoint, "_WORK_OF_A_THREAD", 1)  # 1,024 items, the fewest


@pytest.fixture(scope="module")
def asked():
    rng = np.random.default_rng(0)
    items = rng.standard_normal((3000, 6)).astype(np.float32)
    items[5] = 0
    labels = [None if i % 7 == 0 else "abc"[i % 3] for i in range(len(items))]
    users = rng.standard_normal((200, 6))
    return {"items": items, "users": users, "labels": labels, "popularity": np.arange(3000.0)}


@pytest.fixture(scope="module")
def expected(asked):
    return text_of(audit(k=K, **asked))


def text_of(card):
    return json.dumps(card.to_dict())


class Stop(Exception):
    pass


def stop_at(share):
    def progress(done, total):
        if done >= share * total:
            raise Stop

    return progress


def stopped_after(monkeypatch, calls, owner, name):
    """Let a function raise after so many calls."""
    made, left = getattr(owner, name), [calls]

    def stopping(*given, **named):
        if not left[0]:
            raise Stop
        left[0] -= 1
        return made(*given, **named)

    monkeypatch.setattr(owner, name, stopping)


def never(*given, **named):
    raise AssertionError("made again")


def test_an_audit_that_is_kept_has_the_card_of_one_that_is_not(asked, expected, tmp_path):
    assert text_of(audit(k=K, **asked, out=tmp_path / "out")) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_search_that_was_stopped_goes_on_from_its_last_block(asked, expected, tmp_path, share):
    with pytest.raises(Stop):
        audit(k=K, **asked, out=tmp_path / "out", progress=stop_at(share))
    told = []
    card = audit(k=K, **asked, out=tmp_path / "out", progress=lambda *seen: told.append(seen))
    assert text_of(card) == expected
    assert told[0][0] >= (share > 0.4) * 1024  # what is done counts as done
    assert told[-1] == (3000, 3000)


@pytest.mark.parametrize("calls", [0, 1, 4, 7])
def test_parts_that_are_made_are_not_made_again(asked, expected, tmp_path, monkeypatch, calls):
    with monkeypatch.context() as during:
        stopped_after(during, calls, variant_scores.Judge, "compare")
        with pytest.raises(Stop):
            audit(k=K, **asked, out=tmp_path / "out")
    monkeypatch.setattr(embeddings, "survival", never)
    told = []
    with monkeypatch.context() as during:
        stopped_after(during, 8 - calls, variant_scores.Judge, "compare")  # of eight in all
        card = audit(k=K, **asked, out=tmp_path / "out", progress=lambda *seen: told.append(seen))
    assert text_of(card) == expected
    assert not told
    monkeypatch.setattr(variant_scores.Judge, "compare", never)
    assert text_of(audit(k=K, **asked, out=tmp_path / "out")) == expected


def test_rows_on_disk_have_the_same_card_after_a_stop(asked, expected, tmp_path):
    np.save(tmp_path / "items.npy", asked["items"])
    given = asked | {"items": np.load(tmp_path / "items.npy", mmap_mode="r")}
    before = config.get_config().working_memory
    config.set_config(working_memory=1.5)
    try:
        with pytest.raises(Stop):
            audit(k=K, **given, out=tmp_path / "out", progress=stop_at(0.5))
        run = json.loads((tmp_path / "out" / ".neighbors.partial" / "run.json").read_text())
        assert run["block"] < 1500
        assert text_of(audit(k=K, **given, out=tmp_path / "out")) == expected
    finally:
        config.set_config(working_memory=before)


@pytest.mark.parametrize(
    "name", ["items", "users", "labels", "popularity", "k", "condition", "seed"]
)
def test_another_question_is_refused_and_finds_nothing_stale(asked, tmp_path, name):
    small = {key: value[:50] for key, value in asked.items()} | {"k": 3}
    first = audit(**small, out=tmp_path / "out")
    other = {"k": 4, "condition": 1.5, "seed": 1, "labels": None, "users": None}
    other |= {"items": small["items"] * 2, "popularity": small["popularity"] + 1}
    changed = small | {name: other[name]}
    with pytest.raises(ValueError, match=rf"of a run with another {name}; remove it to start anew"):
        audit(**changed, out=tmp_path / "out")
    assert text_of(audit(**changed, out=tmp_path / "new")) == text_of(audit(**changed))
    assert text_of(audit(**small, out=tmp_path / "out")) == text_of(first)


def test_a_directory_that_holds_something_else_or_is_damaged_is_refused(asked, tmp_path):
    small = {"items": asked["items"][:50], "k": 3}
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"out must be a new directory or one with a run\.json"):
        audit(**small, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    audit(**small, out=tmp_path / "out")
    text = (tmp_path / "out" / "run.json").read_text()
    for damaged in ("", "[]", text[: len(text) // 2], text.replace('"parts"', '"carts"')):
        (tmp_path / "out" / "run.json").write_text(damaged)
        with pytest.raises(storage.FastcosFormatError, match=r"run\.json is damaged"):
            audit(**small, out=tmp_path / "out")


def test_one_that_was_killed_as_it_began_is_begun_anew(asked, tmp_path):
    small = {"items": asked["items"][:50], "k": 3}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".run.json").write_text('{"fastcos"')
    assert text_of(audit(**small, out=tmp_path / "out")) == text_of(audit(**small))
    with pytest.raises(checkpoint.CannotBeginError):
        audit(**small, out=tmp_path / "out" / "run.json" / "below")
