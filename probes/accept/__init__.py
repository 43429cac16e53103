"""Acceptance of a board: its specification, work with known results, sensors under load."""
