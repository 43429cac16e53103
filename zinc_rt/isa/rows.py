"""Instruction rows: all facts of an instruction, parsed once per chip generation from the text in tables/.

    gfx12 gfx11 mnemonic operands flags facts
    25    25    v_exp_f32 v1,b32 m1 c o dpp %trans

The first two columns are the opcode in hexadecimal, `-` if the generation lacks the instruction. `operands` are
kinds separated by commas in the order of the text, `-` for none. `40+` is an opcode of gfx11.5 only. The decoder
of each encoding documents its kinds and flags.

A row without facts has those of its encoding (ENCODINGS below). The registers are implicit ones, which no operand
names:

| fact | means |
|---|---|
| <scc <vcc <exec <m0 | it reads them |
| <dst | it reads its destination: it accumulates, or leaves part of it |
| >scc >exec | it writes them |
| >src | it writes its second operand too |
| %trans | the unit it occupies (report.UNITS; vector memory: load, store, atomic or cache) |
| @branch | where control continues: see FLOWS |
| #kmcnt | the counter that tracks its completion; #none for none |
| ~loadcnt | it waits for that counter; ~all for each, ~legacy as the s_waitcnt of gfx11 |
| ~vector ~lgkm | it waits for the counters of which gfx11's VMCNT and LGKMCNT are sums |
| !permlane | it must not directly follow a v_cmpx |
| !one_scalar | it may read one scalar value, where others may read two |

Compares are numbered alike for every type, so v_cmp_{lt,eq}_f16 is two instructions, at this opcode and the next.
An instruction with several encodings has one row, from which the others are derived: VOP1, VOP2 and VOPC imply the
long VOP3 form (except with the flag `e32`), v_cmp implies v_cmpx, the letters before the mnemonic of a VMEM row
are the segments that support it, and `rtn20` is the opcode at which a DS atomic returns the previous value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module

from zinc_rt.isa.target import DEFAULT_READING

FLOWS = {
    "branch": "to the target",
    "conditional": "to the target, or to the next instruction",
    "call": "to the target, then back to the next instruction",
    "jump": "to an address in registers",
    "jump_call": "to an address in registers, then back to the next instruction",
    "return": "out of a trap handler, to an address unknown to static analysis",
    "end": "nowhere: the wave ends",
    "padding": "nowhere: the following bytes are not code",
    "illegal": "nowhere: it cannot be executed",
    "halt": "to the next instruction, when a trap handler or a debugger resumes the wave",
    "barrier": "to the next instruction, when the other waves have arrived",
}
"""Where control goes after an instruction; rows without a flow continue with the next instruction."""


@dataclass(frozen=True, slots=True)
class EncodingFacts:
    """The default facts of all instructions of an encoding.

    `pipe`: salu, valu, smem, vmem (flat_, global_, scratch_, buffer_ and image instructions), lds or graphics.
    """

    pipe: str
    unit: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    counter: str = ""


_VALU = EncodingFacts("valu", "valu", reads=("exec",))
_SALU = EncodingFacts("salu", "salu")
_VMEM = EncodingFacts("vmem", "", reads=("exec",))  # each row's first flag is its unit
_GRAPHICS = EncodingFacts("graphics", "other")
ENCODINGS = {
    **dict.fromkeys(("SOP1", "SOP2", "SOPK", "SOPP"), _SALU),
    "SOPC": replace(_SALU, writes=("scc",)),
    "SMEM": EncodingFacts("smem", "smem", counter="kmcnt"),
    **dict.fromkeys(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P"), _VALU),
    "VOPD": replace(_VALU, unit="vopd"),
    **dict.fromkeys(("FLAT", "GLOBAL", "SCRATCH", "VBUFFER", "MUBUF", "MTBUF", "VIMAGE", "MIMG"), _VMEM),
    "VSAMPLE": replace(_VMEM, counter="samplecnt"),
    "DS": EncodingFacts("lds", "lds", reads=("exec",), counter="dscnt"),
    **dict.fromkeys(("VINTERP", "VDSDIR", "LDSDIR"), _GRAPHICS),
    "EXP": replace(_GRAPHICS, counter="expcnt"),
}
# Instructions of gfx11 that gfx12 has with another name (LLVM, SOPInstructions.td and VOP3Instructions.td).
_RENAMED = {
    "s_add_u32": "s_add_co_u32",
    "s_sub_u32": "s_sub_co_u32",
    "s_add_i32": "s_add_co_i32",
    "s_sub_i32": "s_sub_co_i32",
    "s_addc_u32": "s_add_co_ci_u32",
    "s_subb_u32": "s_sub_co_ci_u32",
    "s_addk_i32": "s_addk_co_i32",
    "v_mad_u64_u32": "v_mad_co_u64_u32",
    "v_mad_i64_i32": "v_mad_co_i64_i32",
}
_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "96": 12, "128": 16, "256": 32, "512": 64}


@dataclass(frozen=True)
class InstructionRow:
    """An instruction of one generation: its encoding, and its effects apart from arithmetic.

    `flags` are those of its decoder. `reads` and `writes` are implicit registers; `dst` and `src` among them stand
    for the first and the second operand. `counter` and `waits` name counters of gfx12; `limits` are the rules that
    the lint applies.
    """

    encoding: str
    opcode: int
    mnemonic: str
    operands: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    unit: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    flow: str = ""
    counter: str = ""
    waits: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()

    def mask(self, letter: str) -> int:
        """Return the number in the flag made of a letter and a hex digit, 0 without such a flag."""
        return next((int(flag[1], 16) for flag in self.flags if len(flag) == 2 and flag[0] == letter), 0)

    @cached_property
    def name(self) -> str:
        """The mnemonic without the suffix of its encoding; for a renamed instruction that of gfx12."""
        name = strip_suffix(self.mnemonic)
        return _RENAMED.get(name, name)

    @property
    def pipe(self) -> str:
        return ENCODINGS[self.encoding].pipe

    @cached_property
    def destinations(self) -> int:
        """Return the number of leading operands that are results."""
        kinds = [kind for kind in self.operands if kind != "no"]
        sources = (index for index, kind in enumerate(kinds) if not _is_destination(kind))
        return next(sources, len(kinds))

    @cached_property
    def data_half(self) -> int | None:
        """The half of its data register that a memory access loads or stores: 0 lower, 1 upper, None both."""
        return 1 if "hi" in self.flags else 0 if "lo" in self.flags else None

    @cached_property
    def access_bytes(self) -> int:
        """The bytes that a lane, or a scalar load, transfers to or from memory or LDS; 0 if none."""
        if self.pipe in ("salu", "valu") or {"nolds", "prefetch"} & set(self.flags):
            return 0
        for part in reversed(self.mnemonic.split("_")):
            if part[1:] in _BYTES and part[0] in "buif":
                return _BYTES[part[1:]] * (2 if "two" in self.flags else 1)
        return 0


def strip_suffix(mnemonic: str) -> str:
    """Return the mnemonic without the suffix of its encoding: v_add_f32_e64_dpp is v_add_f32."""
    for suffix in ("_dpp", "_e32", "_e64"):
        mnemonic = mnemonic.removesuffix(suffix)
    return mnemonic


def _is_destination(kind: str) -> bool:
    return kind[0] in "dDv" or kind in ("MD", "+MD", "h1", "l1", "t1", "w1")


@cache
def make_rows(table: str, encoding: str, isa: float, halves: bool | None = None) -> Mapping[int, InstructionRow]:
    """Return the rows of `encoding` in tables/<table>.py, by opcode. `isa` is Target.isa. `halves`: 16-bit
    operands are halves of registers (Target.has_halves); None for LLVM's default for the generation, plus the rows
    that exist only in the other reading.
    """
    generation = int(isa)
    if halves is None:
        default = make_rows(table, encoding, isa, DEFAULT_READING[generation] == "real")
        return {**make_rows(table, encoding, isa, True), **default}
    if _ONLY.get(encoding, generation) != generation:
        return {}
    if encoding in _SHORT:
        instruction_rows: Iterator[InstructionRow] = (
            _make_short_row(row, halves)
            for row in _add_cmpx_rows(encoding, _list_written_rows(table, encoding, isa))
            if halves or "real" not in row.flags
        )
    elif encoding == "VOP3":
        instruction_rows = (
            _make_long_row(row, halves) for row in _list_vop3_rows(table, isa) if halves or "real" not in row.flags
        )
    elif encoding == "DS":
        instruction_rows = _add_returning_rows(_list_written_rows(table, encoding, isa))
    elif encoding in SEGMENTS:
        instruction_rows = _expand_segment_rows(encoding, _list_written_rows(table, "VMEM", isa))
    elif encoding == "MIMG":
        instruction_rows = (
            replace(row, encoding="MIMG") for image in _IMAGES for row in _list_written_rows(table, image, isa)
        )
    else:
        instruction_rows = _list_written_rows(table, encoding, isa)
    by_opcode: dict[int, InstructionRow] = {}
    for row in instruction_rows:
        if (other := by_opcode.setdefault(row.opcode, row)) is not row:
            raise ValueError(
                f"{row.mnemonic} and {other.mnemonic} have the same opcode {row.opcode:#x} in {encoding}"
            )
    return by_opcode


def _list_written_rows(table: str, encoding: str, isa: float) -> Iterator[InstructionRow]:
    """Return the rows that the table lists explicitly."""
    for line in import_module(f"zinc_rt.isa.tables.{table}").ROWS[encoding].split("\n"):
        fields = line.split()
        opcode = fields[0 if isa == 12 else 1] if fields else "-"
        if opcode != "-" and (isa == 11.5 or opcode[-1] != "+"):
            operands = () if fields[3] == "-" else tuple(fields[3].split(","))
            for index, mnemonic in enumerate(_expand_mnemonics(fields[2])):
                yield _make_row(encoding, int(opcode.rstrip("+"), 16) + index, mnemonic, operands, fields[4:])


def _expand_mnemonics(text: str) -> list[str]:
    """Expand the mnemonics of a row: v_cmp_{lt,eq}_f16 is two, at its opcode and the next."""
    before, _, rest = text.partition("{")
    names, _, after = rest.partition("}")
    return [before + name + after for name in names.split(",")]


def _make_row(
    encoding: str, opcode: int, mnemonic: str, operands: tuple[str, ...], words: list[str]
) -> InstructionRow:
    result: dict[str, list[str]] = {sign: [] for sign in "<>%@#~!"}
    flags = []
    for word in words:
        if word[0] in result:
            result[word[0]].append(word[1:])
        else:
            flags.append(word)
    common = ENCODINGS.get(encoding, _VMEM)
    counter = next(iter(result["#"]), common.counter)
    return InstructionRow(
        encoding,
        opcode,
        mnemonic,
        operands,
        tuple(flags),
        unit=next(iter(result["%"]), common.unit or flags[0]),
        reads=(*common.reads, *result["<"]),
        writes=(*common.writes, *result[">"]),
        flow=next(iter(result["@"]), ""),
        counter="" if counter == "none" else counter,
        waits=tuple(word for words in result["~"] for word in words.split("+")),
        limits=tuple(result["!"]),
    )


# --- vector arithmetic: short forms and VOP3

_SHORT = {"VOP1": 0x180, "VOP2": 0x100, "VOPC": 0}
"""First VOP3 opcode of the short encodings."""
# Halves of registers, or whole registers, of which short encodings reach v127, by Target.has_halves.
_HALF_KINDS = {
    ("VOP", False): {"h1": "t1", "hf": "t16", "hi": "ti16"},
    ("VOP", True): {},
    ("VOP3", False): {"h1": "w1", "hf": "wf", "hi": "wi", "hy": "wy"},
    ("VOP3", True): {"h1": "l1", "hf": "lf", "hi": "li", "hy": "ly"},
}
_SECOND_SOURCE = {"b32": "v1", "i64": "v2", "f64": "v2"}  # of a short encoding: a vector register
_MASKS = {"MD": "vcc", "+MD": "vcc", "M": "vcc"}  # of a short encoding: VCC
HALVES = frozenset(("h1", "hf", "hi", "hy"))  # 16-bit operands, before either reading
# Which bits pick halves, in the long forms of VOP1, and of all others; of compares; without a destination.
_HALF_BITS = {"VOP1": "s1001", "VOPC": "s110y", "v_cmpx": "s1100"}


def _add_cmpx_rows(encoding: str, instruction_rows: Iterator[InstructionRow]) -> Iterator[InstructionRow]:
    """Add the v_cmpx derived from each compare, which writes EXEC instead of a mask, unless it has an explicit
    row."""
    if encoding != "VOPC":
        yield from instruction_rows
        return
    written = {row.opcode: row for row in instruction_rows}
    for row in written.values():
        executes = row.mnemonic.startswith("v_cmpx")
        yield replace(row, writes=(*row.writes, "exec")) if executes else row
        if not executes and (opcode := row.opcode | 0x80) not in written:
            mnemonic = row.mnemonic.replace("v_cmp_", "v_cmpx_")
            operands = ("no", *row.operands[1:])
            yield replace(row, opcode=opcode, mnemonic=mnemonic, operands=operands, writes=(*row.writes, "exec"))


def _make_short_row(row: InstructionRow, halves: bool) -> InstructionRow:
    """Return the row for a short encoding: fewer sources, and no modifiers except under DPP."""
    kinds = _HALF_KINDS["VOP", halves]
    operands: list[str] = []
    sources = 0
    for kind in row.operands:
        if kind in ("no", "K") or kind in _MASKS:
            operands += [] if kind == "no" else [_MASKS.get(kind, kind)]
            continue
        is_source = not _is_destination(kind) or (kind == "h1" and bool(operands))
        sources += is_source
        if sources == 2:
            operands.append(_SECOND_SOURCE.get(kind) or ("h1" if halves else "T1"))
        else:
            operands.append(kinds.get(kind, kind))
    row = _set_half_flags(row, halves)
    kept = "mnax" if "dpp" in row.flags else ""
    flags = [f for f in row.flags if f in ("dpp", "any") or (len(f) == 2 and f[0] in kept)]
    has_long = "e32" not in row.flags and "any" not in row.flags
    flags += ["halves"] * bool(HALVES.intersection(row.operands))
    mnemonic = row.mnemonic + "_e32" * has_long
    return replace(row, mnemonic=mnemonic, operands=tuple(operands), flags=tuple(flags))


def _list_vop3_rows(table: str, isa: float) -> Iterator[InstructionRow]:
    for encoding, base in _SHORT.items():
        for row in _add_cmpx_rows(encoding, _list_written_rows(table, encoding, isa)):
            if "e32" not in row.flags:
                mnemonic = row.mnemonic + "_e64" * ("any" not in row.flags)
                yield replace(row, opcode=base + row.opcode, mnemonic=mnemonic)
    yield from _list_written_rows(table, "VOP3", isa)


def _make_long_row(row: InstructionRow, halves: bool) -> InstructionRow:
    kinds = _HALF_KINDS["VOP3", halves]
    if HALVES.intersection(row.operands):
        row = replace(row, flags=(*row.flags, "halves"))
    operands = tuple(kinds.get(kind, kind) for kind in row.operands)
    return replace(_set_half_flags(row, halves), encoding="VOP3", operands=operands)


def _set_half_flags(row: InstructionRow, halves: bool) -> InstructionRow:
    """Return the meaning of the op_sel, neg and abs bits if operands are 16-bit halves."""
    if not halves or not HALVES.intersection(row.operands):
        return row
    flags = tuple("s" + flag[1:] if len(flag) == 5 and flag[0] == "r" else flag for flag in row.flags)
    if not any(flag[0] in "mnax" and len(flag) == 2 for flag in flags):
        flags = (*flags, "x1" if row.encoding == "VOP1" else "x3")
    if not any(len(flag) == 5 and flag[0] == "s" for flag in flags):
        flags = (*flags, _HALF_BITS.get("v_cmpx" if row.operands[0] == "no" else row.encoding, "s1101"))
    return replace(row, flags=flags)


# --- memory: atomics that return, and one row for all segments


def _add_returning_rows(instruction_rows: Iterator[InstructionRow]) -> Iterator[InstructionRow]:
    for row in instruction_rows:
        opcode = next((flag.removeprefix("rtn") for flag in row.flags if flag.startswith("rtn")), "")
        yield row
        if opcode:
            stem, _, kind = row.mnemonic.rpartition("_")
            operands = ("d" + row.operands[1][1:], *row.operands)
            yield replace(row, opcode=int(opcode, 16), mnemonic=f"{stem}_rtn_{kind}", operands=operands)


SEGMENTS = {
    "FLAT": {"f": "flat_"},
    "GLOBAL": {"g": "global_"},
    "SCRATCH": {"s": "scratch_"},
    "VBUFFER": {"b": "buffer_", "t": "tbuffer_"},
    "MUBUF": {"b": "buffer_"},
    "MTBUF": {"t": "tbuffer_"},
}


_ONLY = {  # encodings that one generation has
    **dict.fromkeys(("MUBUF", "MTBUF", "MIMG", "LDSDIR"), 11),
    **dict.fromkeys(("VBUFFER", "VIMAGE", "VSAMPLE", "VDSDIR"), 12),
}
_IMAGES = ("VIMAGE", "VSAMPLE")  # whose rows are MIMG's on gfx11


def _expand_segment_rows(encoding: str, instruction_rows: Iterator[InstructionRow]) -> Iterator[InstructionRow]:
    for row in instruction_rows:
        letters, _, name = row.mnemonic.partition(":")
        for letter, prefix in SEGMENTS[encoding].items():
            if letter in letters:
                yield replace(row, encoding=encoding, mnemonic=prefix + name)
