"""The partitions of the demo catalog that a node stores: their assignment, transfer and retention."""
