"""Programs nobody wrote: random dwords, random instructions of the chip, real kernels with something changed.

`random_program(seed)` is the same on every machine as long as the ISA tables and the kernels are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from machine_words import ENDPGM, s_move, sop1, store_dword, v_mov

import zinc_rt.kernels.gfx1201
from zinc_rt.isa import Instruction, Kind, Target, decode, decode_stream, target_of
from zinc_rt.kernels.zrt import read_zrt

DATA, ARGUMENTS, RESOURCE, KEPT = 0, 2, 4, 8
"""User data: s[0:1] a buffer or arguments, s[2:3] kernel arguments, s[4:7] a resource, s[8:9] the buffer again."""
RESULTS = 6  # of a program's last instructions, stored at its end
PREFIXES = (  # (first byte's bits, how many of them): the encodings of gfx12, each to be met as often
    (0x00, 1), (0x7C, 7), (0x7E, 7), (0x80, 2), (0xB0, 4), (0xBE80, 9), (0xBF00, 9), (0xBF80, 9), (0xC8, 6),
    (0xCC00, 8), (0xCC40, 10), (0xC0, 6), (0xC4, 6), (0xD4, 6), (0xD6, 6), (0xD8, 6), (0xDC, 6), (0xEC, 8),
    (0xED, 8), (0xEE, 8), (0xF4, 6),
)  # fmt: skip
LENGTHS = (1, 2, 3, 5, 8, 12)  # of random programs; what they cost grows with it
VARIANTS = 6  # of one mnemonic in the pool
POOL_TRIES = 120_000
_LDS_OPERANDS = (0xFFFFFFFF, 0x0F0000FF, 0x0F0F, 0x0F000F0F, 0x0F0F0F, 0x0F000000)  # vdst, data1, data0, address
LARGEST_WHOLE = 1024  # bytes of a kernel that is mutated whole: larger ones take seconds to compile


@dataclass(frozen=True)
class FireProgram:
    """Code with its launch parameters. `kind` and `about` describe how it was generated."""

    seed: int
    kind: str
    about: str
    code: bytes
    wave: int
    level: str
    vgprs: int
    threads: tuple[int, int, int]
    groups: tuple[int, int, int]
    lds_bytes: int
    scratch_bytes: int  # of one lane
    pointer: str  # what s[0:1] points to


def random_program(seed: int) -> FireProgram:
    choice = Random(f"under fire {seed}")
    kind = choice.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
    wave = choice.choices((32, 64), (4, 1))[0]
    code, about = MAKERS[kind](choice, target_of("gfx1201", wave))
    return FireProgram(
        seed,
        kind,
        about,
        code,
        wave,
        choice.choices(("fast", "off", "full"), (6, 2, 2))[0],
        choice.choice((8, 16, 24, 32, 64, 96, 128, 256))
        if kind != "kernel"
        else choice.choice((32, 64, 128, 256)),
        choice.choice(((1, 1, 1), (7, 1, 1), (32, 1, 1), (33, 1, 1), (64, 1, 1), (8, 4, 2), (128, 1, 1))),
        choice.choice(((1, 1, 1), (1, 1, 1), (2, 1, 1), (3, 2, 1))),
        choice.choices((0, 512, 1024, 65536), (4, 2, 2, 1))[0],
        choice.choices((0, 16, 256), (5, 1, 1))[0],
        choice.choices(("arguments", "data"), (3, 1))[0] if kind == "kernel" else "data",
    )


# --- random dwords


def random_words(choice: Random, target: Target) -> tuple[bytes, str]:
    """Random dwords; sometimes the end of the program is reachable."""
    code = choice.randbytes(4 * choice.randrange(1, 24))
    return code + (pack_dword(ENDPGM) if choice.random() < 0.7 else b""), "random dwords"


# --- random instructions


@functools.cache
def instruction_pool(wave: int) -> dict[str, tuple[bytes, ...]]:
    """Return encodings with random operands, by mnemonic. Return the mnemonics that LLVM decodes and that are in
    the tables of `isa`.
    """
    choice, target = Random(f"pool {wave}"), target_of("gfx1201", wave)
    result: dict[str, list[bytes]] = {}
    for code in (*memory_encodings(choice), *plain_encodings(choice)):
        text = decode(code, 0, target)
        if text is not None:
            variants = result.setdefault(text.mnemonic, [])
            if len(variants) < VARIANTS:
                variants.append(code[: text.size_bytes])
    return {name: tuple(result[name]) for name in sorted(result)}


def memory_encodings(choice: Random) -> Iterator[bytes]:
    """Yield every opcode of LDS, flat, scratch, global and buffer accesses, with reserved bits 0."""
    for opcode in range(256):
        for _ in range(2 * VARIANTS):
            registers = choice.getrandbits(32) & choice.choice(_LDS_OPERANDS)
            yield pack_dword(0xD8 << 24 | opcode << 18 | choice.randrange(64) * 4) + pack_dword(registers)
            for top in (0xEC, 0xED, 0xEE, 0xC4):
                head = top << 24 | (opcode & 0x7F) << 14 | 0x7C  # no scalar base
                tail = [choice.getrandbits(32) & 0x07800FFF, choice.getrandbits(20) << 8 | choice.randrange(8)]
                if top == 0xC4:
                    tail[0] = choice.getrandbits(32) & 0xC0001E1F
                yield b"".join(map(pack_dword, (head, *tail)))


def plain_encodings(choice: Random) -> Iterator[bytes]:
    """Select every encoding equally often, regardless of its share of all words."""
    for number in range(POOL_TRIES):
        prefix, bits = PREFIXES[number % len(PREFIXES)]
        top = prefix >> (8 if prefix > 0xFF else 0)
        low = prefix & 0xFF if prefix > 0xFF else 0
        head = top << 24 | (low << 16 if prefix > 0xFF else 0)
        free = (1 << 32 - bits) - 1
        keep = choice.choice((free, choice.getrandbits(32) & free, free & 0x03FF0000, free & 0x00FFFE0F))
        word = head | choice.getrandbits(32 - bits) & keep  # reserved bits are mostly 0 then
        tail = choice.getrandbits(96) & choice.choice(((1 << 96) - 1, choice.getrandbits(96), 0xFF0F0F0F0F0F0F0F))
        code = word.to_bytes(4, "little") + tail.to_bytes(12, "little")
        yield code


def random_instructions(choice: Random, target: Target) -> tuple[bytes, str]:
    parts: list[bytes] = []
    if choice.random() < 0.8:
        parts.append(initialise_registers(choice))
    names = list(instruction_pool(target.wave))
    chosen = [choice.choice(names) for _ in range(choice.choices(LENGTHS, (5, 5, 4, 3, 2, 1))[0])]
    for name in chosen:
        parts.append(redraw_operands(choice, choice.choice(instruction_pool(target.wave)[name]), name, target))
    parts += [store_results(parts, target), pack_dword(ENDPGM)]
    return b"".join(parts), "random instructions: " + " ".join(chosen[:4])


def store_results(parts: list[bytes], target: Target) -> bytes:
    """Store the results of the last instructions, because unused results would not be computed."""
    result: list[int] = []
    for part in parts:
        text = decode(part, 0, target)
        if text is not None and text.operands and text.operands[0].kind in (Kind.VGPR, Kind.SGPR):
            first = text.operands[0]
            for number in range(first.index, first.index + min(first.width, 2)):
                result.append(number + 256 * (first.kind is Kind.VGPR))
    words = [v_mov(0, 128)]
    for location, source in enumerate(dict.fromkeys(reversed(result[-RESULTS:]))):
        if source < 256:
            words += [v_mov(1, source), *store_dword(1, 0, KEPT, 4 * location)]
        elif source > 257:
            words += store_dword(source - 256, 0, KEPT, 4 * location)
    return b"".join(map(pack_dword, words))


def initialise_registers(choice: Random) -> bytes:
    """Initialise the first registers, so that not every read is uninitialised."""
    words: list[int] = []
    for number in range(choice.randrange(1, 5)):
        words.append(v_mov(number, 128 + choice.randrange(0, 65)))
    for number in range(12, 12 + choice.randrange(0, 4)):
        words += s_move(number, choice.getrandbits(32) if choice.random() < 0.5 else choice.randrange(64))
    odd = choice.random()
    if odd < 0.1:
        words += s_move(126, choice.getrandbits(32))  # exec_lo
    elif odd < 0.2:
        words += s_move(106, choice.getrandbits(32))  # vcc_lo
    elif odd < 0.25:
        words.append(sop1("s_mov_b32", 126, 128))  # no lane
    return b"".join(map(pack_dword, words))


def redraw_operands(choice: Random, code: bytes, name: str, target: Target) -> bytes:
    """Randomise some of the instruction's operand bits; most memory accesses use a mapped base."""
    for _ in range(8):
        changed = bytearray(code)
        for _ in range(choice.randrange(0, 6)):
            bit = choice.randrange(8 * len(changed))
            changed[bit // 8] ^= 1 << bit % 8
        if choice.random() < 0.8:
            use_mapped_address(choice, changed, name)
        text = decode(bytes(changed), 0, target)
        if text is not None and text.mnemonic == name and text.size_bytes == len(changed):
            return bytes(changed)
    return code


def use_mapped_address(choice: Random, code: bytearray, name: str) -> None:
    """For VGLOBAL, VBUFFER, SMEM and LDS, set the address fields to a valid base and a small offset."""
    word = int.from_bytes(code[:4], "little")
    if name.startswith("global_") and len(code) == 12:
        code[0] = DATA  # SADDR
        code[8] = choice.randrange(4)  # VADDR
        code[9:12] = choice.randrange(0, 4096).to_bytes(3, "little")
    elif name.startswith(("s_load", "s_prefetch")):
        code[0:4] = (word & ~0x3F | DATA // 2).to_bytes(4, "little")
        code[4:8] = (choice.randrange(0, 2048) & ~3 | 0xF8000000).to_bytes(4, "little")
    elif name.startswith("buffer_") and len(code) == 12:
        code[0] = 0x7C  # SOFFSET null
        code[5] = code[5] & 1 | RESOURCE << 1 & 0xFE
        code[6] = code[6] & 0xFC
    elif name.startswith("ds_"):
        code[0:2] = (choice.randrange(0, 512) & ~3).to_bytes(2, "little")


# --- real kernels, changed


@functools.cache
def load_kernels() -> tuple[tuple[str, bytes], ...]:
    folder = Path(zinc_rt.kernels.gfx1201.__file__).parent
    return tuple((file.stem, read_zrt(file.read_bytes()).code) for file in sorted(folder.glob("built/*.zrt")))


@functools.cache
def instructions_of(name: str) -> tuple[tuple[bytes, Instruction], ...]:
    code = dict(load_kernels())[name]
    return tuple(
        (code[item.at : item.at + item.size_bytes], item.instruction)
        for item in decode_stream(code, target_of("gfx1201"))
        if item.instruction is not None
    )


def mutate_kernel(choice: Random, target: Target) -> tuple[bytes, str]:
    """Take the beginning of a kernel, a range of its instructions, or a whole small kernel, and apply one to four
    changes.
    """
    name, code = choice.choice(load_kernels())
    parts = [item for item, _ in instructions_of(name)]
    how = choice.random()
    if how < 0.1 and len(code) <= LARGEST_WHOLE:
        what = "whole"
    elif how < 0.55:
        parts, what = parts[: choice.choice((4, 6, 8, 10, 14, 24))], "beginning"
    else:
        start = choice.randrange(len(parts))
        parts, what = parts[start : start + choice.choice((1, 2, 3, 4, 6, 16))], f"from {start}"
    if what != "whole":
        parts += [store_results(parts, target), pack_dword(ENDPGM)]
    changes = [choice.choice(tuple(CHANGES)) for _ in range(choice.randrange(1, 5))]
    for change in changes:
        parts = CHANGES[change](choice, parts, target)
    return b"".join(parts), f"{name}, {what}: {', '.join(changes)}"


Parts = list[bytes]


def flip_bit(choice: Random, parts: Parts, target: Target) -> Parts:
    index = choice.randrange(len(parts))
    changed = bytearray(parts[index])
    bit = choice.randrange(8 * len(changed)) if changed else 0
    if changed:
        changed[bit // 8] ^= 1 << bit % 8
    return [*parts[:index], bytes(changed), *parts[index + 1 :]]


def swap_instructions(choice: Random, parts: Parts, target: Target) -> Parts:
    result = list(parts)
    one, other = choice.randrange(len(result)), choice.randrange(len(result))
    result[one], result[other] = result[other], result[one]
    return result


def delete_instruction(choice: Random, parts: Parts, target: Target) -> Parts:
    index = choice.randrange(len(parts))
    return [*parts[:index], *parts[index + 1 :]] or [pack_dword(ENDPGM)]


def repeat_instruction(choice: Random, parts: Parts, target: Target) -> Parts:
    index = choice.randrange(len(parts))
    return [*parts[:index], parts[index], *parts[index:]]


def change_branch(choice: Random, parts: Parts, target: Target) -> Parts:
    """Redirect a branch, or insert one, to a nearby address: inside an instruction, before the code or after
    it.
    """
    branches = [index for index, item in enumerate(parts) if _is_branch(item, target)]
    jump = choice.choice((choice.randrange(-40, 40), choice.randrange(-3, 3), choice.randrange(-32768, 32768)))
    if not branches or choice.random() < 0.3:
        opcode = choice.choice((0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26))  # s_branch, s_cbranch_*
        index = choice.randrange(len(parts) + 1)
        return [*parts[:index], pack_dword(0xBF800000 | opcode << 16 | jump & 0xFFFF), *parts[index:]]
    index = choice.choice(branches)
    return [*parts[:index], (jump & 0xFFFF).to_bytes(2, "little") + parts[index][2:], *parts[index + 1 :]]


def _is_branch(code: bytes, target: Target) -> bool:
    return len(code) == 4 and code[3] == 0xBF and 0xA0 <= code[2] <= 0xA6


def cut_code(choice: Random, parts: Parts, target: Target) -> Parts:
    """Anywhere, also within an instruction."""
    text = b"".join(parts)
    return [text[: choice.randrange(4, len(text) + 1)]] if len(text) > 4 else parts


def use_high_register(choice: Random, parts: Parts, target: Target) -> Parts:
    """Change a byte of an instruction to a large register number."""
    index = choice.randrange(len(parts))
    changed = bytearray(parts[index])
    if changed:
        changed[choice.randrange(len(changed))] = choice.choice((0x69, 0x6A, 0x7B, 0x7C, 0x7E, 0x7F, 0xF0, 0xFF))
    return [*parts[:index], bytes(changed), *parts[index + 1 :]]


def use_odd_masks(choice: Random, parts: Parts, target: Target) -> Parts:
    """Insert an instruction that sets EXEC, VCC or M0."""
    register = choice.choice((126, 127, 106, 107, 125))
    value = choice.choice((0, 1, 0x80000000, 0xFFFFFFFF, choice.getrandbits(32)))
    index = choice.randrange(len(parts) + 1)
    return [*parts[:index], b"".join(map(pack_dword, s_move(register, value))), *parts[index:]]


def use_stray_address(choice: Random, parts: Parts, target: Target) -> Parts:
    """Set a scalar register or v0 to v3 to a value at or beyond the bounds of LDS, scratch or buffers."""
    value = choice.choice((508, 511, 512, 1023, 1024, 65532, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC))
    index = choice.randrange(len(parts) + 1)
    if choice.random() < 0.5:
        code = b"".join(map(pack_dword, s_move(choice.randrange(0, 16), value)))
    else:
        code = pack_dword(v_mov(choice.randrange(4), 255)) + pack_dword(value)
    return [*parts[:index], code, *parts[index:]]


CHANGES = {
    "bit flipped": flip_bit,
    "instructions swapped": swap_instructions,
    "instruction deleted": delete_instruction,
    "instruction doubled": repeat_instruction,
    "branch changed": change_branch,
    "cut": cut_code,
    "register out of range": use_high_register,
    "odd mask": use_odd_masks,
    "stray address": use_stray_address,
}
MAKERS = {"words": random_words, "instructions": random_instructions, "kernel": mutate_kernel}
WEIGHTS = {"words": 1, "instructions": 4, "kernel": 5}


def pack_dword(word: int) -> bytes:
    return (word & 0xFFFFFFFF).to_bytes(4, "little")
