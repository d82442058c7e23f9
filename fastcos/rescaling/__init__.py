"""Rescalings: the mathematics of the freedom that dot products leave, for measures and studies.

Predictions of users P and items Q do not change when an invertible G acts on Q and its inverse on
P; cosines do. A rescaling D is a diagonal G. Measures, audits, calibrations and comparisons take
what they need of it from here::

    diagonal        Rescaling: D by name, as exponents, on a grid; its diagonal for a model
    cosine_bounds   how far D of a condition moves one cosine; the sensitivity of a pair
    moments         mean, covariance and triangular factor of rows, in blocks
    gradient_noise  the scale at which stochastic gradient descent comes to rest
    canonical       canonicalize, query_metric: the same for every D

The condition of D is its largest entry over its smallest; of a linear map G, the ratio of its
extreme singular values.
"""
