"""Definitions shared by both ends of a connection: frames, error codes, shapes of results, credentials."""
