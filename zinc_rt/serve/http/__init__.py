"""HTTP connections: sockets, timeouts, limits, headers."""
