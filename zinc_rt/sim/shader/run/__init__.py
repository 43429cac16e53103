"""Compiled kernels at work: launches, workgroups, threads, and the engine that the command processor calls."""
