"""Read all cells of a column in a table of vectors, and detect which kind of column it is."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fastcos.io.columns import (
    NUMBER_PATTERN,
    Cells,
    Unsupported,
    cell_text,
    classify_text,
    ids_of_cells,
    refuse_rows,
)
from fastcos.storage import FastcosFormatError, PathLike
from fastcos.validation import Floats, Integers

# A pattern for numbers in unusual notations. It matches a cell that contains several numbers but is
# not JSON, such as "[0.1 0.2]" (printed by NumPy) or "0.1|0.2". It also matches numbers with a
# decimal comma or a unit, and hexadecimal numbers.
_ENTRY = rf"(?:{NUMBER_PATTERN}|nan|None|\.\.\.)"
_ODD_NUMBERS = re.compile(
    rf"(?:array\()?[\[({{]?\s*{_ENTRY}(?:[\s,;|]+{_ENTRY})+[\s,]*[\])}}]?(?:,\s*dtype=\w+)?\)?"
    rf"|\[\s*{_ENTRY}\s*\]"
    rf"|[$€£\u2212]?\s?{NUMBER_PATTERN}\s?[%‰$€£]?"
    r"|0[xX][0-9a-fA-F]+",
    re.ASCII,
)
# Largest number of rows that a message lists.
_NAMED_ROWS = 5


class Column:
    """A column in a table of vectors: the kinds of its cells, and the numbers or lists in them.

    stores_cells: whether the cells are stored as they were read; True for a column of ids.
    """

    def __init__(self, name: str, stores_cells: bool = False) -> None:
        self.name = name
        self.stores_cells = stores_cells
        self._cells: list[Cells] = []
        self._lines: list[Integers] = []
        self._rows: dict[str, list[int]] = {}
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, Any] = {}
        self._blocks: list[npt.NDArray[Any]] = []
        self._widths: dict[int, int] = {}
        self._is_whole = True

    def add(self, cells: Cells, lines: Integers) -> None:
        """Add the next cells of the column; `lines` contains the line number of each cell."""
        if self.stores_cells:
            self._cells.append(cells)
            self._lines.append(lines)
        if isinstance(cells, np.ndarray) and self._add_array(cells, lines):
            return
        if not isinstance(cells, np.ndarray) and (values := _all_numbers(cells)) is not None:
            self._note("number", lines, cells[0])
            self._is_whole &= not _has_decimals(cells)
            self._blocks.append(values)
            return
        if not isinstance(cells, np.ndarray) and (rows := _all_lists(cells)) is not None:
            self._add_rows(rows, lines)
            return
        numbers: list[float] = []
        for cell, line in zip(cells, lines.tolist(), strict=True):
            category, value = _classify(cell)
            self._note(category, np.array([line]), cell)
            if category == "list":
                self._add_list(value, line)
            elif category in ("number", "boolean"):
                numbers.append(value)
                self._is_whole &= category == "number" and not _has_decimals([cell])
        if numbers:
            self._blocks.append(np.array(numbers))

    def _add_array(self, cells: npt.NDArray[Any], lines: Integers) -> bool:
        """Add an array of finite numbers; return False if the array contains other values."""
        if cells.ndim == 2:
            self._add_rows(cells, lines)
            return True
        if cells.dtype.kind not in "iufb" or (
            cells.dtype.kind == "f" and not np.isfinite(cells).all()
        ):
            return False
        self._note("boolean" if cells.dtype.kind == "b" else "number", lines, cells[0])
        self._blocks.append(cells)
        self._is_whole &= cells.dtype.kind in "iu"
        return True

    def _add_rows(self, rows: npt.NDArray[Any], lines: Integers) -> None:
        self._note("list", lines, rows[0])
        self._widths.setdefault(rows.shape[1], int(lines[0]))
        if len(self._widths) == 1:
            self._blocks.append(rows)

    def _add_list(self, values: list[Any], line: int) -> None:
        self._widths.setdefault(len(values), line)
        if len(self._widths) > 1:
            return
        try:
            self._blocks.append(np.array([values], np.float64))
        except OverflowError:
            self._note("infinity", np.array([line]), values)

    def _note(self, category: str, lines: Integers, example: Any) -> None:
        rows = self._rows.setdefault(category, [])
        rows.extend(lines[: _NAMED_ROWS - len(rows)].tolist())
        self._counts[category] += len(lines)
        self._examples.setdefault(category, example)

    @property
    def kind(self) -> str:
        """One of "lists", "numbers", "texts", "odd numbers", "blanks", "other", "mixed"."""
        filled_categories = self._rows.keys() - {"blank", "blank word", "infinity", "empty list"}
        if not filled_categories.isdisjoint(("list", "list with blanks")):
            return "lists"
        if not filled_categories:
            return "blanks"
        if len(filled_categories) == 1 and filled_categories <= {"number", "boolean"}:
            return "numbers"
        if "other" in filled_categories:
            return "other"
        if filled_categories == {"odd number"}:
            return "odd numbers"
        return "mixed" if "number" in filled_categories else "texts"

    @property
    def may_be_ids(self) -> bool:
        """Whether the cells of this column may be ids if a column of lists contains the vectors."""
        if self.kind == "other":
            example = self._examples["other"]
            return isinstance(example, Unsupported) and not example.is_nested
        if self.kind == "numbers":
            return self._is_whole and "boolean" not in self._rows
        return self.kind in ("texts", "mixed", "odd numbers")

    def counts_rows(self, path: PathLike) -> bool:
        """Return whether the cells are the row numbers 0, 1, 2, ..."""
        if self.kind != "numbers" or not self._is_whole:
            return False
        numbers = self.numbers(path)
        return np.array_equal(numbers, np.arange(len(numbers)))

    def ids(self, path: PathLike) -> npt.NDArray[Any]:
        """Return the cells as ids (n,), int64 or strings."""
        lines, cells = np.concatenate(self._lines), self._cells
        if all(isinstance(block, np.ndarray) for block in cells):
            return ids_of_cells(path, self.name, np.concatenate(cells), lines)
        return ids_of_cells(path, self.name, [cell for block in cells for cell in block], lines)

    def numbers(self, path: PathLike) -> npt.NDArray[Any]:
        """Return the numbers (n,); raise FastcosFormatError for cells that are not numbers."""
        wrong_kinds = self._rows.keys() - {"number"}
        if wrong_kinds == {"boolean"} and "number" not in self._rows:
            wrong_kinds = set()
        if wrong_kinds:
            self._refuse(path, "a number in every row", wrong_kinds)
        return np.concatenate(self._blocks)

    def lists(self, path: PathLike) -> npt.NDArray[Any]:
        """Return the lists as rows (n, d); raise FastcosFormatError if a cell is not a list."""
        if wrong_kinds := self._rows.keys() - {"list"}:
            if self._counts["number"] > self._counts["list"]:
                self._refuse(path, "a number in every row", {"list"})
            self._refuse(path, "a list of numbers in every row", wrong_kinds)
        if len(self._widths) > 1:
            (width, first), (other_width, line), *_ = self._widths.items()
            got = f"{other_width} numbers in row {line} ({width} in row {first})"
            rule = f"column {self.name!r} must hold lists of one length"
            raise FastcosFormatError(f"{path}: {rule}, got {got}")
        return np.concatenate(self._blocks) if len(self._blocks) > 1 else self._blocks[0]

    def _refuse(self, path: PathLike, rule: str, wrong_kinds: Collection[str]) -> NoReturn:
        category = min(wrong_kinds, key=lambda kind: self._rows[kind][0])
        example, got = self._examples[category], repr(self._examples[category])[:60]
        if category == "blank":
            got = "a blank"
        elif isinstance(example, Unsupported):
            got = example.type
        elif category == "odd number":
            got += " (write numbers as 0.5 and lists as JSON, [0.5, 1])"
        # Only the first rows of each kind are stored, because the message lists only these rows.
        lines = np.resize(np.array(self._rows[category]), self._counts[category])
        refuse_rows(path, f"column {self.name!r} must have {rule}", got, lines)

    def describe(self) -> str:
        """Return the name and the kind of the column."""
        example = cell_text(self._examples.get("other"))
        kind = example.type if isinstance(example, Unsupported) else self.kind
        return f"{self.name[:40]!r} ({kind})"

    def refuse_as_numbers(self, path: PathLike) -> NoReturn:
        """Raise FastcosFormatError because the cells are neither all numbers nor all texts."""
        rule = "a number in every row, or only texts"
        if self.kind == "mixed":
            rule = f"a number in every row (if it holds ids, pass id_column={self.name!r})"
        self._refuse(path, rule, self._rows.keys() - {"number"})


def _classify(cell: Any) -> tuple[str, Any]:
    """Return the category of a cell, and its value if it is a number or a list of numbers."""
    if isinstance(cell, list):
        return _classify_list(cell)
    text = cell_text(cell)
    if isinstance(text, Unsupported):
        return "other", None
    category, number = classify_text(text)
    if category != "text":
        return category, number
    text = text.strip()
    if text[0] == "[":
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return _classify_list(values)
    return ("odd number" if _ODD_NUMBERS.fullmatch(text) else "text"), None


def _classify_list(values: list[Any]) -> tuple[str, Any]:
    if not values:
        return "empty list", None
    types = set(map(type, values)) - {int, float, bool, Decimal}
    if not types:
        return "list", values
    return ("list with blanks" if types == {type(None)} else "other"), None


def _all_numbers(cells: Sequence[Any]) -> Floats | None:
    """Return the cells as float64 numbers, or None.

    Either all cells must be finite numbers, or all cells must be ASCII texts of finite numbers;
    otherwise, the result is None.
    """
    types = set(map(type, cells))
    if types == {str}:
        joined = "".join(cells)
        if not joined.isascii() or "_" in joined:
            return None
    elif not types or not types <= {int, float}:
        return None
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except (ValueError, OverflowError):
        return None
    return values if np.isfinite(values).all() else None


def _all_lists(cells: Sequence[Any]) -> Floats | None:
    """Return the cells as rows (n, d) if all are number lists of the same length, else None."""
    if set(map(type, cells)) != {list} or len(widths := set(map(len, cells))) > 1 or 0 in widths:
        return None
    if not set(map(type, chain.from_iterable(cells))) <= {int, float, bool}:
        return None
    try:
        return np.array(cells, np.float64)
    except OverflowError:
        return None


def _has_decimals(cells: Iterable[Any]) -> bool:
    """Return whether any of the numbers is a float, or has a decimal point or an exponent."""
    return any(
        not isinstance(cell, int) and not str(cell).strip().lstrip("+-").isdigit() for cell in cells
    )
