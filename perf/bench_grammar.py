"""What a grammar costs over a real vocabulary: compiling it, one mask, a token accepted; the host's time alone.

ZINC_RT_TEST_DATA=DIR python3 ci/run.py bench perf/bench_grammar.py     # DIR/vocab/ggml-vocab-qwen2.gguf
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.serve.grammars.grammar import GrammarCompiler, GrammarVocabulary
from zinc_rt.serve.grammars.grammar_spec import GrammarSpec

ORDER = {
    "type": "object",
    "properties": {
        "customer": {"type": "string"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
                    "count": {"type": "integer"},
                },
                "required": ["sku", "count"],
            },
        },
        "paid": {"type": "boolean"},
    },
    "required": ["customer", "lines", "paid"],
}  # fmt: skip
ANSWER = json.dumps(
    {"customer": "Ada Lovelace", "lines": [{"sku": "ABC-1234", "count": 3}] * 8, "paid": True}, indent=1
)
SPEC = GrammarSpec("json_schema", json.dumps(ORDER))


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    folder = os.environ.get("ZINC_RT_TEST_DATA")
    if not folder:
        pytest.skip("ZINC_RT_TEST_DATA is not set: it names the folder with the outside test data")
    tokenizer = Tokenizer.from_metadata(read_gguf(Path(folder) / "vocab" / "ggml-vocab-qwen2.gguf").metadata)
    made = GrammarCompiler(tokenizer, tokenizer.vocab_size)
    made.vocabulary()
    return made


def test_vocabulary(benchmark: Any, compiler: GrammarCompiler) -> None:
    """Once a model: its 151,936 tokens as llguidance has them."""
    benchmark.pedantic(GrammarVocabulary, (compiler.tokenizer, compiler.vocab), rounds=3)


def test_compile(benchmark: Any, compiler: GrammarCompiler) -> None:
    """With the first mask, the slowest."""
    benchmark(compiler.compile, SPEC)


def test_masks_of_an_answer(benchmark: Any, compiler: GrammarCompiler) -> None:
    """A mask and a token, over a whole answer; `tokens` of them."""
    tokens = compiler.tokenizer.encode(ANSWER, add_special=False)
    grammar, words = compiler.compile(SPEC), np.zeros(-(-compiler.vocab // 32), np.int32)

    def answer() -> None:
        own = grammar.fork()
        for token in tokens:
            own.fill(words)
            own.accept(token)
        assert own.failure == ""

    benchmark.extra_info["tokens"] = len(tokens)
    benchmark(answer)
