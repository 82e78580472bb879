"""Fencing, wired: who may serve reads from its vault, and when a strict write is answered (F1 to F10)."""
