"""The ledger: exact usage per tenant, cross-checked with the runner's counts, stored in a file."""
