"""The whole cluster in one thread, from one seed: what may go wrong does, and what must hold is checked (issue 5)."""
