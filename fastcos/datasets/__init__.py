"""Simulated interactions of the paper (arXiv:2403.05440, section 4), with known item clusters.

``simulate_interactions`` draws, one after the other and each from its own random stream::

    clusters of items -> popularity exponents -> popularities
    preferences of users for clusters, numbers of interactions -> interactions (CSR)

The last step runs the kernel ``kernels.sampling`` over blocks of users; its counter-based generator
gives the same bits on any number of threads. ``presets`` lists the named readings of the choices
that the paper leaves open. The result is a ``Simulation``.
"""

from fastcos.datasets.simulation import Simulation, presets, simulate_interactions

__all__ = ["Simulation", "presets", "simulate_interactions"]
