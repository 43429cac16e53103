"""Takes out of files what names a person, a machine or a network, and puts the same placeholder for the same thing.

Two passes: the first learns names from where they are labelled (a host name in a log's prefix, a user in uid=),
the second hides patterns everywhere and, everywhere too, what the first has learned.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.bundle import kernel_line
from zinc_rt.bundle.private import EVERYBODY, LEFT_OUT, MEMBERS, PLACEHOLDER, SECRETS, WHOLE, Secret

_NESTED = 3  # JSON in JSON in JSON
_LEAST = 3  # characters of a name that is hidden wherever it stands
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
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,6}$")


class Leak(Exception):
    """Something was left, which is a fault of this code."""


@dataclass(slots=True)
class Redactor:
    """`known`: names to hide everywhere, by kind, beyond what files give away."""

    known: Mapping[str, Iterable[str]] = field(default_factory=dict)
    hidden: Counter[str] = field(default_factory=Counter)  # replacements, by kind
    _numbers: dict[tuple[str, str], str] = field(default_factory=dict)
    _learned: dict[str, str] = field(default_factory=dict)  # text, in lower case → kind
    _literals: re.Pattern[str] | None = None

    def redact(self, files: Mapping[str, bytes]) -> tuple[dict[str, bytes], dict[str, str]]:
        """The files without secrets, and those left out with the reason. Raises Leak."""
        for kind, values in self.known.items():
            for value in values:
                self._learn(kind, value, least=2)
        wanted, left_out = {}, {}
        for name, content in files.items():
            if LEFT_OUT.search(name):
                left_out[name] = "holds serial numbers or private things"
            elif content.startswith(_COMPRESSED):
                left_out[name] = "compressed or a program: cannot be looked through"
            else:
                wanted[name] = content
                self._look(name, content)
        self._compile()
        made = {self.path(name): self._file(name, content) for name, content in wanted.items()}
        self._check(made)
        return made, {self.path(name): why for name, why in left_out.items()}

    def text(self, text: str) -> str:
        """One text, hidden by what is known so far."""
        self._compile()
        return self._text(text)

    # --- the first pass ---

    def _look(self, name: str, content: bytes) -> None:
        text = _decoded(content)
        for kind, path in WHOLE:
            if path.search(name) and len(text.strip()) < 256:
                self._learn(kind, text.strip())
        if name.endswith("proc/cmdline"):
            kernel_line.redact_line(text.strip(), self._learn_token)
        kernel_line.redact_lines(_unescaped(name, text), self._learn_token)
        body = _parsed(name, text)
        if body is not None:
            for each in body:
                self._look_into(each)
            return
        self._look_at(_unescaped(name, text))

    def _look_at(self, text: str) -> None:
        for secret in SECRETS:
            if secret.learn:
                for match in secret.pattern.finditer(text):
                    if not secret.keep(match) and not PLACEHOLDER.search(match["v"]):
                        self._learn(secret.kind, match["v"])

    def _look_into(self, value: Any, member: str = "") -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                self._look_at(str(key))
                self._look_into(each, str(key))
        elif isinstance(value, list):
            for each in value:
                self._look_into(each, member)
        elif isinstance(value, str) and (inner := _inner(value)) is not None:
            self._look_into(inner)
        elif isinstance(value, str):
            kernel_line.redact_lines(value, self._learn_token)
            self._look_at(value)
            kind = _kind_of(member)
            if kind and " " not in value.strip():
                self._learn(kind, value.strip())
        elif isinstance(value, int) and not isinstance(value, bool) and _kind_of(member) == "card":
            self._learn("card", str(value))

    def _learn_token(self, value: str) -> str:
        self._learn("token", value.strip('"'))
        return value

    def _learn(self, kind: str, value: str, *, least: int = _LEAST) -> None:
        value = value.strip()
        lower = value.lower()
        if (
            len(value) < least
            or lower in EVERYBODY
            or PLACEHOLDER.search(value)
            or not re.search(r"[^\W_]", value)
        ):
            return
        if kind == "token" and (len(value) < 8 or not re.search(r"\d|[^\w.,:/-]", value) or " " in value):
            return  # too plain to be hidden wherever it stands
        if re.fullmatch(r"0+|0x0+|f+|0xf+", lower.replace("-", "")):
            return
        self._learned.setdefault(lower, kind)
        if kind == "host" and "." in value:
            self._learn("host", value.partition(".")[0])
        if kind == "card":
            for form in _forms(lower):
                self._learned.setdefault(form, kind)
                self._numbers.setdefault((kind, form), self._placeholder(kind, lower))

    def _compile(self) -> None:
        """Longest first, so that no part of a name is taken for the name."""
        names = sorted(self._learned, key=lambda name: (-len(name), name))
        variants = {form: None for name in names for form in (name, json.dumps(name)[1:-1])}
        short = [re.escape(name) for name in variants if len(name) <= _LEAST]
        rest = [re.escape(name) for name in variants if len(name) > _LEAST]
        parts = []
        if rest:
            parts.append(rf"(?<![^\W_])(?:{'|'.join(rest)})(?![^\W_])")
        if short:
            parts.append(rf"(?<![\w-])(?:{'|'.join(short)})(?![\w-])")
        self._literals = re.compile("|".join(parts), re.IGNORECASE) if parts else None

    # --- the second pass ---

    def _file(self, name: str, content: bytes) -> bytes:
        if b"\0" in content:
            return self._binary(content)
        text = _decoded(content)
        for kind, path in WHOLE:
            if path.search(name) and text.strip() and not PLACEHOLDER.fullmatch(text.strip()):
                return self._hide(kind, text.strip()).encode() + b"\n"
        if name.endswith("proc/cmdline"):
            text = kernel_line.redact_line(text.strip(), lambda value: self._hide("token", value)) + "\n"
        body = _parsed(name, text)
        if body is None:
            return _encoded(self._text(_unescaped(name, text)))
        made = [self._value(each) for each in body]
        if name.endswith(".json"):
            return _encoded(json.dumps(made[0], indent=1, ensure_ascii=False) + "\n")
        return _encoded("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in made))

    def _value(self, value: Any, member: str = "") -> Any:
        if isinstance(value, dict):
            return {self._text(str(key)): self._value(each, str(key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self._value(each, member) for each in value]
        kind = _kind_of(member)
        if isinstance(value, str):
            inner = _inner(value)
            if inner is not None:
                return json.dumps(self._value(inner), ensure_ascii=False)
            if member == "cmdline":
                value = kernel_line.redact_line(value, lambda each: self._hide("token", each))
            plain = value.strip().lower()
            if kind and plain and plain not in EVERYBODY and not PLACEHOLDER.search(value):
                return self._hide(kind, value.strip())
            return self._text(value)
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and (kind == "card" or str(value) in self._learned)
        ):
            return self._hide(self._learned.get(str(value), kind), str(value)) if value else value
        return value

    def _text(self, text: str) -> str:
        text = kernel_line.redact_lines(text, lambda value: self._hide("token", value))
        for secret in SECRETS:
            text = secret.pattern.sub(lambda match, secret=secret: self._replaced(match, secret), text)  # type: ignore[misc]
        if self._literals is not None:
            text = self._literals.sub(self._literal, text)
        return text

    def _replaced(self, match: re.Match[str], secret: Secret) -> str:
        value = match["v"]
        if not value or PLACEHOLDER.fullmatch(value) or secret.keep(match):
            return match[0]
        if secret.kind == "key" or not PLACEHOLDER.search(value) or secret.kind == "path":
            start, end = match.start("v") - match.start(), match.end("v") - match.start()
            suffix = _SUFFIX.search(value) if secret.kind == "path" else None
            return (
                match[0][:start] + self._hide(secret.kind, value) + (suffix[0] if suffix else "") + match[0][end:]
            )
        return match[0]

    def _literal(self, match: re.Match[str]) -> str:
        before, after = match.string[: match.start()], match.string[match.end() :]
        if re.search(r"<[a-z]*$", before[-12:]) and re.match(r"[a-z]*-\d+>", after[:12]):
            return match[0]  # the word inside a placeholder
        return self._hide(self._learned.get(match[0].lower(), "name"), match[0])

    def _binary(self, content: bytes) -> bytes:
        """Its length and every offset in it stay."""
        text = content.decode("latin-1")

        def same_length(match: re.Match[str], make: Callable[[re.Match[str]], str]) -> str:
            made = make(match)
            return made if made == match[0] else made[: len(match[0])].ljust(len(match[0]), "x")

        for secret in SECRETS:
            replaced = lambda match, secret=secret: same_length(match, lambda m: self._replaced(m, secret))  # noqa: E731
            text = secret.pattern.sub(replaced, text)
        if self._literals is not None:
            text = self._literals.sub(lambda match: same_length(match, self._literal), text)
        made = text.encode("latin-1", errors="replace")
        for name in self._learned:
            for form in (name, name.upper(), name.capitalize()):
                for wide in (form.encode("utf-16-le"), form.encode()):
                    if (len(name) > _LEAST and not form.isascii()) or wide != form.encode():
                        made = made.replace(wide, b"x" * len(wide))
        return made

    def path(self, path: str) -> str:
        """A path inside the bundle, as readable without its secrets."""
        return re.sub(r"[<>]", "", self._text(path))

    def _hide(self, kind: str, value: str) -> str:
        self.hidden[kind] += 1
        return self._placeholder(kind, _normal(kind, value))

    def _placeholder(self, kind: str, value: str) -> str:
        key = (kind, value)
        if key not in self._numbers:
            count = len({placeholder for (each, _), placeholder in self._numbers.items() if each == kind})
            self._numbers[key] = f"<{kind}-{count + 1}>"
        return self._numbers[key]

    def _check(self, files: Mapping[str, bytes]) -> None:
        """Nothing of what was made would be hidden now. Raises Leak."""
        before = Counter(self.hidden)
        for name, content in files.items():
            if self._file(name, content) != content and b"\0" not in content:
                raise Leak(f"{name}: what was hidden there is not hidden well")
        self.hidden = before


def _kind_of(member: str) -> str:
    name = member.rpartition("/")[2]
    return next((kind for kind, pattern in MEMBERS if pattern.fullmatch(name)), "")


def _normal(kind: str, value: str) -> str:
    lower = value if kind in ("path", "key", "token") else value.lower()
    return re.sub(r"[:.-]", "", lower) if kind == "mac" else lower


def _forms(value: str) -> list[str]:
    """A number as sysfs writes it in hexadecimal, and KFD in decimal."""
    forms = []
    if re.fullmatch(r"\d{6,20}", value):
        forms.append(f"{int(value):016x}")
        forms.append(f"{int(value):x}")
    if re.fullmatch(r"(?:0x)?[0-9a-f]{6,16}", value):
        forms.append(str(int(value, 16)))
        forms.append(value.removeprefix("0x").lstrip("0"))
    return [form for form in forms if len(form) > 5]


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", errors="surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogateescape")


def _inner(value: str) -> Any:
    """The JSON that a string is, or None: reports quote other programs' answers."""
    if not value.startswith(("{", "[")):
        return None
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _unescaped(name: str, text: str) -> str:
    """JSON that cannot be parsed, readable as text: a name behind an escaped line end would else pass for a word."""
    if not name.endswith((".json", ".jsonl", ".journal")):
        return text
    marks = {"n": "\n", "t": "\t", '"': '"', "/": "/", "\\": "\\", "r": "\r"}
    for _ in range(_NESTED):
        text = re.sub(
            r'\\(?:u([0-9a-fA-F]{4})|([nt"/\\r]))', lambda m: chr(int(m[1], 16)) if m[1] else marks[m[2]], text
        )
    return text


def _parsed(name: str, text: str) -> list[Any] | None:
    """JSON's values: one, or one a line; None for other text."""
    try:
        if name.endswith(".json"):
            return [json.loads(text)]
        if name.endswith((".jsonl", ".journal")):
            return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):  # damaged: taken as text, every line of it
        return None
    return None
