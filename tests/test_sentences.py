"""What readers see first has sentences of at most 25 words: README, landing page, audit."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import fastcos

ROOT = Path(__file__).parents[1]
MOST_WORDS = 25


def sentences(text):
    """The sentences of Markdown without code, tables and directives; a list item ends one."""
    text = re.sub(r"<!--.*?-->|^ *```.*?^ *```$", "\n\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(\||:{3,}|:\w|#+ ).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^ *(?:\* -|[-*>]|\d+\.) +", "\n\n", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        joined = " ".join(paragraph.split())
        yield from re.split(r"(?<=[.!?])[*\"')]*\s+(?=[*\"'(`]*[A-Z0-9`])", joined)


def n_words(sentence):
    return sum(any(letter.isalnum() for letter in word) for word in sentence.split())


def too_long(text):
    return [one for one in sentences(text) if n_words(one) > MOST_WORDS]


def test_sentences_end_at_dots_items_and_paragraphs():
    text = "# Title\n\nOne a. Two\nb [see](x.md).\n\n- three c\n- four\n\n"
    text += "```\ncode. Code.\n```\n| a. B |\n"
    found = [one for one in sentences(text) if one]
    assert found == ["One a.", "Two b see.", "three c", "four"]
    assert too_long("word " * 26)
    assert not too_long("word " * 25)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_first_pages_have_short_sentences(page):
    assert too_long((ROOT / page).read_text("utf8")) == []


@pytest.fixture(scope="module")
def reports():
    """Audits with and without users and labels, and the premises that change their sentences."""
    rng = np.random.default_rng(0)
    users, items = rng.standard_normal((60, 4)) * [4, 3, 2, 1], rng.standard_normal((50, 4))
    labels = rng.integers(0, 2, 50)
    found = [fastcos.audit(items, k=3), fastcos.audit(items, users, labels=labels, k=3)]
    recovery = found[1].label_recovery
    variants = [
        {"trained_on": trained, "equal_norms": equal, "parametrization": name}
        for trained in ("dot", "cosine", "unknown")
        for equal in (True, False)
        for name in (None, "balanced")
    ]
    for high in (0.52, 0.95):
        one = dataclasses.replace(recovery, low=0.5, high=high)
        variants.append({"label_recovery": one})
    return found + [dataclasses.replace(one, **v) for one in found[1:] for v in variants]


def test_audit_has_short_sentences(reports):
    texts = {text for one in reports for text in (one.verdict, *one.advice, one.summary)}
    assert len(texts) > 12
    assert [one for text in texts for one in too_long(text)] == []
