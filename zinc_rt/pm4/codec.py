"""`@packet`: generates an encoder and a decoder from a class's layout.

They are generated as source text and compiled once, as dataclasses are, so that building a packet is plain integer
arithmetic without table look-ups or dictionaries. The generated code branches where the generations differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, dataclass_transform

from zinc_rt.pm4.fields import Field, address, bits, pair, payload, word
from zinc_rt.pm4.generation import BOTH, Generation
from zinc_rt.pm4.packet import EncodeError, P, Packet, register
from zinc_rt.pm4.registers import Space

MAX_BODY_DWORDS = 0x4000  # count is 14 bits and holds body - 1
_ALL_BITS = 0xFFFFFFFF


@dataclass_transform(frozen_default=True, field_specifiers=(bits, word, pair, address, payload, field))
def packet(
    opcode: int,
    *,
    dwords: int | tuple[int, ...],
    group: int = 0,
    on: tuple[Generation, ...] = BOTH,
    sets: Space | None = None,
    privileged: bool = False,
) -> Callable[[type[P]], type[P]]:
    """Make a frozen slotted dataclass of the class, generate its encoder and decoder, and register it.

    The packet's name is derived from the class name: WaitRegMem64 is WAIT_REG_MEM64.
    """

    def make(plain: type[P]) -> type[P]:
        cls: type[P] = dataclass(frozen=True, slots=True)(plain)
        cls.OP, cls.ON, cls.GROUP, cls.SPACE, cls.PRIVILEGED = opcode, on, group, sets, privileged
        cls.NAME = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).upper()
        cls.DWORDS = dwords if isinstance(dwords, tuple) else (dwords,)
        cls.FIELDS = tuple(Field(f.name, f.metadata["place"]) for f in fields(cls) if f.name != "reserved")
        for method, text in (
            ("__init__", _make_init_text(cls)),
            ("words", _make_words_text(cls)),
            ("read", _make_read_text(cls)),
        ):
            compiled = _compile_method(cls, method, text)
            setattr(cls, method, classmethod(compiled) if method == "read" else compiled)
        return register(cls)

    return make


def _compile_method(cls: type[Packet], method: str, text: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {
        "_with_reserved": _with_reserved,
        "_refuse": _raise_unsupported,
        "_GFX12": Generation.GFX12,
    }
    for f in fields(cls):
        scope[f"_set_{f.name}"] = getattr(cls, f.name).__set__  # a slot's descriptor: frozen stops __setattr__
        scope[f"_default_{f.name}"] = f.default
    exec(compile(text, f"<{cls.__name__}.{method}>", "exec"), scope)
    function: Callable[..., Any] = scope[method]
    function.__qualname__ = f"{cls.__qualname__}.{method}"
    function.__doc__ = getattr(Packet, method).__doc__ if method != "__init__" else None
    return function


def _make_init_text(cls: type[Packet]) -> str:
    """Return the text of an __init__ that uses the slot descriptors.

    The frozen dataclass's __init__ with object.__setattr__ takes twice as long.
    """
    names = [f for f in fields(cls) if not f.kw_only]
    arguments = [n.name if n.default is MISSING else f"{n.name}=_default_{n.name}" for n in names]
    text = f"def __init__({', '.join(['self', *arguments, '*', 'reserved=()'])}):\n"
    return text + "".join(f" _set_{name}(self, {name})\n" for name in [*(n.name for n in names), "reserved"])


def _make_words_text(cls: type[Packet]) -> str:
    lines = ["def words(self, generation):"]
    lines += [f" {f.name} = self.{f.name}" for f in cls.FIELDS]
    return _make_branching_text(lines, lambda generation: _encode_lines(cls, generation))


def _make_branching_text(head: list[str], lines_for: Callable[[Generation], list[str]]) -> str:
    """Return the text of a function that branches on the generation only if the layouts differ."""
    newest, older = lines_for(Generation.GFX12), lines_for(Generation.GFX11)
    if newest == older:
        return "\n".join([*head, *newest])
    return "\n".join([*head, " if generation == _GFX12:", *(" " + line for line in newest), *older])


def _encode_lines(cls: type[Packet], generation: Generation) -> list[str]:
    if generation not in cls.ON:
        return [" _refuse(self, generation)"]
    tail = cls.FIELDS[-1] if cls.FIELDS and cls.FIELDS[-1].place.optional else None
    lines = []
    rare = [f.name for f in fields(cls) if f.default == 0 and not isinstance(f.default, bool)]
    if tail is None and len(rare) > 2:
        lines += [f" if not ({' or '.join(rare)} or self.reserved):"]
        lines += ["  " + line for line in _encode_body(cls, generation, cls.DWORDS[0], rare=rare)]
    if tail is not None:
        lines += [f" if {tail.name} is None:"]
        lines += ["  " + line for line in _encode_body(cls, generation, cls.DWORDS[0], skip=tail.name)]
        lines += [" " + line for line in _encode_body(cls, generation, cls.DWORDS[1])]
        return lines
    return [" " + line for line in _encode_body(cls, generation, cls.DWORDS[0])]


def _encode_body(
    cls: type[Packet], generation: Generation, size: int, skip: str = "", rare: Sequence[str] = ()
) -> list[str]:
    """Return the body of one encoder variant. With `skip`, `rare` fields and `reserved` are assumed to be 0."""
    overflow: list[str] = []
    parts: list[list[str]] = [[] for _ in range(size)]
    grown = ""
    for f in cls.FIELDS:
        location = f.place
        if f.name == skip or f.name in rare:
            continue
        if generation not in location.on:
            overflow.append(f.name)
            continue
        if location.payload:
            grown = f.name
            continue
        overflow.append(f"{f.name} >> {sum(span.width for span in location.spans)}")
        result = 0
        for span in location.spans:
            value = f"{f.name} >> {result}" if result else f.name
            if len(location.spans) > 1 and result + span.width < sum(s.width for s in location.spans):
                value = f"{value} & {(1 << span.width) - 1:#x}"
            parts[span.dword].append(f"({value}) << {span.low}" if span.low else f"({value})")
            result += span.width
    lines = []
    if overflow:
        lines += [f"if {' | '.join(overflow)}:", " _refuse(self, generation)"]
    fixed_size = size
    if grown:
        location = next(f.place for f in cls.FIELDS if f.name == grown)
        fixed_size = location.spans[0].dword
        lines += _PAYLOADS[location.payload][0](grown)
        lines += [
            f"length = {fixed_size} + len(tail)",
            f"if length < {cls.DWORDS[0]} or length > {MAX_BODY_DWORDS + 1}:",
            " _refuse(self, generation)",
        ]
    header = 0xC0000000 | cls.OP << 8
    head = f"{header:#x} | length - 2 << 16" if grown else f"{header | (size - 2) << 16:#x}"
    body = [" | ".join(parts[index]) or "0" for index in range(1, fixed_size)]
    listed = f"[{', '.join([head, *body, *(['*tail'] if grown else [])])}]"
    if not rare:
        lines += ["if self.reserved:", f" return _with_reserved({listed}, self.reserved)"]
    return [*lines, f"return {listed}"]


def _make_read_text(cls: type[Packet]) -> str:
    lines = ["def read(cls, words, offset, length, generation):"]
    return _make_branching_text(lines, lambda generation: _decode_lines(cls, generation))


def _decode_lines(cls: type[Packet], generation: Generation) -> list[str]:
    if len(cls.DWORDS) == 1:
        return [" " + line for line in _decode_body(cls, generation, cls.DWORDS[0])]
    optional = cls.FIELDS[-1].name
    lines = [f" if length == {cls.DWORDS[0]}:"]
    lines += ["  " + line for line in _decode_body(cls, generation, cls.DWORDS[0], skip=optional)]
    return lines + [" " + line for line in _decode_body(cls, generation, cls.DWORDS[1])]


def _decode_body(cls: type[Packet], generation: Generation, size: int, skip: str = "") -> list[str]:
    named = [0xFFFFFF00] + [0] * (size - 1)
    arguments: list[str] = []
    before: list[str] = []
    for f in cls.FIELDS:
        location = f.place
        if f.name == skip or generation not in location.on:
            arguments.append("None" if f.name == skip else "0")
        elif location.payload:
            first = location.spans[0].dword
            named = named[:first]
            before = [f"tail = words[offset + {first}:offset + length]"]
            arguments.append(_PAYLOADS[location.payload][1])
        else:
            terms, result = [], 0
            for span in location.spans:
                named[span.dword] |= span.mask
                shifted = f"words[offset + {span.dword}]" + (f" >> {span.low}" if span.low else "")
                mask = f" & {(1 << span.width) - 1:#x}" if span.high < 31 else ""
                terms.append(f"({shifted}{mask})" + (f" << {result}" if result else ""))
                result += span.width
            arguments.append(" | ".join(terms))
    loose = [(index, ~mask & _ALL_BITS) for index, mask in enumerate(named) if mask != _ALL_BITS]
    tests = [
        f"words[offset + {index}] & {mask:#x}" if index else f"words[offset] & {mask:#x}" for index, mask in loose
    ]
    pairs = ", ".join(f"({index}, {test})" for (index, _), test in zip(loose, tests, strict=True))
    keep = f"reserved = tuple([p for p in ({pairs},) if p[1]]) if {' | '.join(tests)} else ()"
    return [*before, keep, f"return cls({', '.join([*arguments, 'reserved=reserved'])})"]


def _make_tail_lines(*lines: str) -> Callable[[str], list[str]]:
    return lambda name: [line.format(name=name) for line in lines]


# payload kind -> (lines that put the dwords in `tail`, expression that makes the tuple from the dwords in `tail`)
_PAYLOADS: Mapping[str, tuple[Callable[[str], list[str]], str]] = {
    "values": (
        _make_tail_lines("tail = {name}", "for item in tail:", " if item >> 32:", "  _refuse(self, generation)"),
        "tuple(tail)",
    ),
    "pairs": (  # (register, value): a dword each
        _make_tail_lines(
            "tail = [item for two in {name} for item in two]",
            "for item in tail:",
            " if item >> 32:",
            "  _refuse(self, generation)",
        ),
        "tuple(zip(tail[0::2], tail[1::2]))",
    ),
    "packed": (  # (register, value), two at a time: register | register << 16, value, value
        _make_tail_lines(
            "if len({name}) & 1:",
            " _refuse(self, generation)",
            "tail = []",
            "for (first, one), (second, two) in zip({name}[0::2], {name}[1::2]):",
            " if (first | second) >> 16 | (one | two) >> 32:",
            "  _refuse(self, generation)",
            " tail += (first | second << 16, one, two)",
        ),
        "tuple([pair for three in zip(tail[0::3], tail[1::3], tail[2::3])"
        " for pair in ((three[0] & 0xffff, three[1]), (three[0] >> 16, three[2]))])",
    ),
    "fences": (  # (VA, value), 64 bits each, low dwords first
        _make_tail_lines(
            "tail = []",
            "for va, value in {name}:",
            " if (va | value) >> 64:",
            "  _refuse(self, generation)",
            " tail += (va & 0xffffffff, va >> 32, value & 0xffffffff, value >> 32)",
        ),
        "tuple([(a | b << 32, c | d << 32) for a, b, c, d in"
        " zip(tail[0::4], tail[1::4], tail[2::4], tail[3::4])])",
    ),
}


def _with_reserved(words: list[int], reserved: tuple[tuple[int, int], ...]) -> list[int]:
    for dword, extra in reserved:
        if not 0 <= dword < len(words) or extra >> 32 or words[dword] & extra:
            raise EncodeError(f"bits {extra:#x} of dword {dword} are not reserved in this packet")
        words[dword] |= extra
    return words


def _raise_unsupported(packet: Packet, generation: Generation) -> None:
    """Raise an error that names the field that the encoder rejected."""
    chip = Generation(generation).name.lower()
    if generation not in packet.ON:
        raise EncodeError(f"{packet.NAME} is not a compute packet of {chip}")
    for f in packet.FIELDS:
        value, location = getattr(packet, f.name), f.place
        if location.payload or value is None:
            continue
        if generation not in location.on and value:
            raise EncodeError(f"{packet.NAME}.{f.name} = {value:#x}: {chip} has no such field", next="leave it 0")
        width = sum(span.width for span in location.spans)
        if value >> width:
            raise EncodeError(
                f"{packet.NAME}.{f.name} = {value:#x}: expected 0 to {(1 << width) - 1:#x} ({width} bits)"
            )
    raise EncodeError(
        f"{packet.NAME}: {packet.FIELDS[-1].name} has the wrong number of values, or one that is too wide"
    )
