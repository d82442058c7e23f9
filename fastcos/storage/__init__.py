"""Atomic directories of arrays, memory-mapped rows, checkpoints and saved estimators."""

from fastcos.storage.directory import (
    FORMAT_VERSION as FORMAT_VERSION,
)
from fastcos.storage.directory import (
    FastcosFormatError as FastcosFormatError,
)
from fastcos.storage.directory import (
    PathLike as PathLike,
)
from fastcos.storage.directory import (
    Stored as Stored,
)
from fastcos.storage.directory import (
    load_arrays as load_arrays,
)
from fastcos.storage.directory import (
    save_arrays as save_arrays,
)
from fastcos.storage.directory import (
    sync_directory as sync_directory,
)
