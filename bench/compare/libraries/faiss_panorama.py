"""FAISS Panorama: an exact scan that may stop reading an item after each eighth of its columns."""

import faiss

from bench.compare.rows import unit

NAME = "FAISS Panorama"
REQUIRES = "faiss-cpu>=1.15"
LEVELS = 8


def search(items, queries, k):
    index, queries = faiss.IndexFlatIPPanorama(items.shape[1], LEVELS), unit(queries)
    index.add(unit(items))
    return (lambda: index.search(queries, k)), lambda result: result[1]
