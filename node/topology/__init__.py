"""Logical topology: the nodes that were let in, have recovered, and may serve (seed 001, R9)."""
