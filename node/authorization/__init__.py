"""Who may do what over the APIs of a node."""
