"""Exact top-k over packed rows, by inner product; knows nothing of measures."""
