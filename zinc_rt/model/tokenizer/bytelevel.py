"""GPT-2's alphabet: one printable character for each of the 256 bytes."""

from __future__ import annotations


def _alphabet() -> dict[str, int]:
    """Character -> byte: printable Latin-1 stands for itself, the rest is numbered from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


BYTE_OF_CHAR = _alphabet()


def decode(token: str) -> bytes:
    """The bytes a byte-level token stands for; a token with a foreign character is its own UTF-8."""
    try:
        return bytes([BYTE_OF_CHAR[char] for char in token])
    except KeyError:
        return token.encode()
