"""The algorithms compiled: whole runs at once."""
