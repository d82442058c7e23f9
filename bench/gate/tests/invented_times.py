"""Sides of a comparison whose times are invented."""

import numpy as np

from benchgate import Failure, Measurement


def sides(base, head):
    """Return a function that invents a pair, which compare_pairs calls instead of measuring a pair.

    ``base`` and ``head`` are functions of the names of benchmarks; each returns seconds or failures by name.
    """

    def measurements(results):
        return {
            name: result if isinstance(result, Failure | Measurement) else Measurement([result], [0.0])
            for name, result in results.items()
        }

    def pair(names):
        results = base(names), head(names)
        return [
            {name: result for name, result in measurements(side).items() if not names or name in names}
            for side in results
        ]

    return pair


def constant(**results):
    """Return a side whose benchmarks always take the same time."""
    return lambda names: results


def noisy(means, seed, scale=0.02):
    """Return a side with log-normal times around means; ``requests`` records the names of every call."""
    rng = np.random.default_rng(seed)
    requests = []

    def measure(names):
        requests.append(tuple(names))
        return {name: mean * np.exp(scale * rng.standard_normal()) for name, mean in means.items()}

    measure.requests = requests
    return measure
