"""The wiring of fencing: which nodes may serve reads from their vaults, and when a strict write is acknowledged (F1 to
F10)."""
