"""Remove data that identifies a person, a machine or a network. The same item has the same placeholder
everywhere.

The first pass collects names where they are labelled (a host name in a log's prefix, a user in uid=). The
second pass redacts patterns everywhere, and the collected names everywhere.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from zinc_rt.doctor.bundle import linux_command_line
from zinc_rt.doctor.bundle.kernel_log import select_relevant_lines
from zinc_rt.doctor.bundle.name_search import NameSearch
from zinc_rt.doctor.bundle.private import (
    EVERYBODY,
    GROUPS,
    LEFT_OUT,
    MEMBERS,
    PLACEHOLDER,
    SECRETS,
    SPANNING,
    WHOLE,
    Secret,
)
from zinc_rt.doctor.sources import PACKAGES

_PASSES = 5
_NESTED = 3  # JSON in JSON in JSON
_LEAST = 3  # characters of a name that is hidden wherever it stands
_LEAST_PROCESS = 6
_COMPRESSED = (
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"PK\x03\x04",
    b"\xfd7zXZ",
    b"BZh",
    b"\x7fELF",
    b"\x89PNG",
    b"SQLite format 3",
)
_GROUP = re.compile(r"(?<=\d\()[\w.-]+(?=\))")
_KERNEL_LOG = ("kernel.log", "dmesg.txt", "dmesg.log", "dmesg")
_PIECE = 4096  # characters
_LEARNED_BYTES = 12  # of a text in a binary file: shorter ones are chance
_RUN = re.compile(rb"(?:[\t\n\r\x20-\x7e]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}){4,}")
_ESCAPED = re.compile(r"(\\[nrt])")
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,6}$")


Fit = Callable[[str, str], str]
"""A function (original, replacement) -> actual replacement."""


def _allow_length_change(before: str, after: str) -> str:
    return after


def _pad_to_length(before: str, after: str) -> str:
    """Return `after`, truncated or padded to the size of `before` in bytes."""
    if after == before:
        return before
    size_bytes = len(_encode_text(before))
    return after[:size_bytes].ljust(size_bytes, "x")


@dataclass(slots=True)
class Redactor:
    """Removes private data. `known`: names to redact everywhere, by kind, in addition to those collected
    from files."""

    known: Mapping[str, Iterable[str]] = field(default_factory=dict)
    hidden: Counter[str] = field(default_factory=Counter)  # replacements, by kind
    _numbers: dict[tuple[str, str], str] = field(default_factory=dict)
    _learned: dict[str, str] = field(default_factory=dict)  # text, in lower case → kind
    _names: NameSearch = field(default_factory=lambda: NameSearch(()))
    _counts: Counter[str] = field(default_factory=Counter)  # placeholders, by kind

    def redact_files(self, files: Mapping[str, bytes]) -> tuple[dict[str, bytes], dict[str, str]]:
        """Return the redacted files, and the omitted ones with the reason."""
        for kind, values in self.known.items():
            for value in values:
                self._learn_value(kind, value, minimum=2)
        searchable, left_out = {}, {}
        for name, content in files.items():
            if LEFT_OUT.search(name):
                left_out[name] = "contains serial numbers or private data"
            elif content.startswith(_COMPRESSED):
                left_out[name] = "compressed or executable: cannot be searched"
            else:
                searchable[name] = content
                self._scan_file(name, content)
        self._compile_names()
        redacted = {}
        for name, content in searchable.items():
            clean = self._redact_file(name, content)
            if clean is None:
                left_out[name] = "its private data cannot be separated from the rest"
            else:
                redacted[self.path(name)] = clean
        return redacted, {self.path(name): reason for name, reason in left_out.items()}

    def text(self, text: str) -> str:
        """Redact one text with the names known so far."""
        self._compile_names()
        return self._redact_text(text)

    # --- the first pass ---

    def _scan_file(self, name: str, content: bytes) -> None:
        if b"\0" in content:
            content = b"\n".join(run for run in _RUN.findall(content) if len(run) >= _LEARNED_BYTES)
        text = _decode_content(content)
        for kind, path in WHOLE:
            if path.search(name) and len(text.strip()) < 256:
                self._learn_value(kind, text.strip())
        if name.endswith("proc/cmdline"):
            linux_command_line.redact_line(text.strip(), self._learn_token)
        linux_command_line.redact_lines(_undo_escapes(name, text), self._learn_token)
        body = _parse_json(name, text)
        if body is not None:
            for item in body:
                self._scan_value(item)
            return
        self._scan_text(_undo_escapes(name, text))

    def _scan_text(self, text: str) -> None:
        pieces = _split_pieces(text)
        pieces += [part for piece in pieces if _ESCAPED.search(piece) for part in _ESCAPED.split(piece)[::2]]
        for piece in pieces:
            lower = piece.lower()
            for secret in SECRETS:
                if secret.learn and secret.may_be_in(lower):
                    for match in secret.pattern.finditer(piece):
                        if not secret.keep(match) and not PLACEHOLDER.search(match["v"]):
                            self._learn_value(secret.kind, match["v"])

    def _scan_value(self, value: Any, member: str = "") -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                self._scan_text(str(key))
                self._scan_value(item, str(key))
        elif isinstance(value, list):
            for item in value:
                self._scan_value(item, member)
        elif isinstance(value, str) and (inner := _parse_nested_json(value)) is not None:
            self._scan_value(inner)
        elif isinstance(value, str):
            linux_command_line.redact_lines(value, self._learn_token)
            self._scan_text(value)
            kind = _find_kind(member)
            if kind and " " not in value.strip():
                self._learn_value(kind, value.strip())
        elif isinstance(value, int) and not isinstance(value, bool) and _find_kind(member) == "card":
            self._learn_value("card", str(value))

    def _learn_token(self, value: str) -> str:
        self._learn_value("token", value.strip('"'))
        return value

    def _learn_value(self, kind: str, value: str, *, minimum: int = _LEAST) -> None:
        value = value.strip().lstrip("._-/!?#+*'\"([{")
        lower = value.lower()
        if (
            len(value) < minimum
            or lower in EVERYBODY
            or PLACEHOLDER.search(value)
            or not re.search(r"[^\W_]", value)
        ):
            return
        if kind == "process" and len(value) < _LEAST_PROCESS:
            return  # a short one is also a word
        if kind == "token" and (len(value) < 8 or not re.search(r"\d|[^\w.,:/-]", value) or " " in value):
            return  # too plain to be hidden wherever it stands
        if re.fullmatch(r"0+|0x0+|f+|0xf+", lower.replace("-", "")):
            return
        self._learned.setdefault(lower, kind)
        if kind == "host" and "." in value:
            self._learn_value("host", value.partition(".")[0])
        if kind == "card":
            for form in _number_notations(lower):
                self._learned.setdefault(form, kind)
                self._numbers.setdefault((kind, form), self._make_placeholder(kind, lower))

    def _compile_names(self) -> None:
        self._names = NameSearch(self._learned)

    # --- the second pass ---

    def _redact_file(self, name: str, content: bytes) -> bytes | None:
        """Redact until nothing changes any more; return None if this does not converge."""
        for _ in range(_PASSES):
            redacted = self._redact_text_file(name, content)
            if redacted == content:
                return redacted
            content = redacted
        return None

    def _redact_text_file(self, name: str, content: bytes) -> bytes:
        if b"\0" in content:
            return self._redact_binary(content)
        text = _decode_content(content)
        for kind, path in WHOLE:
            if path.search(name) and text.strip() and not PLACEHOLDER.fullmatch(text.strip()):
                return self._hide_value(kind, text.strip()).encode() + b"\n"
        if name.endswith("proc/cmdline"):
            text = (
                linux_command_line.redact_line(text.strip(), lambda value: self._hide_value("token", value)) + "\n"
            )
        if name.endswith("packages.txt"):
            text = _select_packages(text)
        if name.endswith("id.txt"):
            text = _GROUP.sub(
                lambda match: match[0] if match[0] in GROUPS else self._hide_value("name", match[0]), text
            )
        body = _parse_json(name, text)
        if body is None:
            text = select_relevant_lines(_undo_escapes(name, text), whole=name.endswith(_KERNEL_LOG))
            return _encode_text(self._redact_text(text))
        values = [self._redact_value(item) for item in body]
        if name.endswith(".json"):
            return _encode_text(json.dumps(values[0], indent=1, ensure_ascii=False) + "\n")
        return _encode_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))

    def _redact_value(self, value: Any, member: str = "") -> Any:
        if isinstance(value, dict):
            return {self._redact_text(str(key)): self._redact_value(item, str(key)) for key, item in value.items()}
        if isinstance(value, list):
            if member == "kernel_log":
                value = select_relevant_lines("\n".join(map(str, value)), whole=True).splitlines()
            return [self._redact_value(item, member) for item in value]
        kind = _find_kind(member)
        if isinstance(value, str):
            inner = _parse_nested_json(value)
            if inner is not None:
                return json.dumps(self._redact_value(inner), ensure_ascii=False)
            if member == "cmdline":
                value = linux_command_line.redact_line(value, lambda item: self._hide_value("token", item))
            plain = value.strip().lower()
            if kind and plain and plain not in EVERYBODY and not PLACEHOLDER.search(value):
                return self._hide_value(kind, value.strip())
            return self._redact_text(select_relevant_lines(value, whole=False))
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and (kind == "card" or str(value) in self._learned)
        ):
            return self._hide_value(self._learned.get(str(value), kind), str(value)) if value else value
        return value

    def _redact_text(self, text: str) -> str:
        text = linux_command_line.redact_lines(text, lambda value: self._hide_value("token", value))
        text = self._replace_secrets(text, SPANNING, _allow_length_change)
        return "".join(map(self._redact_piece, _split_pieces(text)))

    def _redact_piece(self, text: str, fit: Fit = _allow_length_change) -> str:
        text = self._replace_secrets(text, SECRETS, fit)
        if _ESCAPED.search(text):  # quoted from JSON: \n stands before a word and is no part of it
            parts = _ESCAPED.split(text)
            text = "".join(
                part if index % 2 else self._replace_secrets(part, SECRETS, fit)
                for index, part in enumerate(parts)
            )
        return self._names.replace_names(text, lambda name, text: fit(text, self._replace_name(name, text)))

    def _replace_secrets(self, text: str, secrets: Iterable[Secret], fit: Fit) -> str:
        lower = text.lower()
        for secret in secrets:
            if secret.may_be_in(lower):
                make = partial(self._fit_replacement, secret, fit)
                text = secret.pattern.sub(make, text)
        return text

    def _fit_replacement(self, secret: Secret, fit: Fit, match: re.Match[str]) -> str:
        return fit(match[0], self._replace_match(secret, match))

    def _replace_match(self, secret: Secret, match: re.Match[str]) -> str:
        value = match["v"]
        if not value or PLACEHOLDER.fullmatch(value) or secret.keep(match):
            return match[0]
        if secret.kind == "key" or not PLACEHOLDER.search(value) or secret.kind == "path":
            start, end = match.start("v") - match.start(), match.end("v") - match.start()
            suffix = _SUFFIX.search(value) if secret.kind == "path" else None
            return (
                match[0][:start]
                + self._hide_value(secret.kind, value)
                + (suffix[0] if suffix else "")
                + match[0][end:]
            )
        return match[0]

    def _replace_group(self, match: re.Match[str]) -> str:
        return match[0] if match[0] in GROUPS else self._hide_value("name", match[0])

    def _replace_name(self, name: str, text: str) -> str:
        return self._hide_value(self._learned.get(name) or self._learned.get(text.lower(), "name"), text)

    def _redact_binary(self, content: bytes) -> bytes:
        """Redact the texts in a binary file. Its length and all offsets stay."""
        redacted = _RUN.sub(self._replace_run, content)
        for name in self._learned:
            for form in (name, name.upper(), name.capitalize()):
                wide = form.encode("utf-16-le", errors="surrogatepass")  # as firmware tables have it
                if len(name) > _LEAST:
                    redacted = redacted.replace(wide, b"x" * len(wide))
        return redacted

    def _replace_run(self, match: re.Match[bytes]) -> bytes:
        return _encode_text(
            self._redact_piece(
                self._replace_secrets(_decode_content(match[0]), SPANNING, _pad_to_length), _pad_to_length
            )
        )

    def path(self, path: str) -> str:
        """Redact a path inside the bundle and keep it readable."""
        return re.sub(r"[<>]", "", self._redact_text(path))

    def _hide_value(self, kind: str, value: str) -> str:
        self.hidden[kind] += 1
        return self._make_placeholder(kind, _normalise_value(kind, value))

    def _make_placeholder(self, kind: str, value: str) -> str:
        key = (kind, value)
        if key not in self._numbers:
            self._counts[kind] += 1
            self._numbers[key] = f"<{kind}-{self._counts[kind]}>"
        return self._numbers[key]


def _select_packages(text: str) -> str:
    """Return the lines about packages that concern a GPU, in any form that a capture may have: other names may be
    those of a company's own programs."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if any(word.startswith(PACKAGES) for word in line.split()[:2]))


def _split_pieces(text: str) -> list[str]:
    """Split a long text into pieces of whole lines: a pattern is skipped for a piece that does not contain its
    word.
    """
    if len(text) <= _PIECE:
        return [text]
    pieces, start = [], 0
    while start < len(text):
        end = text.find("\n", start + _PIECE) + 1 or len(text)
        pieces.append(text[start:end])
        start = end
    return pieces


def _find_kind(member: str) -> str:
    name = member.rpartition("/")[2]
    return next((kind for kind, pattern in MEMBERS if pattern.fullmatch(name)), "")


def _normalise_value(kind: str, value: str) -> str:
    lower = value if kind in ("path", "key", "token") else value.lower()
    return re.sub(r"[:.-]", "", lower) if kind == "mac" else lower


def _number_notations(value: str) -> list[str]:
    """Return the notations of a number: hexadecimal as in sysfs, decimal as in KFD."""
    forms = []
    if re.fullmatch(r"\d{6,20}", value):
        forms.append(f"{int(value):016x}")
        forms.append(f"{int(value):x}")
    if re.fullmatch(r"(?:0x)?[0-9a-f]{6,16}", value):
        forms.append(str(int(value, 16)))
        forms.append(value.removeprefix("0x").lstrip("0"))
    return [form for form in forms if len(form) > 5]


def _decode_content(content: bytes) -> str:
    return content.decode("utf-8", errors="surrogateescape")


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogateescape")


def _parse_nested_json(value: str) -> Any:
    """Parse a string that contains JSON, because reports quote other programs' output; None for other strings."""
    if not value.startswith(("{", "[")):
        return None
    try:
        inner = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return inner if isinstance(inner, dict | list) else None


def _undo_escapes(name: str, text: str) -> str:
    """Undo the escapes of invalid JSON; otherwise a name after an escaped line end would be part of a word."""
    if not name.endswith((".json", ".jsonl", ".journal")):
        return text
    marks = {"n": "\n", "t": "\t", '"': '"', "/": "/", "\\": "\\", "r": "\r"}
    for _ in range(_NESTED):
        text = re.sub(
            r'\\(?:u([0-9a-fA-F]{4})|([nt"/\\r]))', lambda m: chr(int(m[1], 16)) if m[1] else marks[m[2]], text
        )
    return text


def _parse_json(name: str, text: str) -> list[Any] | None:
    """Parse JSON: one value, or one per line; None for other text."""
    try:
        if name.endswith(".json"):
            return [json.loads(text)]
        if name.endswith((".jsonl", ".journal")):
            return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):  # damaged: taken as text, every line of it
        return None
    return None
