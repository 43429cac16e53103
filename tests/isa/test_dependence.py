"""What may depend on v_exp in the programs of dependence_programs.txt, with the buffers A, B, C in s[0:1], s[2:3]
and s[4:5]. Each program is decoded from its bytes and compared with its text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.dependence import MemoryUse, find_dependent_memory
from zinc_rt.isa.target import make_default_target

BUFFERS = {"A": (0x1000, 0x1100), "B": (0x2000, 0x2100), "C": (0x3000, 0x3100)}
BASES = {"s[0:1]": "A", "s[2:3]": "B", "s[4:5]": "C"}
NAMES = {"halves": "v_exp_f16", "scalar": "v_s_exp_f32"}
DEPENDENT = {
    "registers": "A",
    "overwritten": "A",
    "overwritten in some lanes": "A",
    "lane of a disabled register": "A",
    "LDS": "A",
    "memory": "AC",
    "loaded earlier in a loop": "AC",
    "address": "AC",
    "atomic": "A",
    "lanes chosen by a comparison": "AC",
    "branch around a comparison's lanes": "AC",
    "nested lanes": "A",
    "lanes added from another register": "A",
    "copy of EXEC overwritten": "A",
    "number of turns": "A",
    "early end": "A",
    "side that did not run": "A",
    "branch on an exact value": "A",
    "both sides of a comparison": "AB",  # an over-approximation: EXEC is restored without its copy
    "loop that lanes leave": "A",
    "dual": "AC",
    "halves": "A",
    "neighbouring lanes": "AC",
    "scalar": "A",
}
TEXT = (Path(__file__).parent / "dependence_programs.txt").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^# ([^\n]+)\n((?:[0-9a-f]+ +[^\n]+\n)+)", TEXT, re.MULTILINE))


def dependent_buffers(program: str, *, unexecuted: tuple[int, ...] = (), names: tuple[str, ...] = ()) -> str:
    """Return the buffers that may depend on v_exp. `unexecuted`: numbers of blocks."""
    rows = [line.split(None, 1) for line in PROGRAMS[program].splitlines()]
    flow = find_control_flow(bytes.fromhex("".join(row[0] for row in rows)), make_default_target(), running=True)
    instructions = sorted(flow.instructions(), key=lambda instruction: instruction[0])
    assert [item.text for _, item in instructions] == [row[1] for row in rows]
    ranges = {
        pc: [BUFFERS[name] for base, name in BASES.items() if base in item.text and item.row.pipe == "vmem"]
        for pc, item in instructions
    }
    blocks = [start for number, start in enumerate(flow.blocks) if number not in unexecuted]
    use = MemoryUse(
        blocks, {pc: item for pc, item in ranges.items() if item and is_executed(pc, blocks, flow.blocks)}
    )
    name = NAMES.get(program, "v_exp_f32")
    result = find_dependent_memory(flow, names or [name], use, BUFFERS)
    return "".join(buffer for buffer, by in result.items() if by)


def is_executed(pc: int, executed: list[int], blocks: dict[int, object]) -> bool:
    return max(start for start in blocks if start <= pc) in executed


def test_every_program_has_expected_dependences() -> None:
    assert PROGRAMS.keys() == DEPENDENT.keys()


@pytest.mark.parametrize("program", list(DEPENDENT))
def test_expected_buffers_depend_on_v_exp(program: str) -> None:
    assert dependent_buffers(program) == DEPENDENT[program]


def test_code_that_did_not_run_counts_if_a_dependent_branch_decides() -> None:
    assert dependent_buffers("side that did not run", unexecuted=(1,)) == "ABC", "its buffer is not known"
    assert dependent_buffers("branch on an exact value", unexecuted=(1,)) == ""
    assert dependent_buffers("branch around a comparison's lanes", unexecuted=(1,)) == "ABC"


def test_other_instructions_do_not_count() -> None:
    assert dependent_buffers("registers", names=("v_log_f32",)) == ""
    assert dependent_buffers("registers", names=("v_log_f32", "v_exp_f32")) == "A"
