"""How a node gets from its vault to the cluster's state."""
