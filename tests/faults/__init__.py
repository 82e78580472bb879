"""Faults on real processes: a network that tests can cut in one direction, delay, and heal; disks, kills, pauses."""
