"""FAISS Panorama: an exact scan that reads the columns of an item in eighths.

After each eighth, the scan may decide not to read the remaining columns of the item.
"""

import faiss

from bench.compare.rows import unit

NAME = "FAISS Panorama"
REQUIRES = "faiss-cpu>=1.15"
LEVELS = 8


def search(items, queries, k):
    index, queries = faiss.IndexFlatIPPanorama(items.shape[1], LEVELS), unit(queries)
    index.add(unit(items))
    return (lambda: index.search(queries, k)), lambda result: result[1]
