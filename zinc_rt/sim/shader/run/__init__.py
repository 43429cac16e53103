"""Execution of compiled kernels: launches, workgroups, threads, and the engine called by the command processor."""
