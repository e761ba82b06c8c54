"""The same benchmark on Cassandra: what the store does, against what the bare driver does on the same node."""
