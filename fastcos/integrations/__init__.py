"""Adapters, which make the exact index of fastcos usable in other packages; one module per package.

``langchain`` is a vector store, ``vicinity`` a backend, and ``mteb`` a search index. Each module
needs its package, and fastcos itself imports none of them. scanpy and scikit-learn need no adapter:
they take :class:`fastcos.NeighborsTransformer`.
"""
