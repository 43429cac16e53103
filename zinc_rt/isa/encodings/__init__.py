"""How each encoding is decoded: fields of its words to operands and modifiers."""
