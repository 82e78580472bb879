"""What a node answers over every protocol: decoding and encoding only."""
