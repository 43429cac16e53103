"""The runtime's commands, and what every command shares: parsing, reports, tables, progress."""
