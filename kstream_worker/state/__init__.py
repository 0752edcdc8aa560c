"""What is kept of each key between two processes: its records on the bus, the life of keys, what must be written."""
