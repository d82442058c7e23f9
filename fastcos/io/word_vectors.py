"""Word vectors as word2vec and GloVe write them: text with or without a first line, and binary."""

import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastcos.io.streams import open_bytes
from fastcos.storage import FastcosFormatError

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.str_]


def read_text_vectors(path: Path) -> tuple[Words, Floats]:
    """Read a line ``word number ... number`` a vector; word2vec's first line ``n d`` may be there.

    A word may hold spaces: the last d fields are the numbers.
    """
    words, vectors, declared, width = [], [], None, 0
    with open_bytes(path) as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split()
            if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                declared, width = int(fields[0]), int(fields[1])
                continue
            if not fields:
                continue
            width = width or len(fields) - 1
            word, *entries = line.strip().rsplit(None, width)
            vector = None if len(entries) != width or not width else _numbers(entries)
            if vector is None:
                raise FastcosFormatError(
                    f"{path} must have a word and {max(width, 1)} numbers in every line, got "
                    f"{line[:40].decode(errors='replace').strip()!r} in line {number}"
                )
            words.append(word.decode(errors="backslashreplace"))
            vectors.append(vector)
    if not vectors or declared not in (None, len(vectors)):
        wanted = "at least one vector" if declared is None else f"{declared} vectors"
        raise FastcosFormatError(f"{path} must hold {wanted}, got {len(vectors)}")
    return np.array(words, np.str_), np.stack(vectors)


def read_binary_vectors(path: Path) -> tuple[Words, Floats]:
    """Read word2vec's binary format: ``n d`` and a line end, then word, space, d float32 each."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.readline(64)
        fields = head.split()
        if len(fields) != 2 or not all(field.isdigit() for field in fields):
            raise _not_binary(path, f"a first line {head[:30]!r}")
        n, d = int(fields[0]), int(fields[1])
        # at least a letter, a space and the numbers
        if not n or not d or n * (4 * d + 2) > size:
            raise _not_binary(path, f"{size} bytes for {n} vectors of {d} numbers")
        words, vectors, at = [], np.empty((n, d), np.float32), len(head)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for row in range(n):
                space = content.find(b" ", at)
                end = space + 1 + 4 * d
                if space < 0 or end > size:
                    raise _not_binary(path, f"an end in vector {row + 1} of {n}")
                word = content[at:space].lstrip(b"\n")
                words.append(word.decode(errors="backslashreplace"))
                vectors[row] = np.frombuffer(content[space + 1 : end], "<f4")
                at = end
    return np.array(words, np.str_), vectors


def _numbers(fields: list[bytes]) -> Floats | None:
    try:
        return np.array([float(field) for field in fields], np.float32)
    except ValueError:
        return None


def _not_binary(path: Path, came: str) -> FastcosFormatError:
    return FastcosFormatError(f"{path} must be whole and in word2vec's binary format, got {came}")
