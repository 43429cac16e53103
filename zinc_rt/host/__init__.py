"""Modules that every package may import: files, locks, caches, settings, facts, the terminal. It imports only
errors."""
