"""Fencing: who may still answer from a cache, and when a change may be shown. Pure; see DESIGN.md."""
