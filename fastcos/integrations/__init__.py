"""Adapters that make the exact index of fastcos usable in other packages, one module per package.

The module ``langchain`` contains a vector store, ``vicinity`` contains a backend, and ``mteb``
contains a search index. Each module needs the package of the same name; fastcos itself imports none
of these modules. The packages scanpy and scikit-learn need no adapter, because they accept
:class:`fastcos.NeighborsTransformer`.
"""
