"""The configuration of a server, from a file or from command-line options."""
