"""Stand-ins for the two sides of a comparison, which invent times instead of measuring them."""

import numpy as np

from benchgate import Failure, Measurement


def sides(base, head):
    """Return a function with which compare_pairs measures a pair; the function returns invented times.

    ``base`` and ``head`` are functions that take a list of names of benchmarks. Each of them returns a dict
    from names to seconds or failures.
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
    """Return a function that stands for one commit; it reports the same invented times in every call."""
    return lambda names: results


def noisy(means, seed, scale=0.02):
    """Return a function that stands for one commit; its invented times scatter log-normally around ``means``.

    The attribute ``requests`` of the returned function lists the names that each call asked for.
    """
    rng = np.random.default_rng(seed)
    requests = []

    def measure(names):
        requests.append(tuple(names))
        return {name: mean * np.exp(scale * rng.standard_normal()) for name, mean in means.items()}

    measure.requests = requests
    return measure
