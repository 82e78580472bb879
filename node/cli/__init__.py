"""The command `palisade`."""
