"""Segments: the broker and the coordinator; copies on the nodes: assignment, transfer and retention."""
