"""Faults on real processes: a network that a test can break one way, delay, and heal; disks, kills, pauses."""
