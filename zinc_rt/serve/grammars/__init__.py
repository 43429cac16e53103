"""Answers that follow a grammar: masks of tokens by llguidance."""
