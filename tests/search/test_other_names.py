"""If an argument has the name that another library uses, the error names that of fastcos."""

import re

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import SimilarityIndex, top_k

ROWS = np.random.default_rng(0).standard_normal((6, 3))
LINES = [
    (lambda: top_k(ROWS, k=1, measure="l2"), "got 'l2' (did you mean 'neg_euclidean'?)"),
    (lambda: top_k(ROWS, k=1, measure="inner_product"), "(did you mean 'dot'?)"),
    (lambda: SimilarityIndex("Inner-Product"), "(did you mean 'dot'?)"),
    (lambda: SimilarityIndex("cosin"), "(did you mean 'cosine'?)"),
    (
        lambda: SimilarityIndex(ROWS),
        "a name or a Measure (pass rows to its method fit), got ndarray",
    ),
    (
        lambda: top_k(ROWS, k=1, measure=fastcos.query_metric(ROWS)),
        "measure must be get_measure('query_metric_cosine', other=users)",
    ),
    (
        lambda: SimilarityIndex().query(ROWS),
        "SimilarityIndex has no attribute 'query' (use search)",
    ),
    (lambda: SimilarityIndex.load("x"), "(use SimilarityIndex.open)"),
    (lambda: SimilarityIndex().add_items, "(use add)"),
    (lambda: fastcos.near_duplicates, "(use fastcos.search.near_duplicates)"),
    (lambda: fastcos.recall_at_k, "(use fastcos.metrics.recall_at_k)"),
    (
        lambda: SimilarityIndex().fit(ROWS).search(ROWS, k=1, allowed=np.ones((6, 6), bool)),
        "(for one mask per query, use scipy.sparse.csr_array(mask))",
    ),
    (
        lambda: fastcos.metrics.recall_at_k([["a"]], sp.csr_array(np.ones((1, 1)))),
        "recommended must hold item numbers, got texts. Pass positions, such as the",
    ),
    (lambda: SimilarityIndex().fit(ROWS, [*"abcde", np.nan]), "must have an id for every row, got"),
    (
        lambda: SimilarityIndex().fit(ROWS, np.arange(6.0)),
        "ids must hold whole numbers or strings, got dtype float64",
    ),
]


@pytest.mark.parametrize(("call", "line"), LINES, ids=[line for _, line in LINES])
def test_error_names_what_is_meant(call, line):
    with pytest.raises((TypeError, ValueError, AttributeError), match=re.escape(line)) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300


def test_attributes_of_other_libraries_do_not_exist():
    for name in ("query", "load", "delete", "ntotal"):
        assert not hasattr(SimilarityIndex(), name)
        assert not hasattr(SimilarityIndex, name)
    assert not hasattr(fastcos, "near_duplicates")
