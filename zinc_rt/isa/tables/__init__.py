"""Opcode tables."""
