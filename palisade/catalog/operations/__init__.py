"""The operations of the catalog (Tier A of seed 000), each as a pure plan. `all.py` has them by name."""
