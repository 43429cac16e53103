"""Instructions one by one as they were captured on silicon: instruction_rows.txt, and programs that run its rows.

python tests/sim/shader/captured_rows.py       # assembles the rows' text into their words (needs ziglang)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from machine_words import ENDPGM, LITERAL, code_of, s_move, sopk, v_mov
from sim.shader_model.model_device import ModelDevice

from zinc_rt.isa import decode, target_of
from zinc_rt.sim.shader.run.engine_device import EngineDevice

Array = np.ndarray
FILE = Path(__file__).with_name("instruction_rows.txt")
UNTOUCHED = 0xA5A5A5A5
FP16_OVFL = 1 << 23
WORD = (1 << 32) - 1
ADDRESSES = [0x360000FF, 0x3FF, 0x30000083]  # v_and_b32 v0, 0x3ff, v0; v_lshlrev_b32 v0, 3, v0


@dataclass(frozen=True)
class CapturedRow:
    """`given` goes to v[2:3], v[4:5], v[6:7] and s20; `want` is v10, v[10:11] or s21; v10 was `before`."""

    group: str
    mode: int
    text: str
    words: tuple[int, ...]
    given: tuple[int, ...]
    want: int
    before: int

    @property
    def is_wide(self) -> bool:
        return "v[10:11]" in self.text or "v_dual" in self.text

    @property
    def name(self) -> str:
        return self.text.split()[0].removesuffix("_e32").removesuffix("_e64")

    def program(self, place: int, mode: int) -> list[int]:
        """Run in all lanes; the result is stored to 8 bytes per lane at `place` x 256. `mode`: the current
        mode.
        """
        words = []
        if self.mode & 0xFF != mode:
            words += [sopk("s_setreg_imm32_b32", 0, 7 << 11 | 1), self.mode & 0xFF]
        if "s20" in self.text:
            words += s_move(20, self.given[0])
        for number, value in enumerate(self.given):
            for half in range(2):
                words += [v_mov(2 + 2 * number + half, LITERAL), value >> 32 * half & WORD]
        words += [v_mov(10, LITERAL), self.before, v_mov(11, LITERAL), UNTOUCHED, *self.words]
        if "s21" in self.text:
            words.append(v_mov(10, 21))
        return [*words, 0xEE06C000, 10 << 23, place << 16]  # global_store_b64 v0, v[10:11], s[0:1]


def load_rows() -> list[CapturedRow]:
    rows, group = [], ""
    for line in FILE.read_text().splitlines():
        if line.startswith("group "):
            group = line.removeprefix("group ")
        elif not line.startswith("#"):
            mode, text, words, argument, want, before = line.split(" | ")
            rows.append(
                CapturedRow(
                    group,
                    int(mode, 16),
                    text,
                    tuple(int(word, 16) for word in words.split()),
                    tuple(int(word, 16) for word in argument.split()),
                    int(want, 16),
                    int(before, 16),
                )
            )
    return rows


def run_rows(device: EngineDevice | ModelDevice, rows: Sequence[CapturedRow]) -> list[int]:
    """Return the result of each row's instruction, all in one wave; FP16_OVFL is set as in the first row."""
    out = np.zeros((len(rows), 32), np.uint64)
    mode, words = rows[0].mode & 0xFF, list(ADDRESSES)
    for location, row in enumerate(rows):
        words += row.program(location, mode)
        mode = row.mode & 0xFF
    va = device.place(out, "out")
    launched = rows[0].mode & (FP16_OVFL | 0xFF)
    findings = device.run(code_of(words, ENDPGM), user_data=(va & WORD, va >> 32), mode=launched, name="captured")
    assert not findings, findings[0]
    assert (out == out[:, :1]).all()
    return [int(item) if row.is_wide else int(item) & WORD for item, row in zip(out[:, 0], rows, strict=True)]


def main() -> None:
    from vector_programs import assemble_text

    lines = [line.split(" | ") for line in FILE.read_text().splitlines()]
    rows = [parts for parts in lines if len(parts) > 1 and not parts[0].startswith("#")]
    both = " op_sel:[1,1]"  # of source and result, which LLVM refuses for some: bits 11 and 14
    code = assemble_text(
        "\n".join(['.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"', *(r[1].replace(both, "") for r in rows), ""])
    )
    pc = 0
    for parts in rows:
        text = decode(code, pc, target_of("gfx1201"))
        assert text is not None, parts
        words = [*text.words]
        pc += text.size_bytes
        words[0] |= (1 << 11 | 1 << 14) * (both in parts[1])
        parts[2] = " ".join(f"{word:08x}" for word in words)
    FILE.write_text("\n".join(" | ".join(parts) for parts in lines) + "\n")


if __name__ == "__main__":
    main()
