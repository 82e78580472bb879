"""What runs have reached, against what there is: each fault, state, transition and row of a decision (issue 5)."""
