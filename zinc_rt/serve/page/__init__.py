"""The chat page and the engine page."""
