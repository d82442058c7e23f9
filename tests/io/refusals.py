"""Helpers to write files, and to check that readers refuse them."""

from pathlib import Path

import pytest

from fastcos.io import FastcosFormatError


def write(path, content):
    """Write text or bytes to a file; return its path."""
    path = Path(path)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(path, *fragments, reader, **arguments):
    """Check that the reader refuses the file; the message must be one line with all fragments."""
    with pytest.raises(FastcosFormatError) as caught:
        reader(path, **arguments)
    message = str(caught.value)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message, message
