"""The syntax trees of source files, which several tests read: each file is parsed once."""

import ast
import functools


@functools.cache
def parsed(path):
    return ast.parse(path.read_text("utf8"))


@functools.cache
def walked(tree):
    return list(ast.walk(tree))


def nodes(tree, *kinds):
    """The nodes of a tree that are of some kinds."""
    return [node for node in walked(tree) if isinstance(node, kinds)]
