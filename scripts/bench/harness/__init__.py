"""What the benchmarks share: systems of real processes, load generators, figures and how they are kept."""
