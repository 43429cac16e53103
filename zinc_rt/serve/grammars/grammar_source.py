"""Grammars as llguidance reads them."""

from __future__ import annotations

import json
import re
from typing import Any

import llguidance
from llguidance.gbnf_to_lark import any_to_lark

from zinc_rt.serve.formats.lark import WHITE_SPACE
from zinc_rt.serve.grammars.grammar_spec import GrammarSpec

MAX_GRAMMAR_BYTES = 1 << 20
MAX_GBNF_BYTES = 1 << 15  # converted letter by letter, in Python
MAX_GBNF_RULES = 500  # which takes their square of time, where each names the next
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")
_KEPT_ESCAPED = frozenset('"\\[]^-/')  # mean something in GBNF or in a regular expression


def source_of(spec: GrammarSpec) -> str:
    """As llguidance has it. Raises ServeError 400."""
    most = MAX_GBNF_BYTES if spec.kind == "gbnf" else MAX_GRAMMAR_BYTES
    size = len(spec.text.encode(errors="replace"))
    if size > most:
        raise spec.refused(f"{size} bytes, more than {most}")
    if spec.kind == "gbnf" and (rules := spec.text.count("::=")) > MAX_GBNF_RULES:
        raise spec.refused(f"{rules} rules, more than {MAX_GBNF_RULES}")
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
                return matcher.grammar_from_lark(any_to_lark(_ESCAPE.sub(_character, spec.text)))
    except Exception as error:  # the converter has no exceptions of its own, and parsers may nest too deep
        raise spec.refused(str(error) or type(error).__name__) from None


def _character(match: re.Match[str]) -> str:
    """The character of an escape, where it stands for itself."""
    code = int(match[1] or match[2], 16)
    valid = code <= 0x10FFFF and not 0xD800 <= code < 0xE000
    character = chr(code) if valid else ""
    return character if character.isprintable() and character not in _KEPT_ESCAPED and valid else match[0]
