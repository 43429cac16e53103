"""Decoders of the instruction encodings: they turn bit fields into operands and modifiers."""
