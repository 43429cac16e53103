"""Connections: sockets, deadlines, limits, headers."""
