"""The search of sentence-transformers, exact and without torch: the same arguments and results."""

from typing import Any

from fastcos import validation
from fastcos.parallel import memmap
from fastcos.search.top_k import top_k as nearest

# score functions of sentence_transformers.util, by name, and our measures
_MEASURES = {"cos_sim": "cosine", "dot_score": "dot", "euclidean_sim": "neg_euclidean"}


def semantic_search(
    query_embeddings: Any,
    corpus_embeddings: Any,
    query_chunk_size: int = 100,
    corpus_chunk_size: int = 500_000,
    top_k: int = 10,
    score_function: Any = "cos_sim",
) -> list[list[dict[str, int | float]]]:
    """The best corpus entries of every query, as ``sentence_transformers.util.semantic_search``.

    Exact: float64 scores of the embeddings as given, equal scores by lower corpus_id.

    Parameters
    ----------
    query_embeddings : array_like (n, d) or (d,)
        Also tensors in main memory, or a list of vectors.
    corpus_embeddings : array_like (m, d)
        Also memory-mapped.
    query_chunk_size, corpus_chunk_size : int
        For calls written for sentence-transformers; the setting ``working_memory`` decides here.
    top_k : int
        Entries per query, all if there are fewer.
    score_function : str or callable
        "cos_sim", "dot_score" or "euclidean_sim", or that function of sentence-transformers.

    Returns
    -------
    list of list of dict
        For each query, best first: {"corpus_id": int, "score": float}.

    Raises
    ------
    ValueError
        NaN or infinity, embeddings of different width, an unknown score function.

    Examples
    --------
    >>> from fastcos.search import semantic_search
    >>> semantic_search([[1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0]], top_k=1)
    [[{'corpus_id': 1, 'score': 1.0}]]
    """
    validation.as_count("query_chunk_size", query_chunk_size)
    validation.as_count("corpus_chunk_size", corpus_chunk_size)
    k = validation.as_count("top_k", top_k)
    function = getattr(score_function, "__name__", score_function)
    measure = _MEASURES[validation.as_choice("score_function", function, _MEASURES)]
    Q = validation.as_rows("query_embeddings", query_embeddings, or_vector=True)
    X = memmap.as_mapped_rows("corpus_embeddings", corpus_embeddings)
    validation.check_same_width("query_embeddings", Q, "corpus_embeddings", X)
    found = nearest(Q, X, min(k, len(X)), measure=measure)
    return [
        [{"corpus_id": item, "score": score} for item, score in zip(items, scores, strict=True)]
        for items, scores in zip(found.indices.tolist(), found.scores.tolist(), strict=True)
    ]
