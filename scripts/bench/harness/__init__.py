"""Shared by the benchmarks: systems of real processes, load generators, figures and their storage."""
