"""Physical topology: which nodes are there, found out by the nodes themselves (SWIM; Das, Gupta, Motivala 2002)."""
