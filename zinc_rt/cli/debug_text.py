"""Text and JSON records of the debugger's stops and values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from zinc_rt.launching.located import format_finding, strip_parameter_types
from zinc_rt.sim.shader.checks.finding_text import format_lanes

if TYPE_CHECKING:
    from zinc_rt.launching.debugging.expressions import DebugValue
    from zinc_rt.launching.debugging.session import DebugSession
    from zinc_rt.launching.debugging.stops import DebugStop
    from zinc_rt.sim.shader.run.debugger import WaveView

VALUES_A_LINE = 8  # at most, a power of two
COLUMNS = 100
MOST_IN_DECIMAL = 1 << 20  # larger numbers are addresses and masks


def format_stop(session: DebugSession, stop: DebugStop) -> Iterator[str]:
    """Yield why and where the launch is stopped."""
    wave_size = session.prepared.kernel.wave
    if stop.wave is None:
        findings = f"{len(stop.findings) or 'no'} finding{'s' * (len(stop.findings) != 1)}"
        yield f"{stop.reason}, after {stop.step} steps; {findings}"
    else:
        yield f"step {stop.step}" + (f": {stop.reason}" if stop.reason != "step" else "")
    change = stop.change
    if change is not None:
        pc = change.pc
        by = f", by {format_place(session, pc)}" if pc is not None else ""
        yield f"{change.watch} was {change.before}, is {change.now}{by}"
    for finding in stop.findings:
        yield from format_finding(finding, wave_size)
    if stop.wave is not None:
        yield from format_position(session, stop.wave)


def format_position(session: DebugSession, wave: WaveView) -> Iterator[str]:
    """Yield the position of a wave: its name, EXEC, next instruction and source line."""
    name = f"{strip_parameter_types(session.prepared.kernel.name)}, workgroup {wave.group_id}, wave {wave.number}"
    if wave.progress == "ended":
        yield f"{name} has ended"
        return
    if not wave.running:
        name += f", {wave.progress}"
    execution = f", exec {wave.exec:#0{2 + wave.lanes // 4}x}" if wave.has_started else ""
    lanes = format_lanes(wave.exec, wave.lanes) if wave.exec else "no lane"
    yield name + execution + (f" ({lanes})" if execution else "")
    yield f"=> {format_place(session, wave.pc)}"
    line = session.code.line(wave.pc)
    if line is not None:
        yield from (text.replace("=>", "  ", 1) for text in session.code.source(line, 0))


def format_place(session: DebugSession, pc: int) -> str:
    line = session.code.line(pc)
    where = f"{line}  " if line is not None else ""
    return f"{where}pc {pc:#x}  {session.code.text(pc)}"


def format_values(shown: DebugValue) -> Iterator[str]:
    """Yield the values of an expression: one, or rows with the lane or index of their first."""
    texts = [shown.text(index) for index in range(len(shown.values))]
    if len(texts) == 1:
        text, active = texts[0], shown.active
        if shown.in_hex and text != "-" and 9 < int(text, 16) < MOST_IN_DECIMAL:
            text += f" ({int(text, 16)})"
        text += f", {shown.note}" if shown.note else ""
        outside = ", outside of EXEC" if active is not None and not active[0] else ""
        never = f" ({shown.written})" if text == "-" else ""
        yield f"{shown.name} = {text}{never}{outside}"
        return
    if shown.active is not None:
        pairs = zip(texts, shown.active, strict=True)
        texts = [text if active else f"({text})" for text, active in pairs]
    notes = ["in brackets: outside of EXEC"] if shown.active is not None and not shown.active.all() else []
    notes += [f"-: {shown.written}"] if not shown.defined.all() else []
    yield shown.name + (f"  ({'; '.join(notes)})" if notes else "")
    width = max(map(len, texts))
    label_width = max(map(len, shown.labels))
    count = VALUES_A_LINE
    while count > 1 and count * (width + 2) + label_width > COLUMNS:
        count //= 2
    for start in range(0, len(texts), count):
        row = "  ".join(f"{text:>{width}}" for text in texts[start : start + count])
        yield f"  [{shown.labels[start]:>{label_width}}]  {row}"


def format_registers(session: DebugSession) -> Iterator[str]:
    """Yield the scalar registers that were written, and the names of the written vector registers."""
    reader = session.make_reader()
    wave = session.require_selected()
    for name in ("exec", "vcc", "scc", "m0"):
        yield from format_values(reader.read(name))
    scalars = [reader.read(f"s{index}") for index in range(106)]
    texts = [f"{scalar.name} = {scalar.text(0)}" for scalar in scalars if scalar.defined[0]]
    for start in range(0, len(texts), 4):
        yield "  ".join(f"{text:18s}" for text in texts[start : start + 4]).rstrip()
    written = []
    for index in range(session.launch.launch.vgprs):
        _, undefined = wave.register(index)
        if (undefined == 0).any():
            written.append(f"v{index}")
    yield f"written vector registers: {' '.join(written) or 'none'}"


def make_stop_record(session: DebugSession, stop: DebugStop) -> dict[str, Any]:
    """Return a stop for JSON. After the end of the launch there is no wave."""
    record: dict[str, Any] = {"record": "stop", "reason": stop.reason, "step": stop.step}
    record["findings"] = [asdict(finding) for finding in stop.findings]
    if stop.change is not None:
        record["change"] = asdict(stop.change)
    if stop.wave is not None:
        record |= make_wave_record(session, stop.wave)
    else:
        record["ended"] = True
    return record


def make_wave_record(session: DebugSession, wave: WaveView) -> dict[str, Any]:
    ended = wave.progress == "ended"
    line = session.code.line(wave.pc)
    return {
        "kernel": session.prepared.kernel.name,
        "workgroup": list(wave.group_id),
        "wave": wave.number,
        "progress": wave.progress,
        "pc": None if ended else wave.pc,
        "line": "" if ended or line is None else str(line),
        "instruction": "" if ended else session.code.text(wave.pc),
        "exec": wave.exec if wave.has_started and not ended else None,
    }


def make_value_record(shown: DebugValue) -> dict[str, Any]:
    record: dict[str, Any] = {"record": "value", "expression": shown.name, "values": shown.to_plain()}
    if shown.labels != ("",):
        record["labels"] = list(shown.labels)
    if shown.active is not None:
        record["active"] = shown.active.tolist()
    return record
