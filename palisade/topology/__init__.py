"""Logical topology: the nodes that the cluster admitted, that have recovered, and that may serve (seed 001, R9)."""
