"""Convert text to token ids and back, from GGUF metadata alone."""

from __future__ import annotations

import codecs
import functools
import operator
import re
from collections.abc import Callable, Iterable
from typing import Protocol

from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.model.tokenizer import fields
from zinc_rt.model.tokenizer.bpe import BPE, decode_byte_level
from zinc_rt.model.tokenizer.fields import Metadata, make_metadata_error
from zinc_rt.model.tokenizer.pretokenizers import Pretokenizer, find_pretokenizer
from zinc_rt.model.tokenizer.spm import SPM
from zinc_rt.model.tokenizer.unigram import Unigram
from zinc_rt.model.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    LSTRIP,
    NORMAL,
    PREFIX,
    RSTRIP,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    read_vocabulary,
)
from zinc_rt.model.tokenizer.wordpiece import WordPiece

SPACE = " \t\n\v\f\r"  # isspace in the C locale

Fragment = str | int
"""Text still to be tokenized, or the id of a special token."""


class Partitioner:
    """Splitter of text at the special tokens of a vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        special = vocabulary.select_kind(CONTROL | USER_DEFINED | UNKNOWN)
        special.sort(key=lambda id: -len(vocabulary.texts[id].encode()))
        self._special = [(vocabulary.texts[id], id, vocabulary.kinds[id]) for id in special]

    @property
    def control_texts(self) -> frozenset[str]:
        """Return the texts that become control or unknown tokens."""
        return frozenset(text for text, _, kind in self._special if kind & (CONTROL | UNKNOWN))

    def split(self, text: str, *, parse_special: bool) -> list[Fragment]:
        """Return the fragments of `text` in order, without empty ones."""
        fragments: list[Fragment] = [text] if text else []
        for token, id, kind in self._special:
            if token not in text or (not parse_special and kind & (CONTROL | UNKNOWN)):
                continue
            after: list[Fragment] = []
            for fragment in fragments:
                if isinstance(fragment, str):
                    after += _split_at_token(fragment, token, id, kind)
                else:
                    after.append(fragment)
            fragments = after
        return fragments


def _split_at_token(text: str, token: str, id: int, kind: int) -> list[Fragment]:
    pieces: list[Fragment] = []
    first, *rest = text.split(token)
    if kind & LSTRIP and rest:
        first = first.rstrip(SPACE)
    if first:
        pieces.append(first)
    for index, piece in enumerate(rest, 1):
        pieces.append(id)
        if kind & RSTRIP:
            piece = piece.lstrip(SPACE)
        if kind & LSTRIP and index < len(rest):
            piece = piece.rstrip(SPACE)
        if piece:
            pieces.append(piece)
    return pieces


_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"
# Replacements of llama.cpp's detokenizer (`llama_vocab::impl::detokenize`), in this order.
_TIDY = ((b" (?=[?!.,])", b""), (b" ' ", b"'"), (b" (?='(?:[sm]|re|ve))", b""))

# Default ids of each tokenizer model (llama.cpp, `llama_vocab::impl::load`).
# gpt2's are Falcon's (11): they apply only if the file requests them with add_bos_token or add_eos_token.
_DEFAULT_ROLES = {
    "gpt2": {},
    "gemma4": {},
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
}
_GPT2_BOS_EOS = 11


class _Model(Protocol):
    def encode(self, text: str, *, after_special: bool) -> list[int]: ...


class StreamDecoder:
    """Decoder that buffers the bytes of an incomplete UTF-8 character until the rest arrives."""

    def __init__(self, piece_bytes: Callable[[int], bytes]) -> None:
        self._piece_bytes = piece_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, id: int) -> str:
        """Return the characters completed by token `id`, possibly none. Invalid bytes become U+FFFD."""
        return self._decoder.decode(self._piece_bytes(id))

    def flush(self) -> str:
        """Return the rest at the end: U+FFFD for an incomplete character, else nothing. The decoder can then be
        reused."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


class Tokenizer:
    """A tokenizer with the same results as llama.cpp's for the same file."""

    def __init__(
        self, model: str, vocabulary: Vocabulary, engine: _Model, *, pre: Pretokenizer | None, metadata: Metadata
    ) -> None:
        self.model = model
        self.pre = pre
        self.vocab_size = len(vocabulary.texts)
        self.longest = max(map(len, vocabulary.texts), default=1)
        self.warnings = tuple(vocabulary.warnings)
        self.add_bos, self.add_eos, self.add_sep = _read_additions(model, pre, vocabulary, metadata)
        self.bos_id = vocabulary.roles.get("bos")
        self.eos_id = vocabulary.roles.get("eos")
        self.eot_id = vocabulary.roles.get("eot")
        self.eom_id = vocabulary.roles.get("eom")
        self.unk_id = vocabulary.roles.get("unk")
        self.sep_id = vocabulary.roles.get("sep")
        self.pad_id = vocabulary.roles.get("pad")
        self.mask_id = vocabulary.roles.get("mask")
        self.infill_ids = tuple(vocabulary.roles.get(role) for role in ("fim_pre", "fim_suf", "fim_mid"))
        self.eog_ids = vocabulary.end_ids
        self.add_space_prefix = _read_space_prefix(model, metadata)
        self._vocabulary = vocabulary
        self._engine = engine
        self._partitioner = Partitioner(vocabulary)
        self._pieces: dict[int, bytes] = {}
        self._byte_level = pre is not None and pre.byte_level
        self._spaces_escaped = pre is None or pre.escape_spaces

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> Tokenizer:
        """Create the tokenizer that GGUF metadata (key -> str, int, float, bool, list or NumPy array) describes.

        Raise InputError for malformed metadata, UnsupportedError for an unsupported tokenizer model or
        pre-tokenizer.
        """
        model = fields.read_text(metadata, PREFIX + "model")
        if model is None:
            raise make_metadata_error(f"{PREFIX}model: the tokenizer's kind is missing")
        if model not in _DEFAULT_ROLES:
            raise UnsupportedError(
                f"{PREFIX}model is {model!r}: this build supports {', '.join(sorted(_DEFAULT_ROLES))}",
                next="use a model with one of these tokenizers",
            )
        pre_name = fields.read_text(metadata, PREFIX + "pre")
        pre: Pretokenizer | None = None
        if model == "gemma4":
            pre = find_pretokenizer("gemma4")
        elif model == "gpt2":
            pre = find_pretokenizer(pre_name or "default")
        vocabulary = read_vocabulary(metadata, _DEFAULT_ROLES[model])
        if model == "gpt2" and not pre_name:
            vocabulary.warnings.append(
                f"{PREFIX}pre is missing: text is split as 'default', which may differ from the model's training"
            )
        engine: _Model
        if pre is not None:
            engine = BPE(vocabulary, metadata, pre)
        elif model == "t5":
            engine = Unigram(vocabulary, metadata)
        elif model == "bert":
            engine = WordPiece(vocabulary)
        else:
            engine = SPM(vocabulary, add_space_prefix=_read_space_prefix(model, metadata))
        return cls(model, vocabulary, engine, pre=pre, metadata=metadata)

    def encode(
        self,
        text: str,
        *,
        add_special: bool = True,
        parse_special: bool = True,
        continues: bool = False,
        ignored: str = "",
    ) -> list[int]:
        """Encode `text` to token ids.

        `add_special` adds the tokens that the file requires at the start and end. `parse_special` converts the
        texts of control tokens to those tokens; user-defined tokens are always recognised. `continues`: the text
        continues an earlier one, so no space is prepended. `ignored`: a character that prevents the recognition
        of a special token that it is part of, and has no tokens itself. Raise InputError for lone surrogates.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"the text is not valid Unicode: lone surrogate U+{ord(text[error.start]):04X} at {error.start}",
                next="decode the bytes with errors='replace' first",
            ) from None
        ids: list[int] = []
        if add_special and self.add_bos and self.bos_id is not None:
            ids.append(self.bos_id)
        after_special = not continues
        for fragment in self._partitioner.split(text, parse_special=parse_special):
            if isinstance(fragment, int):
                ids.append(fragment)
                after_special = True
            elif fragment := fragment.replace(ignored, "") if ignored else fragment:
                ids += self._engine.encode(fragment, after_special=after_special)
                after_special = False
        if add_special and self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        if add_special and self.model == "bert" and self.sep_id is not None:
            ids.append(self.sep_id)
        return ids

    def encode_infill(self, before: str, after: str) -> list[int]:
        """Encode the texts around a gap that the model is to fill: prefix, suffix, middle, as llama.cpp's /infill.

        Control tokens in the texts are text. Raise UnsupportedError if the vocabulary has no tokens for this.
        """
        prefix, suffix, middle = self.infill_ids
        if prefix is None or suffix is None or middle is None:
            raise UnsupportedError("this model cannot fill in text: its vocabulary has no tokens for it")
        start = [self.bos_id] if self.add_bos and self.bos_id is not None else []
        texts = [
            self.encode(text, add_special=False, parse_special=False, continues=True) for text in (before, after)
        ]
        return [*start, prefix, *texts[0], suffix, *texts[1], middle]

    def decode(self, ids: Iterable[int], *, skip_special: bool = False, tidy: bool = False) -> str:
        """Decode `ids` to text. Bytes that are not UTF-8 become U+FFFD. Raise InputError for an id outside the
        vocabulary.

        `skip_special` omits control and unknown tokens. The space that `encode` prepended to the first word is
        removed. `tidy` also removes spaces before punctuation if llama.cpp's detokenizer does so for this
        pre-tokenizer (`pre.clean_spaces`); the text may then differ from the encoded text.
        """
        text = self.decode_bytes(ids, skip_special=skip_special)
        if tidy and (self.model == "bert" or (self.pre is not None and self.pre.clean_spaces)):
            for spaced, tidied in _TIDY:
                text = re.sub(spaced, tidied, text)
        return text.decode(errors="replace")

    def decode_bytes(self, ids: Iterable[int], *, skip_special: bool = False) -> bytes:
        """Decode `ids` to bytes, which need not be UTF-8."""
        pieces = []
        first = True
        for id in ids:
            piece = self.piece_bytes(id)
            if skip_special and self.is_special(id):
                continue
            if first and self.add_space_prefix:
                piece = piece.removeprefix(b" ")
            first = False
            pieces.append(piece)
        return b"".join(pieces)

    def stream_decoder(self) -> StreamDecoder:
        """Return a decoder for tokens that arrive one by one. Leading spaces are kept, because continued text
        needs them."""
        return StreamDecoder(self.piece_bytes)

    def piece(self, id: int) -> str:
        """Return the text of one token; U+FFFD if it is only a part of a character."""
        return self.piece_bytes(id).decode(errors="replace")

    def piece_bytes(self, id: int) -> bytes:
        """Return the bytes of one token; for control tokens, their name. Raise InputError for an id outside the
        vocabulary."""
        id = self._check_id(id)
        piece = self._pieces.get(id)
        if piece is None:
            piece = self._pieces[id] = self._spell(id)
        return piece

    def token_text(self, id: int) -> str:
        """Return the token as spelled in the file."""
        return self._vocabulary.texts[self._check_id(id)]

    def id_of(self, token_text: str) -> int | None:
        """Return the id of a token as spelled in the file."""
        return self._vocabulary.ids.get(token_text)

    @functools.cached_property
    def control_texts(self) -> frozenset[str]:
        """Return the texts that `encode` converts to control tokens."""
        return self._partitioner.control_texts

    def added_id(self, token_text: str) -> int | None:
        """Return the id of a control or user-defined token, to which no ordinary text is encoded; else None."""
        id = self.id_of(token_text)
        added = id is not None and self._vocabulary.kinds[id] & (CONTROL | USER_DEFINED)
        return id if added else None

    def is_special(self, id: int) -> bool:
        """Return whether the token is a control or unknown token."""
        return bool(self._vocabulary.kinds[self._check_id(id)] & (CONTROL | UNKNOWN))

    def _check_id(self, id: int) -> int:
        try:
            number = operator.index(id)
        except TypeError:
            number = -1
        if isinstance(id, bool) or not 0 <= number < self.vocab_size:
            raise InputError(
                f"token id {id!r} is not in the vocabulary of {self.vocab_size} tokens",
                next=f"use ids 0 to {self.vocab_size - 1}; was this text tokenized with another model?",
            )
        return number

    def _spell(self, id: int) -> bytes:
        """Return the bytes of a token as `llama_vocab::impl::token_to_piece` does; unused and undefined tokens
        have no text."""
        text, kind = self._vocabulary.texts[id], self._vocabulary.kinds[id]
        if kind & (CONTROL | UNKNOWN | USER_DEFINED):
            return text.encode()
        if kind & NORMAL:
            if self._byte_level:
                return decode_byte_level(text)
            return text.replace(_SPACE, " ").encode() if self._spaces_escaped else text.encode()
        if kind & BYTE:
            match = _BYTE_TOKEN.fullmatch(text)
            return bytes([int(match[1], 16)]) if match else text.encode()
        return b""


def _read_space_prefix(model: str, metadata: Metadata) -> bool:
    return fields.read_flag(metadata, PREFIX + "add_space_prefix", model == "llama")


def _read_additions(
    model: str, pre: Pretokenizer | None, vocabulary: Vocabulary, metadata: Metadata
) -> tuple[bool, bool, bool]:
    """Return (add_bos, add_eos, add_sep). Raise an error if one is required but not defined in the file."""
    defaults = {
        "bos": model in ("llama", "bert") or (pre is not None and pre.add_bos),
        "eos": model == "t5",
        "sep": model == "bert" or (pre is not None and pre.add_sep),
    }
    if model == "bert":  # llama.cpp ignores the file's flags
        metadata = {}
    added = {role: fields.read_flag(metadata, f"{PREFIX}add_{role}_token", on) for role, on in defaults.items()}
    if pre is not None and pre.force_bos:
        added["bos"] = True
    for role, on in added.items():
        if not on or role in vocabulary.roles:
            continue
        if model == "gpt2" and role != "sep" and len(vocabulary.texts) > _GPT2_BOS_EOS:
            vocabulary.roles[role] = _GPT2_BOS_EOS
            continue
        key = "seperator" if role == "sep" else role
        raise make_metadata_error(f"{PREFIX}add_{role}_token is set, but {PREFIX}{key}_token_id is not a token")
    return added["bos"], added["eos"], added["sep"]
