"""The whole cluster in one thread, from one seed: faults are injected, and required properties are checked (issue
5)."""
