"""The syntax trees of source files; each file is parsed once, although several tests read it."""

import ast
import functools


@functools.cache
def parsed(path):
    return ast.parse(path.read_text("utf8"))


@functools.cache
def walked(tree):
    return list(ast.walk(tree))


def nodes(tree, *kinds):
    """Return the nodes of a tree that have one of these types."""
    return [node for node in walked(tree) if isinstance(node, kinds)]
