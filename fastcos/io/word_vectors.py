"""Readers of word vectors in the text and binary formats of word2vec, GloVe and fastText."""

import mmap
import re
from array import array
from pathlib import Path

import numpy as np

from fastcos.io.arrays import Array
from fastcos.io.columns import LONGEST_ID
from fastcos.io.streams import open_text
from fastcos.storage import FastcosFormatError

WORD_VECTOR_SUFFIXES = (".txt", ".vec", ".bin")
# A declared size may have at most this number of digits. Python refuses to convert more than 4,300
# digits.
_MAX_DIGITS = 18


def read_text_vectors(path: Path) -> tuple[list[str], Array]:
    """Read lines of the form ``word number ... number``.

    The first line ``n d`` of word2vec is optional. A word may contain spaces, because only the last
    d fields of a line are numbers.
    """
    entries, declared, width = array("f"), None, 0
    words: dict[str, int] = {}
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split()
            if number == 1 and re.fullmatch(rb"[+-]?\d+\s+[+-]?\d+", line.strip()):
                if not all(field.isdigit() and len(field) <= _MAX_DIGITS for field in fields):
                    rule = f"declare counts of at most {_MAX_DIGITS} digits in line 1"
                    got = line[:40].decode().strip()
                    raise FastcosFormatError(f"{path} must {rule}, got {got!r}")
                declared, width = int(fields[0]), int(fields[1])
                continue
            if not fields:
                continue
            width = width or len(fields) - 1
            word, *texts = line.strip().rsplit(None, width)
            has_underscores = b"_" in line and any(b"_" in text for text in texts)
            if (
                len(texts) != width
                or not width
                or has_underscores
                or not _add_numbers(entries, texts)
            ):
                rule = f"have a word and {max(width, 1)} numbers in every line"
                got = f"{line[:40].decode(errors='replace').strip()!r} in line {number}"
                raise FastcosFormatError(f"{path} must {rule}, got {got}")
            text = _as_word(path, word, number)
            # A decompression bomb may repeat one line very often. The error is therefore raised at
            # the first repeated word, before the words fill the memory.
            if text in words:
                raise FastcosFormatError(
                    f"{path}: words must be distinct, got {text!r} again in line {number}"
                )
            words[text] = number
    if not words or declared not in (None, len(words)):
        expected = "at least one vector" if declared is None else f"{declared} vectors"
        raise FastcosFormatError(f"{path} must hold {expected}, got {len(words)}")
    vectors = np.frombuffer(entries, np.float32).reshape(len(words), width)
    return list(words), vectors


def read_binary_vectors(path: Path) -> tuple[list[str], Array]:
    """Read word2vec's binary format: a line ``n d``, then n words, each with d float32 numbers."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.readline(64)
        fields = head.split()
        if len(fields) != 2 or not all(field.isdigit() for field in fields):
            raise _not_binary(path, f"a first line {head[:30]!r}")
        n, d = int(fields[0]), int(fields[1])
        # A vector takes at least two bytes (a letter and a space) plus the bytes of its numbers.
        if not n or not d or n * (4 * d + 2) > size:
            raise _not_binary(path, f"{size} bytes for {n} vectors of {d} numbers")
        words, vectors, start = [], np.empty((n, d), np.float32), len(head)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for row in range(n):
                space = content.find(b" ", start)
                end = space + 1 + 4 * d
                if space < 0 or end > size:
                    raise _not_binary(
                        path, f"a file that contains only {row} complete vectors instead of {n}"
                    )
                words.append(_as_word(path, content[start:space].lstrip(b"\n"), row + 1))
                vectors[row] = np.frombuffer(content[space + 1 : end], "<f4")
                start = end
    return words, vectors


def _as_word(path: Path, word: bytes, number: int) -> str:
    """Decode a word, and raise FastcosFormatError if the word is too long.

    In a NumPy array, every text takes as much memory as the longest text, so the length of words is
    limited.
    """
    text = word.decode(errors="backslashreplace")
    if len(text) > LONGEST_ID:
        rule = f"have words of at most {LONGEST_ID} characters"
        got = f"{len(text)} characters in the word that belongs to vector {number}"
        raise FastcosFormatError(f"{path} must {rule}, got {got}")
    return text


def _add_numbers(entries: "array[float]", texts: list[bytes]) -> bool:
    """Append texts as numbers; return False if a text is not a number."""
    try:
        entries.extend(map(float, texts))
    except (ValueError, OverflowError):
        return False
    return True


def _not_binary(path: Path, got: str) -> FastcosFormatError:
    return FastcosFormatError(
        f"{path} must be a complete file in the binary format of word2vec, got {got}"
    )
