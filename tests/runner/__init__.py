"""What `scripts/test` runs: the steps, which of them may overlap, and which tests belong to a change."""
