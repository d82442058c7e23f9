"""Files and directories that are written completely or not at all.

::

    save_arrays -> directory/  header.json, NAME-<sha256>.npy, ... -> load_arrays (memory maps)
    checkpoint  -> .NAME.partial/  run.json, done.npy, *.npy -> NAME/  once all blocks are written
    atomic_path -> one file, which replaces an older file in one step
    provenance  -> parameters, versions and machine, which are stored with every result

`save_arrays` writes a new directory under a temporary name and then renames it, so a reader never
sees an incomplete directory, even if the writer is killed. A checkpoint marks each block of rows as
done once the block has reached the disk. If the run crashes, repeat the same call: it computes only
the blocks that are not marked. No file contains pickled objects.
"""

from fastcos.storage.directory import (
    FORMAT_VERSION as FORMAT_VERSION,
    FastcosFormatError as FastcosFormatError,
    OccupiedError as OccupiedError,
    PathLike as PathLike,
    Stored as Stored,
    check_new_directory as check_new_directory,
    check_replaceable as check_replaceable,
    field as field,
    load_arrays as load_arrays,
    read_fields as read_fields,
    refuse_damage as refuse_damage,
    save_arrays as save_arrays,
    sync_directory as sync_directory,
    temporary_directory as temporary_directory,
)
