"""Simulated interactions of the paper."""

from fastcos.datasets.simulation import Simulation, simulate_interactions

__all__ = [
    "Simulation",
    "simulate_interactions",
]
