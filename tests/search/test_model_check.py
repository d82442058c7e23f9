"""An index knows which model made its rows, and checks whether the model has changed."""

import numpy as np
import pytest

from fastcos import SimilarityIndex, calibrate
from fastcos.auditing import Calibration
from fastcos.cli.main import main
from fastcos.models import LinearMF
from fastcos.storage import FastcosFormatError, OccupiedError

ROWS = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
CANARIES = np.random.default_rng(1).standard_normal((5, 8))


@pytest.fixture
def path(tmp_path):
    SimilarityIndex(model="minilm@2").fit(ROWS).save(tmp_path / "index", canaries=CANARIES)
    return tmp_path / "index"


def test_index_keeps_the_name_of_its_model(path):
    assert SimilarityIndex.open(path).model == "minilm@2"
    assert SimilarityIndex.open(path, model="minilm@2").model == "minilm@2"
    assert "of minilm@2" in repr(SimilarityIndex.open(path))
    with pytest.raises(
        ValueError,
        match=r"^model must be of the same model as the index \('minilm@2'\), got 'minilm@3'$",
    ):
        SimilarityIndex.open(path, model="minilm@3")
    with pytest.raises(TypeError, match="model must be a name"):
        SimilarityIndex(model=3)


def test_index_refuses_a_calibration_of_another_model(path):
    index = SimilarityIndex.open(path)
    for name, is_same in (("minilm@2", True), ("minilm@3", False), (None, True)):
        rate = calibrate(ROWS, fpr=0.01, model=name)
        for call in (
            lambda rate=rate: index.search(ROWS[:2], 3, min_score=rate),
            lambda rate=rate: index.radius(ROWS[:2], rate),
            lambda rate=rate: index.near_duplicates(rate),
        ):
            if is_same:
                call()
                continue
            with pytest.raises(ValueError, match=r"as the index \('minilm@2'\), got 'minilm@3'"):
                call()


def test_index_without_a_name_is_not_opened_for_a_model(tmp_path):
    index = SimilarityIndex().fit(ROWS)
    index.save(tmp_path / "index")
    with pytest.raises(
        ValueError, match=r"^model must be None for an index .* got 'minilm@2'\. To "
    ):
        SimilarityIndex.open(tmp_path / "index", model="minilm@2")
    index.model = "minilm@2"  # as the message says
    index.save(tmp_path / "index")
    assert SimilarityIndex.open(tmp_path / "index", model="minilm@2").model == "minilm@2"
    for name in ("", " "):
        with pytest.raises(ValueError, match=r"^model must be a name such as .*, got ' ?'$"):
            SimilarityIndex(model=name)
        with pytest.raises(ValueError, match=r"^model must be a name such as .*, got ' ?'$"):
            calibrate(ROWS, model=name)


OTHERS = {
    "another name": ("minilm@3", ROWS[:, ::-1]),
    "no name": (None, ROWS[:, ::-1]),
    "another width": ("minilm@2", ROWS[:, :5]),
}


@pytest.mark.parametrize("other", OTHERS)
def test_index_of_another_model_replaces_none(path, other):
    name, rows = OTHERS[other]
    before = [file.read_bytes() for file in sorted(path.iterdir())]
    index = SimilarityIndex(model=name).fit(rows)
    with pytest.raises(
        OccupiedError, match=r"^the index must be of the same model as the index saved"
    ):
        index.save(path)
    assert [file.read_bytes() for file in sorted(path.iterdir())] == before
    index.save(path, replace=True)
    assert SimilarityIndex.open(path).model == name
    with pytest.raises(ValueError, match="replace must be True or False, got 'yes'"):
        index.save(path, replace="yes")


@pytest.mark.parametrize("other", OTHERS)
def test_refresh_keeps_items_of_the_model_it_has(path, other):
    name, rows = OTHERS[other]
    readers = [SimilarityIndex.open(path, model="minilm@2"), SimilarityIndex.open(path)]
    before = readers[0].search(ROWS[:20], 5)
    SimilarityIndex(model=name).fit(rows).save(path, replace=True)
    for reader in readers:
        for _ in range(2):
            with pytest.raises(
                ValueError, match=r"must hold an index of the same model as this index"
            ):
                reader.refresh()
            assert reader.model == "minilm@2"
            after = reader.search(ROWS[:20], 5)
            np.testing.assert_array_equal(after.ids, before.ids)
            np.testing.assert_array_equal(after.scores, before.scores)
        reader.remove([3])
        with pytest.raises(OccupiedError, match="changed by another writer"):
            reader.save(path)
    # After the job has been corrected, readers accept its index.
    SimilarityIndex(model="minilm@2").fit(ROWS[:50]).save(path, replace=True)
    assert readers[0].refresh()
    assert len(readers[0]) == 50


def test_save_and_refresh_respect_the_width_without_names(tmp_path):
    path = tmp_path / "index"
    SimilarityIndex().fit(ROWS).save(path)
    reader = SimilarityIndex.open(path)
    with pytest.raises(
        OccupiedError, match=r"a model with 8 columns\), got 5 columns\. The saved index"
    ):
        SimilarityIndex().fit(ROWS[:, :5]).save(path)
    SimilarityIndex().fit(ROWS[:, :5]).save(path, replace=True)
    with pytest.raises(
        ValueError, match=r"this index \(a model with 8 columns\), got 5 columns\. Nothing"
    ):
        reader.refresh()
    assert reader.search(ROWS[7], 1).ids.tolist() == [[7]]


def test_names_may_be_given_later_but_not_dropped(tmp_path):
    path = tmp_path / "index"
    SimilarityIndex().fit(ROWS).save(path)
    reader = SimilarityIndex.open(path)
    SimilarityIndex(model="minilm@2").fit(ROWS[:100]).save(path)
    assert reader.refresh()
    assert reader.model == "minilm@2"
    with pytest.raises(OccupiedError, match=r"the model 'minilm@2'\), got 'minilm@3'\. "):
        SimilarityIndex(model="minilm@3").fit(ROWS).save(path)


def test_index_replaces_nothing_of_another_kind(tmp_path):
    LinearMF(2, random_state=0).fit(np.abs(ROWS)).save(tmp_path / "model")
    with pytest.raises(
        FastcosFormatError, match="must be a saved SimilarityIndex, got a saved Lin"
    ):
        SimilarityIndex().fit(ROWS).save(tmp_path / "model")
    assert LinearMF.load(tmp_path / "model").components_.shape == (2, 8)


def test_canaries_tell_whether_the_model_embeds_the_same(path):
    index = SimilarityIndex.open(path)
    same = index.check_canaries(CANARIES.astype(np.float32) * 3)
    np.testing.assert_allclose(same, 1, atol=1e-6)
    other = CANARIES.copy()
    other[3] = np.roll(other[3], 1)
    with pytest.raises(
        ValueError, match=r"embedded by the model minilm@2, but the new row of canary 3 and"
    ):
        index.check_canaries(other)
    assert index.check_canaries(other, min_cosine=-1)[3] < 0.99
    with pytest.raises(ValueError, match=r"rows must contain one row per canary \(5 rows\), got 4"):
        index.check_canaries(CANARIES[:4])
    index.remove([0])
    index.save(path)  # they stay
    assert len(SimilarityIndex.open(path, verify=True).check_canaries(CANARIES)) == 5
    with pytest.raises(ValueError, match="min_cosine must be a finite number, got None"):
        index.check_canaries(CANARIES, min_cosine=None)
    with pytest.raises(ValueError, match="canaries must be saved with the index"):
        SimilarityIndex().fit(ROWS).check_canaries(CANARIES)


def test_canaries_are_copied(tmp_path):
    canaries, index = CANARIES.copy(), SimilarityIndex().fit(ROWS)
    index.save(tmp_path / "index", canaries=canaries)
    canaries[:] = canaries[::-1].copy()
    index.check_canaries(CANARIES)
    index.save(tmp_path / "index")
    SimilarityIndex.open(tmp_path / "index").check_canaries(CANARIES)


@pytest.mark.slow
def test_model_is_kept_and_compared_from_the_shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("items.npz", ids=np.arange(5, 205), vectors=ROWS)
    assert main(["index", "build", "items.npz", "ix", "--model", "minilm@2"]) == 0
    assert main(["index", "add", "ix", "items.npz", "--model", "minilm@2"]) == 0
    for words in (["add", "ix", "items.npz"], ["search", "ix", "--show", "7"]):
        assert main(["index", *words, "--model", "mpnet@1"]) == 2
        assert (
            "--model must be of the same model as the index ('minilm@2')" in capsys.readouterr().err
        )
    assert main(["index", "build", "items.npz", "nameless"]) == 0
    assert main(["index", "add", "nameless", "items.npz", "--model", "mpnet@1"]) == 2
    assert "--model must be left out for an index" in capsys.readouterr().err
    assert main(["calibrate", "items.npz", "--sample", "50", "--model", "minilm@2"]) == 0
    assert Calibration.load("calibration").model == "minilm@2"
