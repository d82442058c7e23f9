from sklearn.utils.estimator_checks import parametrize_with_checks

from fastcos.factorization import LinearMF


@parametrize_with_checks(
    [
        LinearMF(n_components=1),
        LinearMF(n_components=2, objective="weight_decay", regularization=0.5, center=True),
    ]
)
def test_linear_mf_follows_scikit_learn(estimator, check):
    check(estimator)
