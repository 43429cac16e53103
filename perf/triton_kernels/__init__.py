"""A corpus of Triton's kernels, and the time to their first results on the simulated device."""
