"""Write the tokenizer of a GGUF file in Hugging Face's format, for clients that count or split tokens themselves.

    python3 ci/hugging_face_files.py M.gguf FOLDER

Byte-level BPE vocabularies only. What is written is held against the runtime's own tokenizer before it is used.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.model.tokenizer.pretokenizers import SPLITS, find_pretokenizer

CONTROL = 3  # tokenizer.ggml.token_type (llama.cpp include/llama.h, llama_token_attr of old: normal 1, control 3)
USER_DEFINED = 4
SAMPLES = ("Hello, world! 12345", "naïve  ünïcode\n\tdéjà vu — 你好", "def f(x):\n    return x ** 2  # it's\n")


def write_files(gguf: Path, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and config.json. Raise UnsupportedError if the files would
    tokenize a text differently from the runtime.
    """
    metadata = read_gguf(gguf).metadata
    ours = Tokenizer.from_metadata(metadata)
    theirs = tokenizer_record(metadata)
    for text in SAMPLES:
        if theirs.encode(text, add_special_tokens=False).ids != ours.encode(text, add_special=False):
            raise UnsupportedError(f"{gguf}: cannot convert the tokenizer to Hugging Face's files (at {text!r})")
    folder.mkdir(parents=True, exist_ok=True)
    theirs.save(str(folder / "tokenizer.json"))
    texts = metadata["tokenizer.ggml.tokens"]
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 1 << 20,
        "chat_template": metadata.get("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
    }
    for role, id in (("bos_token", ours.bos_id), ("eos_token", ours.eos_id), ("pad_token", ours.eos_id)):
        config[role] = None if id is None else texts[id]
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}), encoding="utf-8")


def tokenizer_record(metadata: Any) -> tokenizers.Tokenizer:
    texts, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    pre = find_pretokenizer(metadata["tokenizer.ggml.pre"])
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    ids = {text: id for id, text in enumerate(texts)}
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, merges, ignore_merges=pre.ignore_merges))
    splits = [pre_tokenizers.Split(tokenizers.Regex(stage), "isolated") for stage in SPLITS[pre.split]]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    for id, kind in enumerate(kinds):
        if kind in (CONTROL, USER_DEFINED):
            tokenizer.add_tokens([tokenizers.AddedToken(texts[id], special=kind == CONTROL, normalized=False)])
    return tokenizer


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), Path(sys.argv[2]))
