"""The partitions of the demo catalog that a node keeps copies of: what belongs here, and how it gets here."""
