"""Messages as Arrow IPC streams, both ways."""
