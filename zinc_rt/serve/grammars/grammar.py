"""Constrain answers by masking tokens: JSON schemas, regular expressions, choices, Lark and GBNF grammars.
llguidance computes the permitted tokens.

    compiler = GrammarCompiler(tokenizer, vocab)
    llm.generate(prompts, sampling, grammar=compiler.compile(GrammarSpec("json_schema", text)))
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import llguidance
import numpy as np
from llguidance.gbnf_to_lark import any_to_lark

from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.formats.lark import WHITE_SPACE
from zinc_rt.serve.grammars.grammar_spec import GrammarSpec
from zinc_rt.serve.observe.events import EVENTS
from zinc_rt.serve.sandbox import CallKilled, Sandbox

MAX_GRAMMAR_BYTES = 1 << 20
MAX_GBNF_BYTES = 1 << 15  # converted letter by letter, in Python
MAX_GBNF_RULES = 500  # which takes their square of time, where each names the next
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")
_KEPT_ESCAPED = frozenset('"\\[]^-/')  # mean something in GBNF or in a regular expression


def make_source(spec: GrammarSpec) -> str:
    """Return the grammar in llguidance's format. Raises ServeError 400."""
    max_gbnf_bytes = MAX_GBNF_BYTES if spec.kind == "gbnf" else MAX_GRAMMAR_BYTES
    size = len(spec.text.encode(errors="replace"))
    if size > max_gbnf_bytes:
        raise spec.to_error(f"the grammar has {size} bytes, more than {max_gbnf_bytes}")
    if spec.kind == "gbnf" and (rules := spec.text.count("::=")) > MAX_GBNF_RULES:
        raise spec.to_error(f"the grammar has {rules} rules, more than {MAX_GBNF_RULES}")
    matcher = llguidance.LLMatcher
    try:
        match spec.kind:
            case "json_schema":
                options: Any = {"whitespace_pattern": WHITE_SPACE}
                return matcher.grammar_from_json_schema(spec.text, defaults=options)
            case "regex":
                return matcher.grammar_from_regex(spec.text)
            case "choice":
                texts = [json.dumps(text, ensure_ascii=False) for text in json.loads(spec.text)]
                return matcher.grammar_from_lark(f"start: {' | '.join(texts)}")
            case "lark":
                return matcher.grammar_from_lark(spec.text)
            case "gbnf":
                return matcher.grammar_from_lark(any_to_lark(_ESCAPE.sub(_unescape_character, spec.text)))
    except Exception as error:  # the converter has no exceptions of its own, and parsers may nest too deep
        raise spec.to_error(str(error) or type(error).__name__) from None


def _unescape_character(match: re.Match[str]) -> str:
    """Return the character of an escape sequence that represents a literal character."""
    code = int(match[1] or match[2], 16)
    valid = code <= 0x10FFFF and not 0xD800 <= code < 0xE000
    character = chr(code) if valid else ""
    return character if character.isprintable() and character not in _KEPT_ESCAPED and valid else match[0]


COMPILE_SECONDS = 1.0  # of CPU time
KEPT_GRAMMARS = 256  # compiled, the least recently used goes first
MASK_CPU_SECONDS = 0.05  # that one mask may take
NO_TOKEN = -1


class Grammar:
    """The grammar state of one choice; a TokenMask for the scheduler.

    `after`: the grammar starts after this text, the end of reasoning; before it every token except end tokens
    is allowed. `opens`: a token that may come first, after which the grammar waits for `after`.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        vocabulary: GrammarVocabulary,
        *,
        after: str = "",
        opens: int = NO_TOKEN,
    ) -> None:
        self.failure = ""
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._after = after.encode()
        self._opens = opens
        self._free: list[int] = []  # tokens that came before it began
        self._waits = bool(after) and opens == NO_TOKEN
        self._consumed = 0

    @property
    def complete(self) -> bool:
        """Return whether no token can follow."""
        return not self._waits and not self.failure and self._matcher.is_stopped()

    @property
    def accepting(self) -> bool:
        """Return whether the answer may end here."""
        return not self._waits and self._matcher.is_accepting()

    def fill(self, words: np.ndarray) -> None:
        """Fill the mask. See TokenMask. If that takes too long, the request fails and the mask allows
        everything, because its next token is discarded."""
        if self._waits:
            words[:] = self._vocabulary.free
            return
        start = time.thread_time()
        try:
            self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        except Exception:  # whatever it is, only this request asked for it
            self._fail("grammar_failed")
        if self._matcher.is_error() or time.thread_time() - start > MASK_CPU_SECONDS:
            self._fail("grammar_too_slow")
        if self.failure:
            words[:] = -1
        elif self._may_open:
            words.view(np.uint32)[self._opens // 32] |= np.uint32(1 << self._opens % 32)

    def mask(self) -> np.ndarray:
        """Return the mask of permitted tokens, i32 [ceil(V / 32)]."""
        words = np.zeros(self._vocabulary.words, np.int32)
        self.fill(words)
        return words

    def accept(self, token: int) -> None:
        """Advance by a token. `failure` is set if the token is not permitted."""
        if self._may_open and token == self._opens:
            self._waits = True
        if self._waits:
            self._free.append(token)
            self._waits = not self._has_ended()
        elif self._matcher.consume_token(token):
            self._consumed += 1
        elif self._matcher.is_error():  # of its own making: a token that was allowed leads to too many places
            self._fail("grammar_too_complex")
        else:
            self._fail("grammar_failed")

    def rollback(self, tokens: int) -> None:
        """Undo the last `tokens` tokens."""
        own = min(tokens, self._consumed)
        self._matcher.rollback(own)
        self._consumed -= own
        if tokens > own:
            del self._free[own - tokens :]
            self._waits = not self._has_ended() if self._free else self._opens == NO_TOKEN and bool(self._after)

    def fork(self) -> Grammar:
        """Return an independent copy in the same state."""
        other = Grammar(self._matcher.deep_copy(), self._vocabulary)
        other.failure, other._after, other._opens = self.failure, self._after, self._opens
        other._free, other._waits, other._consumed = list(self._free), self._waits, self._consumed
        return other

    @property
    def _may_open(self) -> bool:
        return self._opens != NO_TOKEN and not self._free and not self._consumed

    def _has_ended(self) -> bool:
        """Return whether the text that starts the grammar is complete. It may span tokens."""
        near = self._free[-len(self._after) :]
        return self._after in b"".join(map(self._vocabulary.tokenizer.piece_bytes, near))

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or reason


class GrammarVocabulary:
    """A tokenizer's tokens in llguidance's format, for a model with `vocab` logits. `special`: texts of
    tokens, besides control tokens, that ordinary text must not match."""

    def __init__(self, tokenizer: Tokenizer, vocab: int, special: Iterable[str] = ()) -> None:
        self.tokenizer = tokenizer
        self.words = -(-vocab // 32)
        ends = sorted(tokenizer.eog_ids)
        bits = np.ones(32 * self.words, np.uint8)
        bits[ends] = 0
        self.free = np.packbits(bits, bitorder="little").view(np.int32)  # all but end tokens
        wrapper = llguidance.TokenizerWrapper(_Tokens(tokenizer, vocab, special))
        self.llguidance = llguidance.LLTokenizer(wrapper, n_vocab=vocab, eos_token=ends or None)


class _Tokens:
    """The tokenizer interface that llguidance expects. Logits beyond the tokenizer's vocabulary map to no
    text."""

    def __init__(self, tokenizer: Tokenizer, vocab: int, special: Iterable[str]) -> None:
        ids = range(tokenizer.vocab_size)
        added = {tokenizer.added_id(text) for text in special} - {None}
        self._tokenizer = tokenizer
        self.eos_token_id = min(tokenizer.eog_ids, default=0)
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.piece_bytes(id) for id in ids] + [b""] * (vocab - len(ids))
        self.special_token_ids = [id for id in ids if tokenizer.is_special(id) or id in added]

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(text.decode(), add_special=False, parse_special=False, continues=True)


class GrammarCompiler:
    """A grammar compiler for one model. `vocab`: its number of logits; `special`: see GrammarVocabulary."""

    def __init__(self, tokenizer: Tokenizer, vocab: int, special: Iterable[str] = ()) -> None:
        self.tokenizer, self.vocab, self.special = tokenizer, vocab, tuple(special)
        self._vocabulary: GrammarVocabulary | None = None
        self._building = threading.Lock()
        self._limits = llguidance.LLParserLimits(verbose_errors=False)
        self._sandbox = Sandbox(partial(_prepare_trials, tokenizer, vocab, self.special))
        self._pool = ThreadPoolExecutor(self._sandbox.turns.running, "grammar")
        self._known: OrderedDict[tuple[str, GrammarSpec, str, str], Grammar] = OrderedDict()

    def prepare(self) -> None:
        """Build the vocabulary here and in the process of the trials, before the first request needs them."""
        self._sandbox.start()
        self.load_vocabulary()

    def close(self) -> None:
        """End the process of the trials."""
        self._sandbox.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def compile(self, spec: GrammarSpec, *, after: str = "", opens: str = "") -> Grammar:
        """Return the grammar in its initial state. `after` and `opens`: see Grammar; `opens` is text here.
        Raises ServeError 400 with llguidance's message."""
        vocabulary = self.load_vocabulary()
        matcher = llguidance.LLMatcher(vocabulary.llguidance, make_source(spec), log_level=0, limits=self._limits)
        opening = self.tokenizer.added_id(opens) if opens else None
        if opens and opening is None:
            after = ""  # its text is no token, and the grammar does not begin so
        if matcher.is_error():
            raise spec.to_error(matcher.get_error())
        first = Grammar(matcher.deep_copy(), vocabulary)
        first.mask()  # the slowest
        if first.failure:
            raise spec.to_error(f"the grammar permits no first token: {first.failure}")
        return Grammar(matcher, vocabulary, after=after, opens=NO_TOKEN if opening is None else opening)

    async def compile_for_tenant(
        self, spec: GrammarSpec, *, tenant: str, after: str = "", opens: str = ""
    ) -> Grammar:
        """Compile for one of several tenants: first in a process that is killed past COMPILE_SECONDS of CPU time,
        and only if that succeeds in this one, outside the event loop. See `compile`.

        The tenant's last grammars are kept. Another tenant's are not used: that would show by its time which
        grammars others send.
        """
        key = (tenant, spec, after, opens)
        if (known := self._known.get(key)) is None:
            try:
                await self._sandbox.call(tenant, COMPILE_SECONDS, _try_grammar, spec)
            except CallKilled as error:
                _report_refusal(spec, tenant, "took too long")
                raise spec.to_error(f"compilation {error}") from None
            except ServeError:
                _report_refusal(spec, tenant, "invalid")
                raise
            loop = asyncio.get_running_loop()
            known = await loop.run_in_executor(self._pool, partial(self.compile, spec, after=after, opens=opens))
            self._known[key] = known
            if len(self._known) > KEPT_GRAMMARS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return known.fork()

    def load_vocabulary(self) -> GrammarVocabulary:
        """Return the model's vocabulary, built on first use."""
        with self._building:
            if self._vocabulary is None:
                self._vocabulary = GrammarVocabulary(self.tokenizer, self.vocab, self.special)
            return self._vocabulary


def _report_refusal(spec: GrammarSpec, tenant: str, reason: str) -> None:
    about = {"tenant": tenant, "kind": spec.kind, "characters": len(spec.text), "reason": reason}
    EVENTS.report("grammar_refused", tenant, **about)


# --- in the process of the trials

_trials: GrammarCompiler | None = None


def _prepare_trials(tokenizer: Tokenizer, vocab: int, special: Iterable[str]) -> None:
    global _trials  # forked with the process, for each trial
    _trials = GrammarCompiler(tokenizer, vocab, special)
    _trials.load_vocabulary()


def _try_grammar(spec: GrammarSpec) -> None:
    """Raise ServeError 400 if the grammar cannot be compiled."""
    assert _trials is not None
    _trials.compile(spec)
