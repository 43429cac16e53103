"""The commands of the debugger, from a script or a terminal."""

from __future__ import annotations

import cmd
import inspect
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from zinc_rt.cli.debug_text import (
    format_position,
    format_registers,
    format_stop,
    format_values,
    make_stop_record,
    make_value_record,
    make_wave_record,
)
from zinc_rt.host.arguments import suggest_word
from zinc_rt.host.errors import UsageError, ZincError
from zinc_rt.launching.debugging.kernel_code import SourceLine
from zinc_rt.launching.located import format_finding, strip_parameter_types

if TYPE_CHECKING:
    from zinc_rt.launching.debugging.session import DebugSession
    from zinc_rt.launching.debugging.stops import DebugStop

ALIASES = {
    "b": "break", "bt": "where", "c": "continue", "d": "delete", "f": "finish", "l": "list", "n": "next",
    "p": "print", "q": "quit", "r": "restart", "s": "step", "x": "print", "exit": "quit",
}  # fmt: skip
PROMPT = "(debug) "
SCHEMA = "zinc-rt-debug/1"
CODE_LINES = 11
_BREAK = re.compile(
    r"(?P<location>\*?\S+?)(?:\s+group\s+(?P<group>\d+(?:,\d+){0,2}))?(?:\s+wave\s+(?P<wave>\d+))?"
    r"(?:\s+after\s+(?P<after>\d+))?(?:\s+if\s+(?P<condition>.+))?"
)
_LINE = re.compile(r"(?:(?P<file>.+):)?(?P<number>\d+)")
_PC = re.compile(r"\*(0x[0-9a-fA-F]+|\d+)|(0x[0-9a-fA-F]+)")


class DebugShell(cmd.Cmd):
    """One user of a session. With `records`, each stop and each printed value is one JSON object on a line."""

    prompt = PROMPT

    def __init__(self, session: DebugSession, out: TextIO, *, records: bool) -> None:
        super().__init__(stdout=out)
        self.session, self.out, self.records = session, out, records
        self.scripted = False

    # --- input

    def run_script(self, commands: Iterable[str]) -> None:
        """Run commands. Raise UsageError at the first invalid command."""
        self.scripted = True
        for text in commands:
            line = text.strip()
            if not line or line.startswith("#"):
                continue
            if not self.records:
                self.say(f"{PROMPT}{line}")
            try:
                if self.onecmd(line):
                    return
            except ZincError as error:
                raise UsageError(_prefix_command(line, error.message), next=error.next or None) from None

    def run_terminal(self) -> None:
        """Read commands from the terminal until quit or end of input."""
        while True:
            try:
                self.cmdloop()
                return
            except ZincError as error:
                self.say(str(error))
            except KeyboardInterrupt:
                self.say("")

    def parseline(self, line: str) -> tuple[str | None, str | None, str]:
        word, argument, line = super().parseline(line)
        return ALIASES.get(word or "", word), argument, line

    def get_names(self) -> list[str]:
        return [name for name in super().get_names() if name != "do_EOF"]

    def do_help(self, arg: str) -> None:
        """help [COMMAND]: list the commands, or explain one."""
        texts = {name: inspect.getdoc(getattr(self, name)) or "" for name in self.get_names() if name[:3] == "do_"}
        if not arg:
            self.show(text.partition("\n")[0] for text in texts.values())
            return
        name = f"do_{ALIASES.get(arg, arg)}"
        if name not in texts:
            self.default(arg)
        self.show(texts[name].splitlines())

    def emptyline(self) -> bool:
        return False if self.scripted else super().emptyline()

    def default(self, line: str) -> None:
        word = line.split()[0]
        names = [name.removeprefix("do_") for name in self.get_names() if name.startswith("do_")]
        raise UsageError(f"unknown command {word}{suggest_word(word, names)}", next="help lists the commands")

    def completedefault(self, text: str, *_: Any) -> list[str]:
        return [
            buffer for buffer in (*self.session.prepared.buffers, "lds", "exec", "vcc") if buffer.startswith(text)
        ]

    # --- output

    def say(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def show(self, lines: Iterable[str], record: dict[str, Any] | None = None) -> None:
        if not self.records:
            for line in lines:
                self.say(line)
        else:
            self.say(json.dumps(record or {"record": "text", "text": "\n".join(lines)}))

    def show_stop(self, stop: DebugStop) -> None:
        self.show(format_stop(self.session, stop), make_stop_record(self.session, stop))

    def begin(self) -> None:
        """Show what is debugged."""
        name, arch = strip_parameter_types(self.session.prepared.kernel.name), self.session.prepared.image.arch
        record = {"record": "session", "schema": SCHEMA, "kernel": name, "arch": arch, "simulated": True}
        self.show([f"{name} on {arch} on a SIMULATED device; help lists the commands"], record)

    # --- commands that let the launch run

    def do_continue(self, argument: str) -> None:
        """continue: run to the next breakpoint, watch or error, or to the end of the launch (c)."""
        _reject_argument("continue", argument)
        self.show_stop(self.session.go_on())

    def do_step(self, argument: str) -> None:
        """step [COUNT]: run instructions of the selected wave (s).
        step group: run its workgroup past the next barrier, or to its end."""
        if argument == "group":
            self.show_stop(self.session.step_group())
        else:
            self.show_stop(self.session.step(_parse_count("step", argument)))

    def do_next(self, argument: str) -> None:
        """next [COUNT]: run the selected wave to another source line (n)."""
        self.show_stop(self.session.step_line(_parse_count("next", argument)))

    def do_finish(self, argument: str) -> None:
        """finish: run the selected wave to its last instruction (f)."""
        _reject_argument("finish", argument)
        self.show_stop(self.session.finish_wave())

    def do_back(self, argument: str) -> None:
        """back [COUNT]: go back by instructions of the selected wave; the launch runs again up to there."""
        self.show_stop(self.session.step_back(_parse_count("back", argument)))

    def do_goto(self, argument: str) -> None:
        """goto STEP: go to a step of the launch, earlier or later. Each stop shows its step."""
        if not argument.isdecimal():
            raise UsageError("goto: expected a step number", next="where shows the present one")
        self.show_stop(self.session.go_to(int(argument)))

    def do_restart(self, argument: str) -> None:
        """restart: go to the first instruction of the launch (r). Breakpoints and watches stay."""
        _reject_argument("restart", argument)
        self.show_stop(self.session.restart())

    # --- where to stop

    def do_break(self, argument: str) -> None:
        """break LINE | FILE:LINE | *PC: stop before the code of a line, or the instruction at a pc (b).
        Then, in this order: group X[,Y[,Z]] and wave N (in it): only there; after N: not in the first N passes;
        if VALUE OP VALUE: only if it holds (==, !=, <, <=, >, >=), like if v2[5] > 100.
        break error: stop before an instruction that causes a finding.
        break: list breakpoints and watches."""
        session = self.session
        if not argument:
            all_ = [*map(str, session.breakpoints.values()), *map(str, session.watches.values())]
            all_ += ["error"] if session.break_on_error else []
            self.show(all_ or ["no breakpoints, no watches"])
            return
        if argument == "error":
            session.break_on_error = True
            self.show(["stops before an instruction that causes a finding"])
            return
        match = _BREAK.fullmatch(argument)
        if match is None:
            form = "LOCATION [group X,Y,Z] [wave N] [after N] [if CONDITION]"
            raise UsageError(f"break: expected {form}", next="help break")
        more: dict[str, Any] = {"condition": match["condition"] or "", "after": int(match["after"] or 0)}
        if match["wave"]:
            more["wave"] = int(match["wave"])
        if match["group"]:
            x, y, z = (*map(int, match["group"].split(",")), 0, 0)[:3]
            if not all(item < size for item, size in zip((x, y, z), session.launch.launch.groups, strict=True)):
                sizes = " x ".join(map(str, session.launch.launch.groups))
                raise UsageError(f"group {match['group']}: the launch has {sizes} workgroups")
            more["group"] = (x, y, z)
        where, pcs = self._parse_location(match["location"])
        self.show([str(session.add_breakpoint(where, pcs, **more))])

    def _parse_location(self, location: str) -> tuple[str, list[int]]:
        """Return a location as FILE:LINE, or "" for a pc, and its pcs."""
        code = self.session.code
        pc, line = _PC.fullmatch(location), _LINE.fullmatch(location)
        if pc is not None:
            return "", [code.check_pc(int(pc[1] or pc[2], 0))]
        if line is not None:
            pcs = code.find_pcs(int(line["number"]), line["file"] or "")
            return str(code.line(pcs[0])), pcs
        raise UsageError(f"{location}: expected LINE, FILE:LINE or *PC, like 12, k.cl:12 or *0x40")

    def do_watch(self, argument: str) -> None:
        """watch VALUE: stop after the instruction that changes a value.
        An element of an argument (x[3]) or of LDS (lds[3], lds:f32[3]); a lane of a register (v2[5]) or a scalar
        register (s4, exec, scc) of the selected wave."""
        if not argument:
            raise UsageError("watch: expected a value, like x[3], lds[0], v2[5] or s4")
        self.show([str(self.session.add_watch(argument))])

    def do_delete(self, argument: str) -> None:
        """delete NUMBER: delete a breakpoint or a watch (d).
        delete error: do not stop for findings."""
        if argument == "error":
            self.session.break_on_error = False
        elif argument.isdecimal():
            self.session.delete(int(argument))
        else:
            raise UsageError("delete: expected the number of a breakpoint or watch", next="break lists them")

    # --- state

    def do_print(self, argument: str) -> None:
        """print VALUE: show registers, LDS or memory (p, x).
          v3  v3[5]  v3:f32[0..8]  v3.l:f16  v[2:3]        a vector register, one lane, some lanes with a type,
                                                           a half, a pair
          s4  s[0:1]  exec  vcc  scc  m0  ttmp9            scalar registers
          lds[0..8]  lds:f32[3]                            LDS of the workgroup; without a type dwords
          x  x[5]  x[2, 0..4]  x:u32[0..4]  @v1[3]         an argument's buffer; @ if it is called like a register
          *0x7f0000001000:f32[0..4]  *s[2:3]:u32[0]        memory at an address
        Ranges exclude their end. Types: f16 f32 f64 bf16 f8e4m3 f8e5m2 i8 to i64 u8 to u64."""
        shown = self.session.make_reader().read(argument)
        self.show(format_values(shown), make_value_record(shown))

    def do_registers(self, argument: str) -> None:
        """registers: the scalar registers that were written, and the names of the vector registers that were."""
        _reject_argument("registers", argument)
        self.show(format_registers(self.session))

    def do_where(self, argument: str) -> None:
        """where: the position of the selected wave (bt)."""
        _reject_argument("where", argument)
        if self.session.wave is None:
            self.show_stop(self.session.stop)
            return
        record = {
            **make_wave_record(self.session, self.session.wave),
            "record": "wave",
            "step": self.session.stop.step,
        }
        lines = [f"step {self.session.stop.step}", *format_position(self.session, self.session.wave)]
        self.show(lines, record)

    def do_waves(self, argument: str) -> None:
        """waves: the waves of the stopped wave's workgroup."""
        _reject_argument("waves", argument)
        if self.session.stop.wave is None:
            self.show_stop(self.session.stop)
            return
        waves = list(self.session.stop.wave.waves())
        records = [make_wave_record(self.session, wave) for wave in waves]
        lines = []
        for wave, record in zip(waves, records, strict=True):
            index = f"pc {record['pc']:#x}  {record['line']}" if record["pc"] is not None else ""
            lines.append(f"wave {wave.number:2d}  {wave.progress:20s}  {index}".rstrip())
        self.show(lines, {"record": "waves", "waves": records})

    def do_wave(self, argument: str) -> None:
        """wave NUMBER: select a wave of the stopped wave's workgroup, to print its state and to step it."""
        if not argument.isdecimal():
            raise UsageError("wave: expected the number of a wave of this workgroup", next="waves lists them")
        self.session.select(int(argument))
        self.do_where("")

    def do_list(self, argument: str) -> None:
        """list [LINE]: source lines around the selected wave's position, or around a line (l)."""
        code = self.session.code
        line = code.line(self.session.require_selected().pc) if not argument else None
        if argument:
            if not argument.isdecimal():
                raise UsageError("list: expected a line number")
            line = SourceLine(code.file, int(argument)) if code.file else None
        if line is None:
            raise UsageError(
                "list: this instruction has no source line", next="code shows the instructions around"
            )
        lines = list(code.source(line))
        if not lines:
            raise UsageError(f"list: {line.file} cannot be read or has no line {line.number}")
        self.show(lines)

    def do_code(self, argument: str) -> None:
        """code [COUNT]: the instructions around the selected wave's position."""
        count = _parse_count("code", argument, CODE_LINES)
        self.show(self.session.code.disassemble_around(self.session.require_selected().pc, count))

    def do_findings(self, argument: str) -> None:
        """findings: the findings so far, at stops and at the end of the launch."""
        _reject_argument("findings", argument)
        wave = self.session.prepared.kernel.wave
        lines = [line for finding in self.session.findings for line in format_finding(finding, wave)]
        self.show(lines or ["no findings so far"])

    def do_quit(self, argument: str) -> bool:
        """quit: end the debugger (q)."""
        _reject_argument("quit", argument)
        return True

    def do_EOF(self, argument: str) -> bool:
        self.say("")
        return True


def _prefix_command(line: str, message: str) -> str:
    """Return the message of an error in a script, prefixed with the command unless it begins with the command or
    its argument.
    """
    word, _, argument = line.partition(" ")
    if message.startswith(word):
        return message
    return f"{word} {message}" if argument and message.startswith(argument) else f"{line}: {message}"


def _parse_count(command: str, argument: str, usual: int = 1) -> int:
    if not argument:
        return usual
    if not argument.isdecimal() or int(argument) < 1:
        raise UsageError(f"{command} {argument}: expected a number of 1 or more")
    return int(argument)


def _reject_argument(command: str, argument: str) -> None:
    if argument:
        raise UsageError(f"{command} takes no argument, but got {argument!r}")
