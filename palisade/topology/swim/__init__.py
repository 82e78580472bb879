"""Physical topology: membership and failure detection by gossip (SWIM; Das, Gupta, Motivala 2002)."""
