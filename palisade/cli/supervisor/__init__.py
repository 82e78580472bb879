"""`palisade up`: a cluster of several processes on this machine, in the foreground."""
