"""Similarity measures: each is two maps, offsets and a finish."""
