"""The change feed between a replica and the nodes that keep a vault (R2, R4, R5)."""
