"""Benchmarks of fastcos. README.md says which folder answers which question."""
