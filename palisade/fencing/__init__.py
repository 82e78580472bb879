"""Fencing: which node may serve from its vault, and when a change may be served. Pure; see DESIGN.md."""
