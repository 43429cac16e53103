"""Tokenizers from GGUF metadata: `Tokenizer.from_metadata(metadata)`.

Separate files contain the vocabulary, the splitting of text at special tokens and into words, and one engine for
each kind of tokenizer (ranked merges, scored merges, Unigram).
"""

from zinc_rt.model.tokenizer.tokenizer import StreamDecoder, Tokenizer

__all__ = ["StreamDecoder", "Tokenizer"]
