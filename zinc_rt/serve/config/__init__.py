"""A server's configuration: what it is told to be, from a file or from options."""
