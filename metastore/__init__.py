"""What was agreed: the revisioned key-value state machine. Knows no network and no Raft."""
