"""Sanitizer checks in compiled kernels and their reports: initialised bytes, races, bounds, watchpoints."""
