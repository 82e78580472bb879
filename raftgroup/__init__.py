"""How the cluster agrees: PySyncObj made safe. Knows no keys."""
