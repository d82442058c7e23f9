"""Register functions that Python calls before and after every fork of the process."""

import os
from collections.abc import Callable


def at_fork(
    *,
    before: Callable[[], None] | None = None,
    after_in_parent: Callable[[], None] | None = None,
    after_in_child: Callable[[], None] | None = None,
) -> None:
    """Register functions that are called before and after each fork of the process.

    `before` is called before the fork. After the fork, `after_in_parent` is called in the parent
    process, and `after_in_child` is called in the child process. On systems without fork, nothing
    is registered.
    """
    hooks = {
        "before": before, "after_in_parent": after_in_parent, "after_in_child": after_in_child
    }  # fmt: skip
    if hasattr(os, "register_at_fork"):  # Windows lacks this function
        os.register_at_fork(**{name: hook for name, hook in hooks.items() if hook is not None})
