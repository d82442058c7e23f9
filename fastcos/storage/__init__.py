"""Atomic directories of arrays, memory-mapped rows, checkpoints and saved estimators."""

from fastcos.storage.directory import (
    FORMAT_VERSION as FORMAT_VERSION,
    FastcosFormatError as FastcosFormatError,
    PathLike as PathLike,
    Stored as Stored,
    load_arrays as load_arrays,
    save_arrays as save_arrays,
    sync_directory as sync_directory,
)
