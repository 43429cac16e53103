"""The ledger: what each tenant used, exact beside the runner's own counts, kept in a file."""
