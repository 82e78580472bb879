"""Counts the files and functions that one request enters in each node of a real cluster (`scripts/paths`)."""
