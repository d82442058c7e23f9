"""Sides of a comparison whose times are invented."""

import numpy as np

from benchgate import Failure, Measurement


def sides(base, head):
    """Return a pair function from two functions, of names, that return seconds or failures by name."""

    def measurements(found):
        return {
            name: one if isinstance(one, Failure | Measurement) else Measurement([one], [0.0])
            for name, one in found.items()
        }

    def pair(names):
        results = base(names), head(names)
        return [
            {name: one for name, one in measurements(side).items() if not names or name in names}
            for side in results
        ]

    return pair


def constant(**results):
    """Return a side whose benchmarks always take the same time."""
    return lambda names: results


def noisy(means, seed, scale=0.02):
    """Return a side with log-normal times around means; ``requests`` records the names it is asked for."""
    rng = np.random.default_rng(seed)
    requests = []

    def measure(names):
        requests.append(tuple(names))
        return {name: mean * np.exp(scale * rng.standard_normal()) for name, mean in means.items()}

    measure.requests = requests
    return measure
