"""Rows of users: read, encoded, learned from, judged, and kept in model folders."""
