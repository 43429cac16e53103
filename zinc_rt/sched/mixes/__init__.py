"""Seeded mixes of requests and events, and their runs on the scheduler."""
