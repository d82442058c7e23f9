"""PyTorch on the CPU: matmul and then topk. The library sentence-transformers does the same."""

import re

import torch

from bench.compare.rows import n_threads, unit, without_itself

NAME = "PyTorch"
REQUIRES = "torch>=2"

torch.set_num_threads(n_threads())


def versions():
    """Return the version of the MKL that PyTorch contains."""
    match = re.search(r"Math Kernel Library Version ([\w.-]+)", torch.__config__.show())
    return {"MKL in PyTorch": match[1]} if match else {}


def tensor(rows):
    return torch.from_numpy(unit(rows))


def top_k(items, queries, k, block=1024):
    """Return the k best items of every query, block by block."""
    blocks = queries.split(block)
    return torch.cat([torch.topk(rows @ items.T, k, dim=1).indices for rows in blocks])


def search(items, queries, k):
    items, queries = tensor(items), tensor(queries)
    return (lambda: top_k(items, queries, k)), lambda result: result.numpy()


def self_join(rows, k):
    def call():
        units = tensor(rows)
        return top_k(units, units, k + 1)

    return call, lambda result: without_itself(result.numpy())
