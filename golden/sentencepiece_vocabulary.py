"""Train a vocabulary with Google's sentencepiece and record its output for TEXTS. `python -m
zinc_rt.golden.sentencepiece_vocabulary` writes sentencepiece.gguf, which contains no tensors, and
sentencepiece.json.

No embedded model has such a vocabulary, and llama.cpp implements it separately.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

from zinc_rt.golden.embedded import VOCABULARY
from zinc_rt.golden.llama_cpp.tokenizer_texts import TEXTS
from zinc_rt.golden.tiny_models.vocabulary import BYTE, CONTROL, NORMAL, TEXT, UNKNOWN, TinyVocabulary
from zinc_rt.golden.tiny_models.writer import ModelContent, write_content
from zinc_rt.host.errors import UnsupportedError

SIZE = 480  # 256 bytes, the paragraph's characters, and what merges of them
# As the files of Llama 2, Mistral and Gemma are made, but that text is not normalised: llama.cpp does not either.
TRAINING: dict[str, Any] = {
    "model_type": "bpe",
    "vocab_size": SIZE,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": True,
    "character_coverage": 1.0,
    "allow_whitespace_only_pieces": True,
    "minloglevel": 2,
}


def train_model() -> Any:
    """Return the trained processor, which is the same each time. Raises UnsupportedError if sentencepiece
    is not installed."""
    try:
        import sentencepiece
    except ImportError:
        raise UnsupportedError("sentencepiece is not installed", next="pip install sentencepiece") from None
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()), model_writer=model, **TRAINING
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def read_vocabulary(processor: Any) -> TinyVocabulary:
    """Return its pieces, scores and kinds, as in a GGUF file."""
    ids = range(processor.vocab_size())
    extra: dict[str, object] = {
        "ggml.bos_token_id": processor.bos_id(),
        "ggml.eos_token_id": processor.eos_id(),
        "ggml.unknown_token_id": processor.unk_id(),
        "ggml.add_bos_token": True,
        "ggml.add_space_prefix": True,
    }
    pieces = [processor.id_to_piece(id) for id in ids]
    scores = [processor.get_score(id) for id in ids]
    return TinyVocabulary(
        "llama", "default", pieces, [_token_kind(processor, id) for id in ids], extra, scores=scores
    )


def _token_kind(processor: Any, id: int) -> int:
    if processor.is_unknown(id):
        return UNKNOWN
    return CONTROL if processor.is_control(id) else BYTE if processor.is_byte(id) else NORMAL


def tokenize_texts(processor: Any) -> list[dict[str, Any]]:
    """Return the rows of a golden's `tokenizer` for each text."""
    rows = []
    for text in TEXTS:
        plain = processor.encode(text)
        rows.append({
            "text": text,
            "plain": plain,
            "special": [processor.bos_id(), *plain],
            "detok_plain": processor.decode(plain),
        })  # fmt: skip
    return rows


def write(model: Path, golden: Path) -> None:
    """Write both files atomically."""
    import sentencepiece

    processor = train_model()
    write_content(model, ModelContent("llama", {}, read_vocabulary(processor), {}), name="sentencepiece")
    fields = {
        "source": "sentencepiece",
        "version": sentencepiece.__version__,
        "command": "python -m zinc_rt.golden.sentencepiece_vocabulary",
        "tokenizer": tokenize_texts(processor),
    }
    golden.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        write(VOCABULARY.model, VOCABULARY.golden)
    except UnsupportedError as error:
        sys.exit(str(error))
