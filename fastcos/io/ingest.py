"""Convert a table of interactions that does not fit into memory to shards, in one pass."""

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fastcos.io.column_choice import interaction_columns
from fastcos.io.columns import (
    Numbers,
    TextColumn,
    check_texts,
    encode,
    id_column,
    new_vocabulary,
    refuse_rows,
)
from fastcos.io.interactions import merge_cells, sorted_ids
from fastcos.io.matrices import as_float32_if_exact
from fastcos.io.tables import Table, open_table
from fastcos.linalg.csr import as_interactions
from fastcos.linalg.shards import ENTRIES_PER_SHARD, InteractionShards, shard_rows, shard_writer
from fastcos.parallel import Progress
from fastcos.storage import FastcosFormatError, PathLike, check_new_directory, temporary_directory
from fastcos.validation import Integers, as_choice, as_count, as_path

# Unlike read_interactions, ingest_interactions does not accept duplicates="error", because
# duplicates are detected only after a part of the shards has been written.
_DUPLICATES = ("sum", "last", "max")
# Number of records of the temporary file that are sorted at a time. 2^20 records take 16 MiB.
RECORDS_PER_BLOCK = 1 << 20
# The temporary file stores codes of ids as int32.
MAX_IDS = 2**31 - 1
_RECORD = np.dtype([("user", np.int32), ("item", np.int32), ("value", np.float64)])


def ingest_interactions(
    path: PathLike,
    out: PathLike,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    duplicates: str = "sum",
    member: str | None = None,
    delimiter: str | None = None,
    header: bool = True,
    quotes: bool = True,
    entries_per_shard: int = ENTRIES_PER_SHARD,
    progress: Progress | None = None,
) -> InteractionShards:
    r"""Write the interactions of a table as shards, without holding all of them in memory.

    The table is read once. The function first writes the rows of the table to a temporary file next
    to ``out``, with 16 bytes per row, and then converts this file to shards. The ids and the matrix
    are the same as those of :func:`fastcos.read_interactions`. The function needs memory for the
    distinct ids, a few numbers per user, and about 100 bytes per entry of a shard.

    Parameters
    ----------
    path : path-like
        A table, as in :func:`fastcos.read_interactions`.
    out : path-like
        A new directory, which is written atomically.
    user, item, value, member, delimiter, header, quotes
        As in :func:`fastcos.read_interactions`.
    duplicates : {"sum", "last", "max"}
        How to combine several rows with the same user and item.
    entries_per_shard : int
        Approximate number of table rows per shard. A shard contains all rows of each of its users,
        so it may have more rows than ``entries_per_shard``.
    progress : callable, optional
        Called as progress(done, total). While a text file is read, ``done`` and ``total`` count
        bytes of the file. While the shards are written, ``done`` starts again from 0; from then on,
        ``done`` and ``total`` count rows.

    Returns
    -------
    InteractionShards
        The shards in the directory ``out``.

    Raises
    ------
    FastcosFormatError
        The file is damaged or unsuitable, as described for :func:`fastcos.read_interactions`.
    ValueError
        ``out`` exists and is not empty, or ``duplicates`` has an unknown value.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import fastcos
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "seen.csv").write_text("user,item\nann,7\nbob,7\nbob,9\n")
    ...     shards = fastcos.io.ingest_interactions(f"{folder}/seen.csv", f"{folder}/shards")
    ...     shards.shape, shards.nnz, shards.user_ids.tolist()
    ((2, 2), 3, ['ann', 'bob'])
    """
    as_choice("duplicates", duplicates, _DUPLICATES)
    entries = as_count("entries_per_shard", entries_per_shard)
    path, target = as_path("path", path), as_path("out", out).absolute()
    check_new_directory("out", target)
    with (
        temporary_directory(target) as folder,
        open_table(
            path,
            member=member,
            delimiter=delimiter,
            header=header,
            quotes=quotes,
            progress=progress,
        ) as table,
    ):
        columns = interaction_columns(path, table.names, user, item, value)
        rows = folder / "rows"
        ids, counts = _spill(table, columns, rows)
        _write_shards(path, rows, ids, counts, target, entries, duplicates, progress)
    return InteractionShards(target, verify=False)


def _spill(
    table: Table, columns: tuple[str, str, str | None], file: Path
) -> tuple[list[list[str]], Integers]:
    """Write each row of the table as a record: the codes of its user and item, and its value.

    Return the ids, and the number of rows of each user.
    """
    user, item, number = columns
    names = (user, item)
    vocabularies = [new_vocabulary() for _ in names]
    first_lines: list[list[Integers]] = [[], []]
    numbers, has_booleans = Numbers(), None
    counts = np.zeros(0, np.int64)
    with file.open("wb") as stream:
        for lines, cells in table.chunks([*names, *([] if number is None else [number])]):
            records = np.empty(len(lines), _RECORD)
            for side, (name, vocabulary) in enumerate(zip(names, vocabularies, strict=True)):
                n_before = len(vocabulary)
                codes = encode(table.path, name, cells[side], lines, vocabulary)
                as_count("distinct ids", len(vocabulary), high=MAX_IDS)
                distinct, first = np.unique(codes, return_index=True)
                first_lines[side].append(lines[first[distinct >= n_before]])
                records[("user", "item")[side]] = codes
            records["value"] = 1
            if number is not None:
                values = numbers.read(cells[-1])
                records["value"] = numbers.finish(table.path, number, values, lines)
                if has_booleans not in (None, bool(np.isinf(values).any())):
                    rule = f"column {number!r} must hold either numbers or booleans"
                    refuse_rows(table.path, rule, "both", lines[:1])
                has_booleans = bool(np.isinf(values).any())
            stream.write(records.tobytes())
            if len(vocabularies[0]) > len(counts):
                counts = np.concatenate([counts, np.zeros(len(vocabularies[0]), np.int64)])
            users, times = np.unique(records["user"], return_counts=True)
            counts[users] += times
    if not len(counts):
        raise FastcosFormatError(f"{table.path} must have at least one row, got none")
    ids = []
    for name, vocabulary, lines_of in zip(names, vocabularies, first_lines, strict=True):
        column = TextColumn(list(vocabulary), np.arange(len(vocabulary)))
        check_texts(table.path, name, column, np.concatenate(lines_of))
        ids.append(id_column(table.path, name, column, np.concatenate(lines_of)).texts)
    return ids, counts[: len(ids[0])]


def _write_shards(
    path: Path,
    spilled: Path,
    ids: list[list[str]],
    rows_per_user: Integers,
    target: Path,
    entries: int,
    duplicates: str,
    progress: Progress | None,
) -> None:
    """Split the records into one file per shard, and convert each file to a shard."""
    user_ids, user_ranks = sorted_ids(ids[0])
    item_ids, item_ranks = sorted_ids(ids[1])
    counts = np.empty(len(user_ids), np.int64)
    counts[user_ranks] = rows_per_user
    cuts = shard_rows(np.concatenate([[0], np.cumsum(counts)]), entries)
    files = [spilled.with_name(f"shard{number}") for number in range(len(cuts) - 1)]
    _split_records(files, spilled, user_ranks, item_ranks, np.array(cuts))
    done, total = 0, int(counts.sum())
    if progress is not None:
        progress(done, total)
    with shard_writer(target, item_ids) as writer:
        for file, (lo, hi) in zip(files, pairwise(cuts), strict=True):
            records = np.fromfile(file, _RECORD)
            file.unlink()
            cells = (records["user"] - np.int64(lo)) * len(item_ids) + records["item"]
            cells, values = merge_cells(path, cells, records["value"], records["item"], duplicates)
            rows, columns = np.divmod(cells, len(item_ids))
            X = sp.coo_array((values, (rows, columns)), shape=(hi - lo, len(item_ids)))
            writer.add(as_float32_if_exact(as_interactions("values", X)), user_ids[lo:hi])
            done += len(records)
            if progress is not None:
                progress(done, total)


def _split_records(
    files: list[Path], rows: Path, user_ranks: Integers, item_ranks: Integers, cuts: Integers
) -> None:
    """In every record, replace the id codes by ranks; append the record to its shard's file."""
    with ExitStack() as stack:
        streams = [stack.enter_context(file.open("wb")) for file in files]
        source = stack.enter_context(rows.open("rb"))
        while len(records := np.fromfile(source, _RECORD, RECORDS_PER_BLOCK)):
            records["user"] = user_ranks[records["user"]]
            records["item"] = item_ranks[records["item"]]
            shards = np.searchsorted(cuts, records["user"], side="right") - 1
            order = np.argsort(shards, kind="stable")
            ends = np.searchsorted(shards[order], np.arange(len(files) + 1))
            for stream, (first, last) in zip(streams, pairwise(ends), strict=True):
                stream.write(records[order[first:last]].tobytes())
    rows.unlink()
