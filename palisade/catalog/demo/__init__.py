"""The demo catalog: real metadata of a real data set, so that a cluster can be tried with more than foo = bar."""
