"""The runtime's commands, and the parts that all commands share: parsing, reports, tables, progress."""
