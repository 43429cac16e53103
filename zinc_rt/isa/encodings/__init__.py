"""Decoders of the encodings: fields of their words to operands and modifiers."""
