"""A replicated journal of two copies whose roles are given by activation (`DESIGN.md`)."""
