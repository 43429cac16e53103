"""The translator takes any bytes: every instruction gives valid IR or a refusal in words, and nothing raises."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from machine_words import ENDPGM, code_of, sopp

from zinc_rt.isa import decode, target_of
from zinc_rt.isa.rows import strip_suffix
from zinc_rt.isa.target import make_default_target
from zinc_rt.sim.shader.layout import Checks, KernelVariant
from zinc_rt.sim.shader.translate.semantics import EMIT, merge_families
from zinc_rt.sim.shader.translate.translation import Translation, translate

Counts = Callable[[int, int], int]
CHUNK = 150


def translate_code(code: bytes, *, wave: int = 32, full: bool = True, level: str = "full") -> Translation:
    """Raises RuntimeError if LLVM rejects the IR."""
    result = translate(
        KernelVariant(code, make_default_target(wave), full, Checks(level), vgprs=256, user_sgprs=16)
    )
    llvm.parse_assembly(result.text).verify()
    return result


def sample_encodings(data_dir: Path, per_mnemonic: int, wave: int) -> Iterator[tuple[str, bytes]]:
    """Return some encodings of each instruction in LLVM's tests."""
    result: dict[str, list[bytes]] = defaultdict(list)
    target = target_of("gfx1201", wave)
    for line in (data_dir / "gfx12" / "gfx1201_w32.tsv").read_text().splitlines():
        if not line.startswith("#"):
            code = bytes.fromhex(line.split("\t")[0])
            instruction = decode(code, 0, target)
            if instruction is not None:
                result[instruction.mnemonic].append(code)
    assert len(result) > 1500
    order = random.Random(7)
    for mnemonic, codes in result.items():
        order.shuffle(codes)
        for code in codes[:per_mnemonic]:
            yield mnemonic, code


@pytest.mark.rest
@pytest.mark.parametrize(("wave", "full", "level"), [(32, True, "full"), (64, False, "fast")])
def test_every_instruction_gives_valid_ir_or_is_rejected(
    data_dir: Path, slow_counts: Counts, wave: int, full: bool, level: str
) -> None:
    """Each stands behind a branch around it, so that all of a chunk are reached."""
    cases = list(sample_encodings(data_dir, slow_counts(1, 20), wave))
    cases = random.Random(wave).sample(cases, min(slow_counts(4 * CHUNK, len(cases)), len(cases)))
    refused: dict[str, str] = {}
    for start in range(0, len(cases), CHUNK):
        code = b""
        places = {}
        for mnemonic, words in cases[start : start + CHUNK]:
            code += code_of(sopp("s_cbranch_scc0", len(words) // 4))
            places[len(code)] = mnemonic
            code += words
        translation = translate_code(code + code_of(ENDPGM), wave=wave, full=full, level=level)
        refused |= {
            places[site.pc]: site.text
            for site in translation.sites
            if site.rule == "illegal" and site.pc in places
        }
    unknown = {name: text for name, text in refused.items() if text.endswith("), which is not simulated")}
    unnamed = {name for name, text in unknown.items() if "()" in text}
    assert unknown and not unnamed, "no row of unsimulated.py"


def test_random_bytes_never_raise(slow_counts: Counts) -> None:
    order = random.Random(3)
    for _ in range(slow_counts(40, 2000)):
        code = order.randbytes(order.randrange(0, 160))
        translate_code(code, wave=order.choice((32, 64)), full=order.random() < 0.5)


def test_truncated_code_is_illegal_at_its_end() -> None:
    code = code_of([0xBE8000FF, 0x12345678], ENDPGM)  # s_mov_b32 s0, 0x12345678
    for size in range(len(code)):
        sites = translate_code(code[:size]).sites
        assert [site.rule for site in sites] == ["illegal"]
        assert sites[0].pc == (0 if size < 8 else 8)


def test_translation_is_deterministic() -> None:
    code = code_of(0x7E020300, [0xBE8000FF, 77], ENDPGM)
    assert translate_code(code).text == translate_code(code).text


def test_encoding_suffixes_are_stripped() -> None:
    names = ("v_add_f32_e32", "v_add_f32_e64", "v_add_f32_dpp", "v_add_f32_e64_dpp", "v_add_f32")
    assert {strip_suffix(name) for name in names} == {"v_add_f32"}


def test_two_families_must_not_emit_the_same_instruction() -> None:
    one = {"s_nop": EMIT["s_nop"]}
    with pytest.raises(ValueError, match="s_nop"):
        merge_families((one, dict(one)))
