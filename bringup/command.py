"""Bring a card up step by step."""
