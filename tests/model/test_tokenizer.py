"""Tokenizers against llama.cpp's ids, and against everything a file or a text can get wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from zinc_rt.host.errors import InputError, UnsupportedError, ZincError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import StreamDecoder, Tokenizer
from zinc_rt.model.tokenizer.bpe import BYTE_OF_CHAR
from zinc_rt.model.tokenizer.pretokenizers import PRES, SPLITS

K = "tokenizer.ggml."
BYTES = [char for char, _ in sorted(BYTE_OF_CHAR.items(), key=lambda pair: pair[1])]
GOLDEN_MODELS = [
    "llama",
    "mistral",
    "mixtral",
    "mistral3",
    "qwen2",
    "qwen3",
    "qwen3moe",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "phi3",
    "phi3long",
    "gemma3",
    "gemma4",
    "gemma4moe",
    "deepseek2",
    "deepseek2lite",
    "mamba",
]
VOCABULARIES = ["deepseek-llm", "gemma-4", "gpt-2", "llama-bpe", "llama-spm", "qwen2"]


@cache
def tokenizer_of(path: Path) -> Tokenizer:
    return Tokenizer.from_metadata(read_gguf(path).metadata)


def bpe_metadata(pre: str = "gpt-2", **changes: Any) -> dict[str, Any]:
    """Metadata of a byte-level vocabulary: 256 bytes, four merged tokens, four special ones."""
    tokens = [*BYTES, "he", "ll", "hell", "Ġhell", "<s>", "</s>", "<|im_end|>", "<user>"]
    metadata = {
        K + "model": "gpt2",
        K + "pre": pre,
        K + "tokens": tokens,
        K + "token_type": np.array([1] * 260 + [3, 3, 3, 4], np.int32),
        K + "merges": ["h e", "l l", "he ll", "Ġ hell"],
        K + "bos_token_id": 260,
        K + "eos_token_id": 261,
        K + "seperator_token_id": 261,
    }
    return {key: value for key, value in (metadata | changes).items() if value is not None}


def spm_metadata(**changes: Any) -> dict[str, Any]:
    """Metadata of a SentencePiece vocabulary with byte fallback."""
    words = ["▁", "a", "b", "c", "ab", "bc", "abc", "▁a", "▁ab"]
    scores = [-9.0, -9, -9, -9, -3, -2, -1, -5, -4]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    metadata = {
        K + "model": "llama",
        K + "tokens": tokens,
        K + "scores": np.array([0.0] * 259 + scores, np.float32),
        K + "token_type": [2, 3, 3] + [6] * 256 + [1] * len(words),
    }
    return {key: value for key, value in (metadata | changes).items() if value is not None}


def unigram_metadata(**changes: Any) -> dict[str, Any]:
    metadata = {
        K + "model": "t5",
        K + "tokens": ["<pad>", "</s>", "<unk>", "▁", "a", "b", "ab", "▁ab", "<x>"],
        K + "scores": np.array([0, 0, 0, -2, -3, -3, -4, -5, 0], np.float32),
        K + "token_type": [3, 3, 2, 1, 1, 1, 1, 1, 4],
        K + "add_space_prefix": True,
        K + "remove_extra_whitespaces": True,
    }
    return {key: value for key, value in (metadata | changes).items() if value is not None}


@pytest.mark.parametrize("add_bos", [False, True])
def test_infill_puts_the_gap_between_prefix_and_suffix(add_bos: bool) -> None:
    """The same ids as the three tokens written as text between the parts; inside them, they are text."""
    names = {"fim_pre_token_id": "<s>", "fim_suf_token_id": "</s>", "fim_mid_token_id": "<|im_end|>"}
    metadata = bpe_metadata(**{K + "add_bos_token": add_bos})
    ids = {K + name: metadata[K + "tokens"].index(text) for name, text in names.items()}
    tokenizer = Tokenizer.from_metadata(metadata | ids)
    want = tokenizer.encode("<s>hello(</s>) hell<|im_end|>")
    assert tokenizer.encode_infill("hello(", ") hell") == want
    inside = tokenizer.encode_infill("a</s>b", "")
    assert inside.count(ids[K + "fim_suf_token_id"]) == 1
    with pytest.raises(UnsupportedError, match="cannot fill in text"):
        Tokenizer.from_metadata(metadata).encode_infill("a", "b")


# Against llama.cpp


@pytest.mark.parametrize("model", GOLDEN_MODELS)
def test_golden_rows_agree_with_llama_cpp(data_dir: Path, model: str) -> None:
    rows = json.loads((data_dir / "goldens" / "tokenizers.json").read_text())[model]
    tokenizer = tokenizer_of(data_dir / "goldens" / f"{model}-f32.gguf")
    assert len(rows) == 12
    for row in rows:
        assert tokenizer.encode(row["text"], add_special=False) == row["plain"], row["text"]
        assert tokenizer.encode(row["text"]) == row["special"], row["text"]
        assert tokenizer.decode(row["plain"]) == row["detok_plain"], row["text"]


def test_every_golden_model_is_in_the_test_list(data_dir: Path) -> None:
    assert set(json.loads((data_dir / "goldens" / "tokenizers.json").read_text())) == set(GOLDEN_MODELS)


@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.rest(keep=1)
def test_vocabulary_rows_agree_with_llama_cpp(data_dir: Path, name: str) -> None:
    path = data_dir / "vocab" / f"ggml-vocab-{name}.gguf"
    tokenizer = tokenizer_of(path)
    inputs = path.with_suffix(".gguf.inp").read_bytes().decode()
    texts = inputs.split("\n__ggml_vocab_test__\n")
    if inputs.endswith("\n__ggml_vocab_test__\n"):
        texts.pop()
    rows = path.with_suffix(".gguf.out").read_text().removesuffix("\n").split("\n")
    assert len(texts) == len(rows) > 40
    for text, row in zip(texts, rows, strict=True):
        want = [int(id) for id in row.split()]
        assert tokenizer.encode(text, add_special=False, parse_special=False) == want, text


RECORDED = json.loads((Path(__file__).parent / "pretokenizer_words.json").read_text())


@pytest.mark.parametrize("split", sorted(SPLITS))
def test_recorded_word_splits_are_reproduced(split: str) -> None:
    for text, want in zip(RECORDED["texts"], RECORDED["words"][split], strict=True):
        words = [text]
        for stage in SPLITS[split]:
            pre_tokenize: Callable[[str], list[str]]
            if isinstance(stage, str):
                splitter = pre_tokenizers.Split(Regex(stage), "isolated")

                def pre_tokenize(piece: str, splitter: Any = splitter) -> list[str]:
                    return [word for word, _ in splitter.pre_tokenize_str(piece)]
            else:
                pre_tokenize = stage
            words = [word for piece in words for word in pre_tokenize(piece)]
        assert words == want
        assert "".join(words) == text


# Meaning, on vocabularies small enough to follow by hand


def test_merges_apply_by_rank_within_words() -> None:
    tokenizer = Tokenizer.from_metadata(bpe_metadata())
    assert [tokenizer.piece(id) for id in tokenizer.encode("hell hello", add_special=False)] == [
        "hell",
        " hell",
        "o",
    ]


def test_scored_merges_take_the_best_score_first() -> None:
    tokenizer = Tokenizer.from_metadata(spm_metadata())
    assert [tokenizer.piece(id) for id in tokenizer.encode("abc", add_special=False)] == [" ", "abc"]
    assert [tokenizer.piece(id) for id in tokenizer.encode("ab", add_special=False)] == [" ab"]
    assert tokenizer.encode("é") == [1, 259, 3 + 0xC3, 3 + 0xA9]


def test_space_prefix_follows_only_special_tokens() -> None:
    tokenizer = Tokenizer.from_metadata(spm_metadata())
    assert [tokenizer.piece(id) for id in tokenizer.encode("ab</s>ab")] == ["<s>", " ab", "</s>", " ab"]
    bare = Tokenizer.from_metadata(spm_metadata(**{K + "add_space_prefix": False}))
    assert [bare.piece(id) for id in bare.encode("ab</s>ab")] == ["<s>", "ab", "</s>", "ab"]


def test_best_sum_wins_and_adjacent_unknowns_are_merged() -> None:
    tokenizer = Tokenizer.from_metadata(unigram_metadata())
    assert tokenizer.encode("ab  ab") == [7, 7, 1]
    assert tokenizer.encode("éèa") == [3, 2, 4, 1]
    assert tokenizer.encode("<x>a", add_special=False) == [8, 3, 4]


def test_gemma4_keeps_a_newline_run_that_is_one_token() -> None:
    tokens = ["<pad>", "<eos>", "<bos>", "a", "▁", "▁a", "\n", "\n\n", "\n\n\n", "<0xC3>", "<0xA9>"]
    tokenizer = Tokenizer.from_metadata(
        {
            K + "model": "gemma4",
            K + "tokens": tokens,
            K + "token_type": [3, 3, 3, 1, 1, 1, 1, 1, 1, 6, 6],
            K + "merges": ["▁ a"],
            K + "bos_token_id": 2,
            K + "eos_token_id": 1,
            K + "add_bos_token": False,
        }
    )
    assert tokenizer.encode("a\n\n\n aé") == [2, 3, 8, 5, 9, 10]
    assert tokenizer.encode("\n\n\n\n", add_special=False) == [6, 6, 6, 6]
    assert tokenizer.decode([3, 8, 5, 9, 10]) == "a\n\n\n aé"


def test_control_tokens_are_text_unless_parsed() -> None:
    tokenizer = Tokenizer.from_metadata(bpe_metadata())
    assert tokenizer.encode("<|im_end|><user>", add_special=False) == [262, 263]
    unparsed = tokenizer.encode("<|im_end|><user>", add_special=False, parse_special=False)
    assert unparsed[-1] == 263 and 262 not in unparsed
    assert tokenizer.decode(unparsed) == "<|im_end|><user>"


def test_longest_special_token_wins_wherever_it_starts() -> None:
    tokens = [*BYTES, "ab", "bcd"]
    metadata = bpe_metadata(**{K + "tokens": tokens, K + "token_type": [1] * 256 + [4, 4], K + "merges": []})
    tokenizer = Tokenizer.from_metadata({k: v for k, v in metadata.items() if not k.endswith("_id")})
    assert tokenizer.encode("abcd") == [ord("a"), 257]


def test_phi3_special_tokens_consume_following_whitespace() -> None:
    plain, phi3 = (Tokenizer.from_metadata(bpe_metadata(**{"general.name": name})) for name in ("x", "Phi-3-mini"))
    assert phi3.encode("<|im_end|> \n a") == [262, ord("a")]
    assert plain.encode("<|im_end|> \n a") != [262, ord("a")]


def test_special_tokens_are_added_only_as_the_file_requests() -> None:
    assert Tokenizer.from_metadata(bpe_metadata()).encode("h") == [ord("h")]
    assert Tokenizer.from_metadata(bpe_metadata("llama-bpe")).encode("h") == [260, ord("h")]
    asked = bpe_metadata(**{K + "add_bos_token": True, K + "add_eos_token": True})
    assert Tokenizer.from_metadata(asked).encode("") == [260, 261]
    assert Tokenizer.from_metadata(asked).encode("", add_special=False) == []


def test_end_of_generation_is_detected_by_role_and_by_text() -> None:
    assert Tokenizer.from_metadata(bpe_metadata()).eog_ids == {261, 262}
    harmony = [*BYTES, "<|return|>", "<|call|>", "<|end|>", "<|start|>"]
    tokenizer = Tokenizer.from_metadata(
        bpe_metadata(
            **{
                K + "tokens": harmony,
                K + "token_type": [1] * 256 + [3] * 4,
                K + "merges": [],
                K + "bos_token_id": 0,
            }
        )
        | {K + "eos_token_id": 256}
    )
    assert tokenizer.eog_ids == {256, 257}  # <|end|> ends a message only


def test_missing_pre_uses_default_split_with_a_warning() -> None:
    tokenizer = Tokenizer.from_metadata(bpe_metadata(**{K + "pre": None}))
    assert tokenizer.pre is not None and tokenizer.pre.split == "default"
    assert "default" in tokenizer.warnings[0]


# Decoding


def test_id_outside_the_vocabulary_is_an_input_error() -> None:
    tokenizer = Tokenizer.from_metadata(bpe_metadata())
    for bad in (264, -1, 1 << 40, True, 1.5, "1", None):
        with pytest.raises(InputError, match="not in the vocabulary of 264 tokens"):
            tokenizer.decode([bad])  # type: ignore[list-item]
    assert tokenizer.decode([np.int64(104)]) == "h"  # type: ignore[list-item]


def test_special_tokens_can_be_omitted() -> None:
    tokenizer = Tokenizer.from_metadata(spm_metadata())
    ids = tokenizer.encode("ab c")
    assert tokenizer.decode(ids) == "<s> ab c"
    assert tokenizer.decode(ids, skip_special=True) == "ab c"


def test_text_is_cleaned_up_only_on_request_and_only_like_llama_cpp() -> None:
    text = "a . b ! it 's ' x ' we 're don 't"
    for pre, want in (("gpt-2", "a. b! it's'x'we're don 't"), ("qwen2", text)):
        tokenizer = byte_tokenizer(pre)
        ids = tokenizer.encode(text, add_special=False)
        assert (tokenizer.decode(ids), tokenizer.decode(ids, tidy=True)) == (text, want)


def test_invalid_utf8_bytes_become_replacement_characters() -> None:
    tokenizer = Tokenizer.from_metadata(bpe_metadata())
    assert tokenizer.decode_bytes([0xE6, 0x97]) == b"\xe6\x97"
    assert tokenizer.decode([0xE6, 0x97, ord("x")]) == "\ufffdx"


def test_stream_never_emits_half_a_character() -> None:
    tokenizer = Tokenizer.from_metadata(bpe_metadata())
    stream = tokenizer.stream_decoder()
    assert isinstance(stream, StreamDecoder)
    shown = [stream.feed(byte) for byte in "日😀x".encode()]
    assert shown == ["", "", "日", "", "", "", "😀", "x"]
    assert stream.feed(0xE6) == "" and stream.flush() == "\ufffd" and stream.flush() == ""
    assert stream.feed(ord("a")) == "a"


@given(st.binary(max_size=40))
def test_stream_matches_decode(data: bytes) -> None:
    stream = byte_tokenizer("gpt-2").stream_decoder()
    assert "".join([stream.feed(byte) for byte in data] + [stream.flush()]) == data.decode(errors="replace")


# Any text


@cache
def byte_tokenizer(pre: str) -> Tokenizer:
    return Tokenizer.from_metadata(bpe_metadata(pre))


BYTE_LEVEL = sorted(pre.names[0] for pre in PRES if pre.byte_level)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.text(
    st.sampled_from("he llo\n\t '\"sSDdLl12٣½.,!~éÉßǅ中カ한ก\u0301\u200d\u3000\xa0\x85😀"), max_size=60
)


@pytest.mark.parametrize("pre", BYTE_LEVEL)
@given(text=TEXT)
@settings(max_examples=40, deadline=None)
@pytest.mark.rest(keep=1)
def test_byte_level_text_round_trips(pre: str, text: str) -> None:
    tokenizer = byte_tokenizer(pre)
    ids = tokenizer.encode(text, add_special=False)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(text, add_special=False) == ids


@pytest.mark.rest
@given(text=TEXT)
@settings(max_examples=150, deadline=None)
def test_scored_text_round_trips(text: str) -> None:
    tokenizer = Tokenizer.from_metadata(spm_metadata())
    ids = tokenizer.encode(text, add_special=False, parse_special=False)
    assert tokenizer.decode(ids) == text.replace("\u2581", " ")


@given(text=TEXT)
@settings(max_examples=150, deadline=None)
def test_unigram_accepts_any_text(text: str) -> None:
    tokenizer = Tokenizer.from_metadata(unigram_metadata())
    ids = tokenizer.encode(text)
    assert ids[-1] == 1 and ids == tokenizer.encode(text)
    assert not any(item == other == 2 for item, other in pairwise(ids)) or "<unk>" in text


def test_lone_surrogates_are_an_input_error() -> None:
    for metadata in (bpe_metadata(), spm_metadata(), unigram_metadata()):
        with pytest.raises(InputError, match="lone surrogate U\\+D800 at 1"):
            Tokenizer.from_metadata(metadata).encode("a\ud800b")


UNKIND = {
    "one letter": "a" * 100_000,
    "capitals": "A" * 100_000,
    "spaces, then a digit": " " * 100_000 + "5",
    "digits, then a letter": "1" * 100_000 + "a",
    "newlines": " \n" * 50_000,
    "apostrophes": "'" * 100_000,
    "marks": "a" + "\u0301" * 100_000,
    "special tokens": "<user>" * 16_000,
}


@pytest.mark.parametrize("pre", ["gpt-2", "deepseek-llm", "tekken", "superbpe", "tiny_aya", "exaone-moe", "afmoe"])
@pytest.mark.rest(keep=1)
def test_pathological_long_texts_encode_within_seconds(pre: str) -> None:
    tokenizer = byte_tokenizer(pre)
    for name, text in UNKIND.items():
        start = time.process_time()
        assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text
        assert time.process_time() - start < 20, name  # measured 0.05–0.2 s; quadratic would take minutes


@pytest.mark.parametrize("metadata", [spm_metadata(), unigram_metadata()], ids=["llama", "t5"])
@pytest.mark.rest
def test_pathological_long_texts_encode_within_seconds_without_merges(metadata: dict[str, Any]) -> None:
    tokenizer = Tokenizer.from_metadata(metadata)
    for name, text in (UNKIND | {"mergeable": "abc" * 33_000}).items():
        start = time.process_time()
        assert tokenizer.encode(text)
        assert time.process_time() - start < 20, name  # measured 0.1–0.5 s


# Any metadata


def pack_charsmap(*, trie: int, rest: bytes) -> list[int]:
    return list(trie.to_bytes(4, "little") + rest)


MALFORMED = {
    "no model": bpe_metadata(**{K + "model": None}),
    "model is a number": bpe_metadata(**{K + "model": 3}),
    "no tokens": bpe_metadata(**{K + "tokens": None}),
    "tokens empty": bpe_metadata(**{K + "tokens": []}),
    "tokens are one string": bpe_metadata(**{K + "tokens": "abc"}),
    "a token is a number": bpe_metadata(**{K + "tokens": ["a", 1]}),
    "a token is None": bpe_metadata(**{K + "tokens": [None, None]}),
    "a token is no Unicode": bpe_metadata(**{K + "tokens": ["\udc80"]}),
    "a token twice": bpe_metadata(**{K + "tokens": [*bpe_metadata()[K + "tokens"][:-1], "he"]}),
    "types too short": bpe_metadata(**{K + "token_type": np.ones(5, np.int32)}),
    "types are text": bpe_metadata(**{K + "token_type": ["x"] * 264}),
    "types are ragged": bpe_metadata(**{K + "token_type": [[1], [2, 3]]}),
    "types are floats": bpe_metadata(**{K + "token_type": np.ones(264, np.float32)}),
    "types are a table": bpe_metadata(**{K + "token_type": np.ones((264, 2), np.int32)}),
    "no merges": bpe_metadata(**{K + "merges": None}),
    "merges are numbers": bpe_metadata(**{K + "merges": np.arange(4)}),
    "merge without a space": bpe_metadata(**{K + "merges": ["he"]}),
    "merge with an empty half": bpe_metadata(**{K + "merges": ["h "]}),
    "merge of no token": bpe_metadata(**{K + "merges": ["xyz h"]}),
    "merge into no token": bpe_metadata(**{K + "merges": ["h x"]}),
    "pre is a number": bpe_metadata(**{K + "pre": 7}),
    "bos is text": bpe_metadata(**{K + "bos_token_id": "1"}),
    "bos is a flag": bpe_metadata(**{K + "bos_token_id": True}),
    "add_bos is a number": bpe_metadata(**{K + "add_bos_token": 1}),
    "add_sep without a separator": bpe_metadata(**{K + "add_sep_token": True, K + "seperator_token_id": None}),
    "scores too short": spm_metadata(**{K + "scores": np.zeros(3, np.float32)}),
    "a score is no number": spm_metadata(**{K + "scores": np.full(268, np.nan, np.float32)}),
    "bos expected, none found": spm_metadata(**{K + "tokens": ["a"], K + "scores": None, K + "token_type": None}),
    "unigram without unknown": unigram_metadata(
        **{K + "tokens": ["a", "b"], K + "scores": [0.0, 0.0], K + "token_type": [1, 1]}
    ),
    "charsmap too short": unigram_metadata(**{K + "precompiled_charsmap": [1, 2]}),
    "charsmap past its end": unigram_metadata(
        **{K + "precompiled_charsmap": pack_charsmap(trie=400, rest=b"x" * 40)}
    ),
    "charsmap is floats": unigram_metadata(**{K + "precompiled_charsmap": np.zeros(9, np.float32)}),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_metadata_is_an_input_error(name: str) -> None:
    with pytest.raises(InputError) as caught:
        Tokenizer.from_metadata(MALFORMED[name])
    assert "tokenizer.ggml." in str(caught.value) and "next:" in str(caught.value)


def test_charsmap_pointing_outside_its_trie_is_an_input_error() -> None:
    units = np.full(256, 1 << 20 << 10, np.uint32).tobytes()
    tokenizer = Tokenizer.from_metadata(
        unigram_metadata(**{K + "precompiled_charsmap": pack_charsmap(trie=len(units), rest=units + b"x\0")})
    )
    with pytest.raises(InputError, match="is outside the trie"):
        tokenizer.encode("abc")


@pytest.mark.parametrize("model", ["rwkv", "plamo2", "no_vocab", "whitespace", "hybriddna", "new"])
def test_unsupported_models_are_reported(model: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'{model}'"):
        Tokenizer.from_metadata(bpe_metadata(**{K + "model": model}))


def test_unknown_pre_error_lists_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match=r"'fancy-9'.*llama-bpe.*qwen35"):
        Tokenizer.from_metadata(bpe_metadata("fancy-9"))


def test_special_id_outside_the_vocabulary_is_ignored_with_a_warning() -> None:
    tokenizer = Tokenizer.from_metadata(bpe_metadata(**{K + "padding_token_id": 4294967295}))
    assert tokenizer.pad_id is None and "padding_token_id is 4294967295" in tokenizer.warnings[0]


def test_pre_tokenizer_names_are_unique() -> None:
    names = [name for pre in PRES for name in pre.names]
    assert len(names) == len(set(names)) and all(pre.split in SPLITS for pre in PRES)


ODD = st.sampled_from(
    [
        None,
        "",
        "x",
        -1,
        2**70,
        3.5,
        True,
        [],
        ["a"],
        ["a", "a"],
        [1],
        [None],
        {},
        b"\x00",
        np.zeros(0),
        np.zeros(3),
    ]
)


@pytest.mark.rest
@given(st.sampled_from([bpe_metadata, spm_metadata, unigram_metadata]), st.data())
@settings(max_examples=300, deadline=None)
def test_odd_metadata_never_prints_a_traceback(make: Callable[..., dict[str, Any]], data: st.DataObject) -> None:
    metadata = make()
    for key in data.draw(st.lists(st.sampled_from(sorted(metadata)), min_size=1, max_size=3)):
        metadata[key] = data.draw(ODD)
    try:
        tokenizer = Tokenizer.from_metadata(metadata)
        tokenizer.decode(tokenizer.encode("hell <s> é\n"))
    except ZincError as error:
        assert str(error)


def test_long_text_path_gives_the_same_tokens(monkeypatch: pytest.MonkeyPatch, qwen3: str) -> None:
    tokenizer = tokenizer_of(Path(qwen3))
    text = "It's 1234 words,\n\n  naïve 你好 <|im_start|>user\r\n" * 200
    long = tokenizer.encode(text)
    monkeypatch.setattr("zinc_rt.model.tokenizer.bpe.LONG_TEXT", 1 << 60)
    assert long == tokenizer.encode(text) and len(long) > 1000
    assert tokenizer.decode(long) == text
