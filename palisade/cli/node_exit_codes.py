"""The exit codes of `palisade node`, besides 0 after a requested stop. The reaction of the supervisor to each:
`palisade/cli/supervisor/restart_policy.py`."""

EXIT_FAILED = 1
EXIT_REFUSED = 2
"""The node has refused its configuration, folder, ports or cluster: a restart would not help."""
EXIT_REMOVED = 3
"""The node was removed from the cluster: only a new storage under its name may join."""
EXIT_MUST_JOIN = 4
"""The node was removed from the cluster, and its storage is new: it can join when started with --join."""
EXIT_LOST = 5
"""The cluster knows the node with another storage: its data folder was lost or swapped."""
