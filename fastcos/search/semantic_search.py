"""``semantic_search`` of sentence-transformers, with exact scores and without torch."""

from typing import Any

from fastcos import validation
from fastcos.parallel import memmap
from fastcos.search.top_k import top_k as nearest

# The measure of fastcos for each score function of sentence_transformers.util.
_MEASURES = {"cos_sim": "cosine", "dot_score": "dot", "euclidean_sim": "neg_euclidean"}


def semantic_search(
    query_embeddings: Any,
    corpus_embeddings: Any,
    query_chunk_size: int = 100,
    corpus_chunk_size: int = 500_000,
    top_k: int = 10,
    score_function: Any = "cos_sim",
) -> list[list[dict[str, int | float]]]:
    """Return the corpus entries most similar to each query, as ``util.semantic_search`` does.

    The arguments and results are those of ``sentence_transformers.util.semantic_search``. The
    results are exact: the entries of a query are ordered by scores that are computed in float64
    from the original embeddings. Entries with equal scores are ordered by ``corpus_id``.

    Parameters
    ----------
    query_embeddings : array_like (n, d) or (d,)
        The embeddings of the queries. The embeddings may also be tensors in main memory or lists of
        vectors.
    corpus_embeddings : array_like (m, d)
        The embeddings of the corpus, which may be memory-mapped.
    query_chunk_size, corpus_chunk_size : int
        These arguments are accepted for compatibility with sentence-transformers and have no
        effect. The setting ``working_memory`` determines how many rows are searched at once.
    top_k : int
        The number of entries per query. If the corpus has fewer than ``top_k`` entries, all of its
        entries are returned.
    score_function : str or callable
        "cos_sim", "dot_score" or "euclidean_sim", or the sentence-transformers function with one of
        these names.

    Returns
    -------
    list of list of dict
        For each query, its entries, best first, as dicts {"corpus_id": int, "score": float}.

    Raises
    ------
    ValueError
        The embeddings contain NaN or infinity; the embeddings have different numbers of columns; or
        the score function is unknown.

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
    neighbors = nearest(Q, X, min(k, len(X)), measure=measure)
    return [
        [{"corpus_id": item, "score": score} for item, score in zip(items, scores, strict=True)]
        for items, scores in zip(neighbors.indices.tolist(), neighbors.scores.tolist(), strict=True)
    ]
