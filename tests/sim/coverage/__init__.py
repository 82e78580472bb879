"""What runs have reached, compared with all possible rows: each fault, state, transition and decision (issue 5)."""
