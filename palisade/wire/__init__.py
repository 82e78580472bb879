"""What crosses the wire: frames, codes of errors, shapes of results, credentials."""
