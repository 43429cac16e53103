"""Simulation: traffic against the real scheduler in virtual time."""
