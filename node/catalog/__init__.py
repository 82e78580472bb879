"""The catalog of a node: its procedures carried out where it leads, and what the APIs ask of it anywhere."""
