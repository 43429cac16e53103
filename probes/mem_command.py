"""GPU memory under stress: accounting, fragmentation, leaks."""
