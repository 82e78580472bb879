"""What this node holds: its configuration, and a copy of the cluster's state as of one revision."""
