"""Write a captured submission as one C program that needs only the amdgpu driver.

The program text is replay/standalone_template.c, which contains no case. This module inserts the case:
buffers, packets, expected outputs.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from zinc_rt.backends.amd.ring import RELEASE_CACHES
from zinc_rt.backends.amd.transfer import copy_packets
from zinc_rt.engine.devices import Choice
from zinc_rt.host.errors import UsageError
from zinc_rt.host.files import write_atomically
from zinc_rt.host.version import __version__
from zinc_rt.pm4.disassemble import disassemble, disassemble_lines
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import ReleaseMem
from zinc_rt.replay.capture import StepCapture, capture_step
from zinc_rt.trace.rebuilt import Opener

STAGING_VA, FENCE_VA = 0x100_0000_0000, 0x180_0000_0000  # where no transport of ours puts anything
PAGE_BYTES = 4096
LIMIT_BYTES = 16 << 20  # of content that is not zero, which is text in the program
LISTING_LINES = 400
_PLACEHOLDER = "/* CASE */"


def write_program(
    log: str | Path,
    choice: Choice | Opener,
    path: str | Path,
    *,
    step: int | None = None,
    model: str | Path | None = None,
    timeout_seconds: float | None = None,
    command: str = "",
) -> StepCapture:
    """Capture a step of a log and `emit_program` it. Raises the errors of both."""
    captured = capture_step(log, choice, step=step, model=model, timeout_seconds=timeout_seconds)
    emit_program(captured, path, log=log, command=command)
    return captured


def emit_program(captured: StepCapture, path: str | Path, *, log: str | Path, command: str = "") -> None:
    """Write the program. Raises UsageError for a name that does not end in .c or a submission that is too
    large for one file, OutputError if the file cannot be written."""
    path = Path(path)
    if path.suffix != ".c":
        raise UsageError(f"--emit-repro {path}: expected a name that ends in .c")
    held = sum(len(data) for region in captured.regions for _, data in find_nonzero_runs(region.content))
    if held > LIMIT_BYTES:
        next_ = f"zinc-rt replay {shlex.quote(str(log))} --tiers {captured.tier} --bisect --emit-repro FOLDER"
        raise UsageError(
            (
                f"{path.name}: the step's buffers take {held >> 20} MiB, but a program can hold at most "
                f"{LIMIT_BYTES >> 20} MiB"
            ),
            next=f"bisect first, which leaves one node: {next_}",
        )
    text = _make_program(captured, list(_make_header(captured, path, command)))
    write_atomically(path, lambda file: file.write(text.encode()))


def find_nonzero_runs(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Return (offset, bytes) of the non-zero parts, as runs of whole pages."""
    start, pages = 0, range(0, len(content), PAGE_BYTES)
    held = bytearray()
    for index in pages:
        page = content[index : index + PAGE_BYTES]
        if any(page):
            if not held:
                start = index
            held += page
        elif held:
            yield start, bytes(held.rstrip(b"\0"))
            held = bytearray()
    if held:
        yield start, bytes(held.rstrip(b"\0"))


def to_target_version(arch: str) -> int:
    """Return the chip number as in KFD's topology: 120001 for gfx1201."""
    return int(arch[3:-2]) * 10000 + int(arch[-2], 16) * 100 + int(arch[-1], 16)


class _Fences:
    """Submissions of the program itself, each with the next value of its fence."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.value = 0

    def add_fence(self, packets: Iterable[Packet]) -> tuple[list[int], int]:
        self.value += 1
        fence = ReleaseMem(FENCE_VA, self.value, RELEASE_CACHES[self.generation], data_sel=2, wait_sync=1)
        return [word for packet in (*packets, fence) for word in packet.words(self.generation)], self.value


def _make_case(captured: StepCapture) -> dict[str, Any]:
    """Plain data; `data` and `runs` are bytes."""
    fences = _Fences(captured.generation)
    regions = []
    for region in captured.regions:
        load = None
        if region.placement.startswith("vram"):
            load = fences.add_fence(copy_packets(STAGING_VA, region.gpu_va, region.size_bytes))
        regions.append((region, list(find_nonzero_runs(region.content)), load))
    outputs = []
    for buffer in captured.expected:
        inside = next(r for r in captured.regions if r.gpu_va <= buffer.gpu_va < r.gpu_va + r.size_bytes)
        fetch = None
        if inside.placement.startswith("vram"):
            fetch = fences.add_fence(copy_packets(buffer.gpu_va, STAGING_VA, len(buffer.content)))
        outputs.append((buffer, fetch))
    sizes = [r.size_bytes for r in captured.regions] + [len(buffer.content) for buffer in captured.expected]
    return {"regions": regions, "outputs": outputs, "staging": max(sizes) + -max(sizes) % PAGE_BYTES}


def _make_header(captured: StepCapture, path: Path, command: str) -> Iterator[str]:
    recorded = captured.recorded_device
    seen = [f"{key} {recorded[key]}" for key in ("name", "arch", "kernel", "firmware") if recorded.get(key)]
    way = "/dev/kfd" if captured.tier == "t1" else "user queues of /dev/dri/renderD*"
    yield f"{captured.title}: one submission through {way} on {captured.arch}, alone."
    yield ""
    yield f"run:      cc -O1 {path.name} -o repro && ./repro"
    yield "result:   exit 0 the outputs are as expected, 1 they differ, 2 it does not end or cannot run"
    yield f"expected: {', '.join(buffer.name for buffer in captured.expected)}, from a reference on the CPU"
    yield f"kernels:  {', '.join(captured.kernels) or 'none'}"
    yield f"recorded: {', '.join(seen) or 'on the CPU reference'}"
    device = captured.device
    if not device["simulated"]:
        yield f"captured: {device['name']}, kernel {device['kernel']}, firmware {device['firmware']}"
    for note in captured.notes:
        yield f"note:     {note}"
    yield f"made by:  zinc-rt {__version__}{f': {command}' if command else ''}"
    yield ""
    yield "In the ring:"
    yield from disassemble(captured.words, captured.generation).splitlines()
    yield ""
    yield "In the indirect buffer it calls:"
    listing = captured.listing.splitlines()
    yield from listing[:LISTING_LINES]
    if len(listing) > LISTING_LINES:
        yield f"… {len(listing) - LISTING_LINES} lines more"


def _split_by_packet(words: Iterable[int], generation: Generation) -> list[str]:
    """Format the words in hex, one packet per line."""
    rows: list[list[int]] = []
    all_words = list(words)
    starts = {line.offset for line in disassemble_lines(all_words, generation) if line.first}
    for index, word in enumerate(all_words):
        if index in starts or not rows:
            rows.append([])
        rows[-1].append(word)
    return [" ".join(f"{word:08x}" for word in row) for row in rows]


def _make_program(captured: StepCapture, header: list[str]) -> str:
    case = _make_case(captured)
    out: list[str] = []

    def format_words(name: str, values: Iterable[int]) -> str:
        out.append(f"static const uint32_t {name}[] = {{")
        out.extend(
            "    " + "".join(f"0x{word}, " for word in row.split()).rstrip()
            for row in _split_by_packet(values, captured.generation)
        )
        out.append("};")
        return f"{{ {name}, sizeof {name} / 4, "

    def format_submission(name: str, stream: tuple[list[int], int] | None) -> str:
        return "{ 0, 0, 0, 0 }" if stream is None else f"{format_words(name, stream[0])}FENCE_VA, {stream[1]} }}"

    out.append(f"#define TITLE {_quote_string(captured.title)}")
    out.append(f'#define CHIP "{captured.arch}"')
    out.append(f"#define GFX_TARGET_VERSION {to_target_version(captured.arch)}")
    out.append(f"#define TIER_{captured.tier.upper()} 1")
    out.append(f"#define STAGING_VA {STAGING_VA:#x}ull")
    out.append(f"#define STAGING_BYTES {case['staging']}ull")
    out.append(f"#define FENCE_VA {FENCE_VA:#x}ull")
    rows = []
    for number, (region, runs, load) in enumerate(case["regions"]):
        parts = []
        for index, (offset, data) in enumerate(runs):
            name = f"content_{number}_{index}"
            out.append(f"static const uint64_t {name}[] = {{")
            out.extend(_format_u64_rows(data))
            out.append("};")
            parts.append(f"{{ {offset}, {name}, {len(data)} }}")
        if parts:
            out.append(f"static const struct run runs_{number}[] = {{ {', '.join(parts)} }};")
        loaded = format_submission(f"load_{number}", load)
        rows.append(
            f"    {{ {_quote_string(region.name)}, {region.gpu_va:#x}ull, {region.size_bytes}ull, "
            f"{region.placement.upper()}, {f'runs_{number}' if parts else '0'}, {len(parts)}, {loaded} }},"
        )
    out += ["static const struct region regions[] = {", *rows, "};"]
    rows = []
    for number, (item, fetch) in enumerate(case["outputs"]):
        out.append(f"static const uint64_t want_{number}[] = {{")
        out.extend(_format_u64_rows(item.content))
        out.append("};")
        fetched = format_submission(f"fetch_{number}", fetch)
        rows.append(
            f"    {{ {_quote_string(item.name)}, {int(item.dtype == 'f32')}, {item.gpu_va:#x}ull, want_{number}, "
            f"{len(item.content)}ull, {item.shape[-1] if item.shape else 1}, {fetched} }},"
        )
    out += ["static const struct output outputs[] = {", *rows, "};"]
    main = f"{format_words('recorded', captured.words)}{captured.fence_va:#x}ull, {captured.fence_value} }}"
    out.append(f"static const struct submission submission = {main};")
    out.append("static const struct name names[] = {")
    out += [f"    {{ {va:#x}ull, {size}ull, {_quote_string(name)} }}," for va, size, name in captured.names]
    out.append("};")
    program = files("zinc_rt.replay").joinpath("standalone_template.c").read_text(encoding="utf-8")
    before, placeholder, after = program.partition(_PLACEHOLDER)
    assert placeholder, "standalone_template.c has no marker for the case"
    comment = "\n".join(f" * {line}".rstrip() for line in header).replace("*/", "* /").replace("/*", "/ *")
    return f"/*\n{comment}\n */\n{before}{chr(10).join(out)}{after}"


def _format_u64_rows(data: bytes) -> Iterator[str]:
    padded = data + bytes(-len(data) % 8)
    values = [int.from_bytes(padded[index : index + 8], "little") for index in range(0, len(padded), 8)]
    for index in range(0, len(values), 5):
        yield "    " + " ".join(f"{value:#x}," for value in values[index : index + 5])


def _quote_string(text: str) -> str:
    return json.dumps(text)
