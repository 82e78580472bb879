"""Recovery shown: each scenario brings about one case with real processes and real data (R12)."""
