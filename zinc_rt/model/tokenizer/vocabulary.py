"""The tokens of a GGUF file: their texts, scores, types and special roles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from zinc_rt.model.tokenizer import fields
from zinc_rt.model.tokenizer.fields import Metadata, make_metadata_error

PREFIX = "tokenizer.ggml."

# enum llama_token_attr in llama.cpp include/llama.h
UNKNOWN, UNUSED, NORMAL, CONTROL, USER_DEFINED, BYTE = (1 << bit for bit in range(6))
LSTRIP, RSTRIP = 1 << 7, 1 << 8

_KIND_OF_TYPE = {1: NORMAL, 2: UNKNOWN, 3: CONTROL, 4: USER_DEFINED, 5: UNUSED, 6: BYTE}  # enum llama_token_type

# role -> metadata keys, the preferred one first
_ROLE_KEYS = {
    "bos": ("bos_token_id",),
    "eos": ("eos_token_id",),
    "eot": ("eot_token_id",),
    "eom": ("eom_token_id",),
    "unk": ("unknown_token_id",),
    "sep": ("seperator_token_id",),
    "pad": ("padding_token_id",),
    "mask": ("mask_token_id",),
    "fim_pre": ("fim_pre_token_id", "prefix_token_id"),
    "fim_suf": ("fim_suf_token_id", "suffix_token_id"),
    "fim_mid": ("fim_mid_token_id", "middle_token_id"),
    "fim_pad": ("fim_pad_token_id",),
    "fim_rep": ("fim_rep_token_id",),
    "fim_sep": ("fim_sep_token_id",),
}

# role -> texts that define it if the file does not, the likeliest first
_ROLE_TEXTS = {
    "eot": (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>",
        "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip

_END_TEXTS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip
_ALWAYS_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")  # o200k_harmony


@dataclass(slots=True)
class Vocabulary:
    """Token texts and types. `read_vocabulary` fills it once; it is read-only afterwards."""

    texts: list[str]
    ids: dict[str, int]
    kinds: list[int]  # UNKNOWN … BYTE, LSTRIP, RSTRIP or-ed, by id
    scores: np.ndarray  # float32 by id; zeros if the file has none
    roles: dict[str, int]
    end_ids: frozenset[int] = frozenset()  # end of generation
    warnings: list[str] = field(default_factory=list)

    def select_kind(self, token_kind: int) -> list[int]:
        """Return the ids whose kind has any bit of `token_kind`, ascending."""
        return [id for id, kind in enumerate(self.kinds) if kind & token_kind]


def read_vocabulary(metadata: Metadata, default_roles: dict[str, int]) -> Vocabulary:
    """Read the vocabulary in `metadata`; `default_roles` are the ids used if the file does not define them.

    Raise InputError for a missing or malformed list and for duplicate tokens.
    """
    texts = fields.read_strings(metadata, PREFIX + "tokens")
    if not texts:
        raise make_metadata_error(f"{PREFIX}tokens: the texts of the vocabulary's tokens are missing")
    texts = [text or f"[EMPTY_{id}]" for id, text in enumerate(texts)]
    ids = {text: id for id, text in enumerate(texts)}
    if len(ids) != len(texts):
        twice, later = next((text, id) for id, text in reversed(list(enumerate(texts))) if ids[text] != id)
        raise make_metadata_error(f"{PREFIX}tokens: {twice!r} occurs twice, as {later} and {ids[twice]}")
    vocabulary = Vocabulary(
        texts=texts,
        ids=ids,
        kinds=_read_kinds(metadata, len(texts)),
        scores=_read_scores(metadata, len(texts)),
        roles={},
    )
    _read_roles(vocabulary, metadata, default_roles)
    _find_roles(vocabulary)
    _find_ends(vocabulary)
    _set_strips(vocabulary, metadata)
    return vocabulary


def _check_length(key: str, array: np.ndarray, count: int) -> np.ndarray:
    if len(array) < count:
        raise make_metadata_error(f"{key}: expected one entry per token ({count}), got {len(array)}")
    return array[:count]


def _read_kinds(metadata: Metadata, count: int) -> list[int]:
    key = PREFIX + "token_type"
    types = fields.read_numbers(metadata, key, kinds="iu")
    if types is None:
        return [NORMAL] * count
    return [_KIND_OF_TYPE.get(kind, 0) for kind in _check_length(key, types, count).tolist()]


def _read_scores(metadata: Metadata, count: int) -> np.ndarray:
    key = PREFIX + "scores"
    scores = fields.read_numbers(metadata, key, kinds="iuf")
    if scores is None:
        return np.zeros(count, np.float32)
    scores = _check_length(key, scores, count).astype(np.float32)
    if np.isnan(scores).any():
        raise make_metadata_error(f"{key}: score of token {int(np.isnan(scores).argmax())} is not a number")
    return scores


def _read_roles(vocabulary: Vocabulary, metadata: Metadata, defaults: dict[str, int]) -> None:
    count = len(vocabulary.texts)
    for role, keys in _ROLE_KEYS.items():
        if defaults.get(role, count) < count:
            vocabulary.roles[role] = defaults[role]
        for key in reversed(keys):
            id = fields.read_integer(metadata, PREFIX + key)
            if id is None:
                continue
            if 0 <= id < count:
                vocabulary.roles[role] = id
            else:
                # Real files contain padding ids such as -1 or one past the end: llama.cpp ignores them too.
                vocabulary.warnings.append(f"{PREFIX}{key} is {id}, outside the {count} tokens: ignored")


def _set_kind(vocabulary: Vocabulary, id: int, kind: int) -> None:
    vocabulary.kinds[id] |= kind


def _find_roles(vocabulary: Vocabulary) -> None:
    for role, candidates in _ROLE_TEXTS.items():
        if role in vocabulary.roles:
            continue
        id = _find_first_present(vocabulary, candidates)
        if id is not None:
            vocabulary.roles[role] = id
            _set_kind(vocabulary, id, CONTROL)


def _find_first_present(vocabulary: Vocabulary, candidates: Sequence[str]) -> int | None:
    return next((vocabulary.ids[text] for text in candidates if text in vocabulary.ids), None)


def _find_present_ids(vocabulary: Vocabulary, candidates: Iterable[str]) -> list[int]:
    return [vocabulary.ids[text] for text in candidates if text in vocabulary.ids]


def _find_ends(vocabulary: Vocabulary) -> None:
    ends = {vocabulary.roles[role] for role in ("fim_pad", "fim_rep", "fim_sep") if role in vocabulary.roles}
    for id in _find_present_ids(vocabulary, _END_TEXTS):
        ends.add(id)
        _set_kind(vocabulary, id, CONTROL)
    for id in _find_present_ids(vocabulary, _ALWAYS_SHOWN):
        vocabulary.kinds[id] = USER_DEFINED
    ends |= {vocabulary.roles[role] for role in ("eos", "eot", "eom") if role in vocabulary.roles}

    texts = {vocabulary.texts[id] for id in ends}
    if "<|end|>" in texts and texts & {"<|call|>", "<|calls|>"} and texts & {"<|return|>", "<|flush|>"}:
        # o200k_harmony and solar-open: <|end|> ends a message, not the generation.
        ends.discard(vocabulary.ids["<|end|>"])
        vocabulary.kinds[vocabulary.ids["<|end|>"]] = USER_DEFINED
    if {"<|tool_response>", "</s>"} <= texts:
        # gemma4: </s> is an ordinary token there.
        ends.discard(vocabulary.ids["</s>"])
        vocabulary.kinds[vocabulary.ids["</s>"]] = NORMAL
    vocabulary.end_ids = frozenset(ends)


def _set_strips(vocabulary: Vocabulary, metadata: Metadata) -> None:
    """Mark tokens that absorb adjacent white space. Files do not define them, so they depend on the model name."""
    pre = fields.read_text(metadata, PREFIX + "pre") or ""
    architecture = fields.read_text(metadata, "general.architecture") or ""
    name = (fields.read_text(metadata, "general.name") or "").lower()
    if any(part in pre for part in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or any(
        part in architecture for part in ("nomic-bert-moe", "jina-bert-v3")
    ):
        for id in _find_present_ids(vocabulary, ["<mask>"]):
            _set_kind(vocabulary, id, LSTRIP)
    elif "phi-3" in name or "phi3" in name:
        kept = set(_find_present_ids(vocabulary, ["<unk>", "<s>", "<|endoftext|>"]))
        stripping = {
            *vocabulary.select_kind(CONTROL | USER_DEFINED | UNKNOWN),
            *_find_present_ids(vocabulary, ["</s>"]),
        }
        for id in stripping - kept:
            _set_kind(vocabulary, id, RSTRIP)
    elif "modern-bert" in name:
        for id in _find_present_ids(vocabulary, ["[MASK]"]):
            _set_kind(vocabulary, id, LSTRIP)
