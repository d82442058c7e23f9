import numpy as np
import pytest
from scipy.special import log_ndtr

from fastcos.kernels import normal_cdf, records
from tests.kernels.inputs import frozen


@pytest.mark.parametrize("ends", [(-1e4, -36), (-40, -30), (-8, 8), (0, 60)])
def test_log_cdf_equals_scipy(ends):
    z = np.linspace(*ends, 501)
    ours = np.array([normal_cdf.log_cdf(value) for value in z])
    # In the tail, the relative error grows with z², until the values leave the range of float64.
    np.testing.assert_allclose(ours, log_ndtr(z), rtol=2e-12, atol=1e-300)
    assert (np.diff(ours) >= 0).all()


def test_mutual_proximity_sums_both_rows():
    random = np.random.default_rng(0)
    cosines, columns = random.uniform(-1, 1, (7, 4)), random.integers(0, 9, (7, 4))
    of_queries, of_items = random.uniform(0.1, 0.5, (2, 7)), random.uniform(0.1, 0.5, (2, 9))
    own = (cosines - of_queries[0][:, None]) / of_queries[1][:, None]
    other = (cosines - of_items[0][columns]) / of_items[1][columns]
    truth = log_ndtr(own) + log_ndtr(other)
    scores = np.full((7, 4), np.nan)
    moments = (records.ScoreMoments(*frozen(*both)) for both in (of_queries, of_items))
    normal_cdf.mutual_proximity_rows(0, 7, *frozen(cosines, columns), *moments, scores)
    np.testing.assert_allclose(scores, truth, rtol=1e-12)
