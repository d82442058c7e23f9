"""Adapters: our exact index behind the interfaces of other packages, one file each.

``langchain`` is a vector store, ``vicinity`` a backend, ``mteb`` a search index. Each needs its
package and is imported only where a program imports it. scanpy and scikit-learn need no adapter:
they take :class:`fastcos.NeighborsTransformer`.
"""
