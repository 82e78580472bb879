"""Recovery demonstrated: each scenario causes one case, with real processes and real data (R12)."""
