"""Invariants that hold at every step boundary, and a shadow device that tracks the owner of every page."""
