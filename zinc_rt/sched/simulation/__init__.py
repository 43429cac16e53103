"""Traffic against the real scheduler in virtual time."""
