"""Which model made the rows of an index, and whether it embeds the same today."""

import numpy as np
import pytest

from fastcos import SimilarityIndex, calibrate
from fastcos.cli.main import main

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
    with pytest.raises(ValueError, match=r"^model must be of the model 'minilm@2' .*'minilm@3'$"):
        SimilarityIndex.open(path, model="minilm@3")
    with pytest.raises(TypeError, match="model must be a name"):
        SimilarityIndex(model=3)


def test_index_refuses_a_calibration_of_another_model(path):
    index = SimilarityIndex.open(path)
    for version, is_same in (("2", True), ("3", False), (None, True)):
        name = None if version is None else "minilm"
        rate = calibrate(ROWS, fpr=0.01, model=name, model_version=version)
        for call in (
            lambda rate=rate: index.search(ROWS[:2], 3, min_score=rate),
            lambda rate=rate: index.radius(ROWS[:2], rate),
            lambda rate=rate: index.near_duplicates(rate),
        ):
            if is_same:
                call()
                continue
            with pytest.raises(ValueError, match=r"of the model 'minilm@2' .* got 'minilm@3'"):
                call()


def test_canaries_tell_whether_the_model_embeds_the_same(path):
    index = SimilarityIndex.open(path)
    same = index.check_canaries(CANARIES.astype(np.float32) * 3)
    np.testing.assert_allclose(same, 1, atol=1e-6)
    other = CANARIES.copy()
    other[3] = np.roll(other[3], 1)
    with pytest.raises(ValueError, match=r"as the model minilm@2 embedded them, got .* canary 3"):
        index.check_canaries(other)
    assert index.check_canaries(other, least=-1)[3] < 0.99
    with pytest.raises(ValueError, match="rows must be of the 5 canaries, got 4"):
        index.check_canaries(CANARIES[:4])
    index.remove([0])
    index.save(path)  # they stay
    assert len(SimilarityIndex.open(path, verify=True).check_canaries(CANARIES)) == 5
    with pytest.raises(ValueError, match="canaries must be given to save"):
        SimilarityIndex().fit(ROWS).check_canaries(CANARIES)


def test_model_is_kept_and_compared_from_the_shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("items.npz", ids=np.arange(5, 205), vectors=ROWS)
    assert main(["index", "build", "items.npz", "ix", "--model", "minilm@2"]) == 0
    assert main(["index", "add", "ix", "items.npz", "--model", "minilm@2"]) == 0
    for words in (["add", "ix", "items.npz"], ["search", "ix", "--show", "7"]):
        assert main(["index", *words, "--model", "mpnet@1"]) == 2
        assert "--model must be of the model 'minilm@2'" in capsys.readouterr().err
