"""One sparse matrix product a program, for waves of 32 and 64; assembled once: swmmac_programs.txt.

python tests/sim/shader/swmmac_programs.py       # assembles and writes swmmac_programs.txt (needs ziglang)
"""

from __future__ import annotations

from pathlib import Path

from instruction_kernels import assemble_text

FILE = Path(__file__).with_suffix(".txt")
COMMAND = "python tests/sim/shader/swmmac_programs.py"
# mnemonic -> registers of D, A and B in a wave of 32 (half of that in one of 64), bits of an element, length of k
FORMS = {
    "v_swmmac_f32_16x16x32_f16": (8, 4, 8, 16, 32),
    "v_swmmac_f32_16x16x32_bf16": (8, 4, 8, 16, 32),
    "v_swmmac_f16_16x16x32_f16": (4, 4, 8, 16, 32),
    "v_swmmac_bf16_16x16x32_bf16": (4, 4, 8, 16, 32),
    "v_swmmac_i32_16x16x32_iu8": (8, 2, 4, 8, 32),
    "v_swmmac_i32_16x16x32_iu4": (8, 1, 2, 4, 32),
    "v_swmmac_i32_16x16x64_iu4": (8, 2, 4, 4, 64),
    "v_swmmac_f32_16x16x32_fp8_fp8": (8, 2, 4, 8, 32),
    "v_swmmac_f32_16x16x32_fp8_bf8": (8, 2, 4, 8, 32),
    "v_swmmac_f32_16x16x32_bf8_fp8": (8, 2, 4, 8, 32),
    "v_swmmac_f32_16x16x32_bf8_bf8": (8, 2, 4, 8, 32),
}


def operand_widths(mnemonic: str, wave: int) -> tuple[int, int, int]:
    """VGPRs of D, A and B."""
    d, a, b = FORMS[mnemonic][:3]
    return (d, a, b) if wave == 32 else (d // 2, max(a // 2, 1), b // 2)


def index_key_count(mnemonic: str, wave: int) -> int:
    """How many fields an index register has."""
    _, a, _ = operand_widths(mnemonic, wave)
    return 32 // (2 * a * (32 // FORMS[mnemonic][3]))


def register_range(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def program_source(mnemonic: str, wave: int, key: int) -> str:
    """A: 16 bytes a lane from s[0:1]; B, C: 32 bytes from s[2:3], s[4:5]; index: 4 bytes from s[6:7]. D over C."""
    d, a, b = operand_widths(mnemonic, wave)
    operands = f"{register_range(16, d)}, {register_range(4, a)}, {register_range(8, b)}, v24"
    tail = f" index_key:{key}" if key else ""
    tail += " neg_lo:[1,0,0]" if "_i32_" in mnemonic and key == 0 else ""
    return f"""{"; wave64" if wave == 64 else ""}
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 4, v0
v_lshlrev_b32 v2, 5, v0
v_lshlrev_b32 v3, 2, v0
global_load_b128 v[4:7], v1, s[0:1]
global_load_b128 v[8:11], v2, s[2:3]
global_load_b128 v[12:15], v2, s[2:3] offset:16
global_load_b128 v[16:19], v2, s[4:5]
global_load_b128 v[20:23], v2, s[4:5] offset:16
global_load_b32 v24, v3, s[6:7]
s_wait_loadcnt 0
{mnemonic} {operands}{tail}
global_store_b128 v2, v[16:19], s[4:5]
global_store_b128 v2, v[20:23], s[4:5] offset:16
s_endpgm
"""


def list_programs() -> list[tuple[str, int, int]]:
    """(mnemonic, wave, index_key): the first field and the last."""
    return [
        (name, wave, key)
        for name in FORMS
        for wave in (32, 64)
        for key in sorted({0, index_key_count(name, wave) - 1})
    ]


def read_programs() -> dict[tuple[str, int, int], bytes]:
    result = {}
    for line in FILE.read_text().splitlines():
        if line and not line.startswith("#"):
            name, wave, key, words = line.split()
            result[name, int(wave), int(key)] = bytes.fromhex(words)
    return result


def main() -> None:
    lines = [f"# gfx1201 machine code of swmmac_programs.py: mnemonic, wave, index_key. Made with: {COMMAND}"]
    lines += [
        f"{name} {wave} {key} {assemble_text(program_source(name, wave, key)).hex()}"
        for name, wave, key in list_programs()
    ]
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
