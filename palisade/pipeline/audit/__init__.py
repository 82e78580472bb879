"""Decisions of the job `audit`: contradictions in recorded histories and records of a cluster. Pure, without Spark."""
