"""Kernels that run every instruction of the subset once, many to a kernel, and store whatever they left.

A kernel loads inputs (v0 to v39, s0 to s31) for its workgroup from memory, runs one case after another, each into
registers of its own, and stores all result registers, then the inputs again. Workgroups are trials: they differ in
data and in EXEC.

    python instruction_kernels.py       # assembles and writes instruction_kernels.npz (needs ziglang)
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from zinc_rt.isa.elf import read_elf
from zinc_rt.isa.rows import InstructionRow, make_rows

HERE = Path(__file__).parent
FILE = HERE / "instruction_kernels.npz"
FORMAT = 1
COMMAND = "python tests/sim/shader/instruction_kernels.py"

# What the input registers hold; see instruction_inputs.py for the values.
VECTOR_INPUTS = (
    "f32", "f32", "f32", "f32", "u32", "u32", "u32", "u32", "f16", "f16", "f64lo", "f64hi", "f64lo", "f64hi",
    "u32", "u32", "u32", "u32", "shift", "lane", "mild", "fp8", "class", "bf16", "mild16", "mild16", "mild16",
    "mild16", "mild16", "mild16", "mild16", "mild16", "mild", "mild", "mild8", "mild8", "mild8", "mild8",
    "bf16", "bf16", "bf16", "bf16", "bf16", "bf16",
)  # fmt: skip
SCALAR_INPUTS = (
    "u32", "u32", "u32", "u32", "f32", "f32", "f32", "f32", "u32", "u32", "f64lo", "f64hi", "f16", "f16", "shift",
    "lane", "u32", "u32", "u32", "u32", "exec", "exec", "u32", "u32", "index", "bit", "u32", "u32", "mild", "mild",
    "bfe", "selector",
)  # fmt: skip
EXEC, VCC_INPUT, INDEX, SCC_INPUT = 20, 22, 24, 25
INPUTS = len(VECTOR_INPUTS)
FIRST_RESULT, LAST_RESULT = INPUTS, 127
SAVED = 44  # scalar results pass through s[44:45] on
REGISTERS = {  # source registers of a type, in turns
    "f32": ("v0", "v1", "v2", "v3"), "f16": ("v8", "v9", "v8"), "f64": ("v[10:11]", "v[12:13]", "v[10:11]"),
    "u64": ("v[14:15]", "v[16:17]", "v[14:15]"), "u32": ("v4", "v5", "v6", "v7"), "u16": ("v4", "v5", "v6"),
    "shift": ("v18",), "class": ("v22",), "fp8": ("v21",), "bf16": ("v38", "v39"), "mild": ("v20", "v32", "v33"),
    "mild16": ("v24", "v25", "v26", "v27"), "mild8": ("v34", "v35", "v36"),
}  # fmt: skip
SCALARS = {
    "f32": ("s4", "s5", "s6"), "f16": ("s12", "s13", "s12"), "f64": ("s[10:11]",) * 3,
    "u64": ("s[8:9]", "s[16:17]", "s[8:9]"), "u32": ("s0", "s1", "s2"), "u16": ("s0", "s1", "s2"),
    "shift": ("s14",) * 3, "class": ("s1",) * 3, "fp8": ("s0",) * 3, "bf16": ("s4",) * 3, "mild": ("s28",) * 3,
    "mild16": ("s12",) * 3, "mild8": ("s0",) * 3,
}  # fmt: skip
INLINE = {
    "f32": ("0.5", "-4.0", "0.15915494"), "f16": ("0.5", "-4.0", "0.15915494"), "f64": ("0.5", "-4.0", "2.0"),
    "u64": ("-16", "64", "1"), "u32": ("-1", "64", "1.0"), "u16": ("-1", "64", "3"), "shift": ("17", "31", "33"),
    "class": ("63", "3", "1"), "fp8": ("64",) * 3, "bf16": ("64",) * 3, "mild": ("-2.0",) * 3,
    "mild16": ("2.0",) * 3, "mild8": ("64",) * 3,
}  # fmt: skip
LITERAL = {
    "f32": "0x3fa00001", "f16": "0x3d55", "u32": "0x80000001", "u16": "0x8001", "shift": "0x61", "class": "0x2a5",
    "u64": "0x80000003", "f64": "0xc0340000", "fp8": "0x3f817e01", "bf16": "0x3fa03f80", "mild": "0x40490fdb",
    "mild16": "0x3555", "mild8": "0x3f813e01",
}  # fmt: skip
DPP = (
    "quad_perm:[3,1,0,2] row_mask:0xf bank_mask:0xf", "row_shl:1 row_mask:0xf bank_mask:0xf",
    "row_shr:3 row_mask:0xf bank_mask:0xf bound_ctrl:1", "row_ror:5 row_mask:0xf bank_mask:0xd",
    "row_mirror row_mask:0x5 bank_mask:0xf fi:1", "row_half_mirror row_mask:0xf bank_mask:0x6 bound_ctrl:1",
    "row_share:7 row_mask:0xf bank_mask:0xf fi:1", "row_xmask:9 row_mask:0xa bank_mask:0xf bound_ctrl:1",
    "row_shl:15 row_mask:0xf bank_mask:0xf bound_ctrl:1", "row_share:15 row_mask:0xe bank_mask:0x9",
    "dpp8:[7,6,5,4,3,2,1,0]", "dpp8:[1,1,0,5,2,7,7,3] fi:1",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class InstructionCase:
    """`results` are VGPRs that hold what the instruction left. `compare`: bits, f16, f32, f64 (NaNs are equal),
    close (a tolerance) or bf16."""

    mnemonic: str
    text: str
    results: tuple[int, ...]
    compare: str


@dataclass(slots=True)
class InstructionKernel:
    name: str
    wave: int
    cases: list[InstructionCase] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    next: int = FIRST_RESULT
    memory: bool = False  # has the pointers and addresses of MEMORY_HEAD
    sections: int = 0  # of the writable region, one a case that stores

    def has_room(self, count: int) -> bool:
        return self.next + count <= LAST_RESULT + 1

    def take(self, count: int, align: int = 1) -> int:
        self.next += -self.next % align
        first = self.next
        self.next += count
        return first


# --- the frame of a kernel -----------------------------------------------------------------------------------


def input_bytes(wave: int) -> int:
    """The inputs of a trial: vector inputs, then 32 scalar inputs."""
    return INPUTS * wave * 4 + 128


def output_bytes(kernel: InstructionKernel) -> int:
    """The outputs of a trial: 128 registers per lane, four at a time (results and inputs)."""
    return 128 * kernel.wave * 4


def kernel_assembly(kernel: InstructionKernel) -> str:
    wave = kernel.wave
    full = f"s_mov_b{wave} exec{'_lo' if wave == 32 else ''}, -1"
    head = [
        '.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"',
        full,
        "v_and_b32 v250, 0x3ff, v0",
        "v_lshlrev_b32 v251, 2, v250",
        "v_lshlrev_b32 v252, 4, v250",
        f"s_mul_i32 s40, ttmp9, {input_bytes(wave)}",
        f"s_mul_i32 s41, ttmp9, {output_bytes(kernel)}",
        "s_add_co_u32 s96, s0, s40",
        "s_add_co_ci_u32 s97, s1, 0",
        "s_add_co_u32 s98, s2, s41",
        "s_add_co_ci_u32 s99, s3, 0",
        f"s_load_b512 s[0:15], s[96:97], {INPUTS * wave * 4}",
        f"s_load_b512 s[16:31], s[96:97], {INPUTS * wave * 4 + 64}",
    ]
    head += [f"global_load_b32 v{i}, v251, s[96:97] offset:{i * wave * 4}" for i in range(INPUTS)]
    head += ["s_wait_loadcnt 0", "s_wait_kmcnt 0"]
    if kernel.memory:
        head[2:2] = [f"s_mov_b32 s{92 + i}, s{4 + i}" for i in range(4)]
        head += memory_head(wave)
    tail = [full]
    tail += [
        f"global_store_b128 v252, v[{i}:{i + 3}], s[98:99] offset:{i * wave * 4}"
        for i in (*range(0, INPUTS, 4), *range(FIRST_RESULT, kernel.next, 4))
    ]
    return "\n".join([*head, *kernel.lines, *tail, "s_endpgm", ""])


# --- memory --------------------------------------------------------------------------------------------------
# s[92:93] data that is read, s[94:95] this trial's writable region, s[64:67] and s[68:71] both as raw buffers.
# v240 lane * 16, v241 a permutation of that, v242 scattered * 16, v243 scattered bytes, v[244:245] and v[246:247]
# the addresses of v242 in the data and of v241 in the region, v248 four places.
DATA_BYTES = 8192
SECTION_BYTES = 1024  # 64 lanes of 16 bytes
REGION_BYTES = 128 * SECTION_BYTES
LDS_DATA_BYTES = 8192
LDS_BYTES = LDS_DATA_BYTES + 40 * SECTION_BYTES
SCRATCH_BYTES = 2048
RECORDS = 3001


def memory_head(wave: int) -> list[str]:
    permuted = ["v_mul_u32_u24 v241, 5, v250", f"v_and_b32 v241, {wave - 1}, v241", "v_lshlrev_b32 v241, 4, v241"]
    lds = [
        f"ds_store_b128 v240, v[{4 * i}:{4 * i + 3}] offset:{i * wave * 16}"
        for i in range(LDS_DATA_BYTES // (wave * 16))
    ]
    return [
        f"s_mul_i32 s40, ttmp9, {REGION_BYTES}",
        "s_add_co_u32 s94, s94, s40",
        "s_add_co_ci_u32 s95, s95, 0",
        *(f"s_mov_b32 s{to}, {what}" for to, what in ((64, "s92"), (66, str(RECORDS)), (67, "0x30000000"))),
        "s_and_b32 s65, s93, 0xffff",
        *(f"s_mov_b32 s{to}, {what}" for to, what in ((68, "s94"), (70, str(RECORDS)), (71, "0x30000000"))),
        "s_and_b32 s69, s95, 0xffff",
        "v_lshlrev_b32 v240, 4, v250",
        *permuted,
        "v_lshlrev_b32 v242, 4, v19",
        "v_mul_u32_u24 v243, 7, v19",
        "v_add_co_u32 v244, vcc_lo, s92, v242" if wave == 32 else "v_add_co_u32 v244, vcc, s92, v242",
        "v_mov_b32 v245, s93",
        f"v_add_co_ci_u32 v245, {'vcc_lo' if wave == 32 else 'vcc'}, 0, v245, {'vcc_lo' if wave == 32 else 'vcc'}",
        "v_add_co_u32 v246, vcc_lo, s94, v241" if wave == 32 else "v_add_co_u32 v246, vcc, s94, v241",
        "v_mov_b32 v247, s95",
        f"v_add_co_ci_u32 v247, {'vcc_lo' if wave == 32 else 'vcc'}, 0, v247, {'vcc_lo' if wave == 32 else 'vcc'}",
        "v_and_b32 v248, 3, v250",
        "v_lshlrev_b32 v248, 3, v248",
        *lds,
        "s_wait_dscnt 0",
    ]


class KernelWriter:
    """Fills kernels with cases, one after another."""

    def __init__(self, name: str, wave: int, *, memory: bool = False) -> None:
        self.name, self.wave, self.memory = name, wave, memory
        self.kernels: list[InstructionKernel] = []

    @property
    def suffix(self) -> str:
        return "_lo" if self.wave == 32 else ""

    def mask(self, first: int) -> str:
        """An SGPR (pair) as a lane mask."""
        return f"s{first}" if self.wave == 32 else f"s[{first}:{first + 1}]"

    def kernel(self, count: int) -> InstructionKernel:
        if not self.kernels or not self.kernels[-1].has_room(count + 1):
            self.kernels.append(
                InstructionKernel(f"{self.name}.{len(self.kernels)}", self.wave, memory=self.memory)
            )
        return self.kernels[-1]

    def vector(
        self,
        mnemonic: str,
        text: str,
        *,
        size: int = 1,
        compare: str = "bits",
        align: int = 1,
        before: Iterable[str] = (),
        after: Iterable[str] = (),
        initial: tuple[str, ...] = ("v7", "v6"),
        saved: tuple[str, ...] = (),
        full: bool = False,
    ) -> None:
        """`text` has {d} for the `size` result registers. `saved`: scalars that are results too."""
        kernel = self.kernel(size + len(saved) + align)
        first = kernel.take(size, align)
        name = f"v{first}" if size == 1 else f"v[{first}:{first + size - 1}]"
        text = text.replace("{d}", name).replace("{d0}", f"v{first}").replace("{d1}", f"v{first + 1}")
        lines = [f"v_mov_b32 v{first + i}, {initial[i % len(initial)]}" for i in range(size)]
        lines += [f"s_mov_b{self.wave} vcc{self.suffix}, {self.mask(VCC_INPUT)}", *before]
        if not full:
            lines.append(f"s_mov_b{self.wave} exec{self.suffix}, {self.mask(EXEC)}")
        lines.append(text)
        keep = [f"s_mov_b32 s{SAVED + i}, {what}" for i, what in enumerate(saved)]
        lines += [
            *keep,
            f"s_mov_b{self.wave} exec{self.suffix}, -1",
            *(line.replace("{d}", name) for line in after),
        ]
        results = [first + i for i in range(size)]
        for i in range(len(saved)):
            index = kernel.take(1)
            lines.append(f"v_mov_b32 v{index}, s{SAVED + i}")
            results.append(index)
        kernel.lines += lines
        kernel.cases.append(InstructionCase(mnemonic, text, tuple(results), compare))

    def scalar(
        self,
        mnemonic: str,
        text: str,
        *,
        before: Iterable[str] = (),
        saved: tuple[str, ...] = ("s40", "scc"),
        compare: str = "bits",
    ) -> None:
        """A scalar instruction whose result is in s40 (and s41)."""
        kernel = self.kernel(len(saved))
        lines = ["s_mov_b32 s40, s2", "s_mov_b32 s41, s3", f"s_cmp_eq_u32 s{SCC_INPUT}, 1", *before, text]
        if "scc" in saved:
            lines.append("s_cselect_b32 s46, 1, 0")
        lines += [f"s_mov_b32 s{48 + i}, {what}" for i, what in enumerate(saved) if what != "scc"]
        if any("exec" in what for what in saved):
            lines.append(f"s_mov_b{self.wave} exec{self.suffix}, -1")
        results = []
        for i, what in enumerate(saved):
            index = kernel.take(1)
            lines.append(f"v_mov_b32 v{index}, {'s46' if what == 'scc' else f's{48 + i}'}")
            results.append(index)
        kernel.lines += lines
        kernel.cases.append(InstructionCase(mnemonic, text, tuple(results), compare))


def read_subset(path: Path) -> list[tuple[str, str]]:
    """(family, mnemonic) of gfx12-subset.tsv."""
    result = []
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            family, mnemonic, *_ = line.split("\t")
            result.append((family, mnemonic))
    return result


def row_of(encoding: str, mnemonic: str) -> InstructionRow | None:
    table = "vector" if encoding.startswith("VOP") and encoding not in ("VOP3P", "VOPD") else "packed"
    for row in make_rows(table, encoding, 12).values():
        if row.mnemonic in (mnemonic, mnemonic + "_e32", mnemonic + "_e64"):
            return row
    return None


# --- writing the file ----------------------------------------------------------------------------------------


def assemble_text(text: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, to = Path(folder) / "k.s", Path(folder) / "k.o"
        source.write_text(text)
        command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
        if "wave64" in text:
            command.append("-mwavefrontsize64")
        result = subprocess.run([*command, "-c", str(source), "-o", str(to)], capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"{result.stderr[:3000]}")
        sections = read_elf(to.read_bytes(), "kernel").sections
        return next(section.code for section in sections if section.name == ".text")


def source_hash(kernels: list[InstructionKernel]) -> str:
    """Return the hash of the assembled source; a file built from other cases is rejected."""
    return hashlib.sha256("\0".join(kernel_assembly(kernel) for kernel in kernels).encode()).hexdigest()


def write_kernels(kernels: list[InstructionKernel], path: Path = FILE) -> None:
    codes = [
        assemble_text(kernel_assembly(k) if k.wave == 32 else "; wave64\n" + kernel_assembly(k)) for k in kernels
    ]
    meta = {
        "format": FORMAT,
        "command": COMMAND,
        "sha256": source_hash(kernels),
        "kernels": [
            {
                "name": k.name,
                "wave": k.wave,
                "end": k.next,
                "memory": k.memory,
                "cases": [[c.mnemonic, c.text, list(c.results), c.compare] for c in k.cases],
            }
            for k in kernels
        ],
    }
    lengths = np.array([len(code) for code in codes], np.int64)
    code = np.frombuffer(b"".join(codes), np.uint8)
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez_compressed(path, code=code, lengths=lengths, meta=text)


def read_kernels(path: Path = FILE) -> Iterator[tuple[InstructionKernel, bytes]]:
    with np.load(path) as file:
        meta = json.loads(file["meta"].tobytes())
        if meta["format"] != FORMAT:
            raise ValueError(f"{path}: format {meta['format']}, expected {FORMAT}. Recreate it with: {COMMAND}")
        index = 0
        for entry, length in zip(meta["kernels"], file["lengths"], strict=True):
            code = file["code"][index : index + int(length)].tobytes()
            index += int(length)
            cases = [InstructionCase(m, t, tuple(r), c) for m, t, r, c in entry["cases"]]
            yield InstructionKernel(entry["name"], entry["wave"], cases, [], entry["end"], entry["memory"]), code


def main() -> None:
    sys.path.insert(0, str(HERE))
    from instruction_cases import all_kernels

    kernels = all_kernels()
    write_kernels(kernels)
    cases = sum(len(kernel.cases) for kernel in kernels)
    print(f"{FILE.name}: {len(kernels)} kernels, {cases} cases, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
