"""The command line: `zinc-rt NAME ...`, each NAME also a program of its own, `zinc-rt-NAME`.

Commands register in pyproject.toml under [project.entry-points."zinc_rt.commands"]; the table in `zinc-rt --help`
is made from there and from each module's docstring, so the runtime names no harness module.
"""

from __future__ import annotations

import argparse
import ast
import errno
import io
import os
import shlex
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.arguments import meant
from zinc_rt.command_observer import CommandObserver
from zinc_rt.errors import OutputError, UsageError, ZincError
from zinc_rt.settings import read_settings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

INTERRUPTED = 130
READER_GONE = 141  # as of a process that SIGPIPE ended, so that a shell takes it for one
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@dataclass(frozen=True, slots=True)
class Command:
    """One command as a value: called with its words, it runs and returns its exit code.

    `body` gets the parsed words, and with them `observer`, who follows the command from outside, and `line`, how
    to run it again. What stands behind the first word of `before_another` is the line of another command:
    `wrapped`, None where no such word is there.
    """

    name: str
    parser: Callable[[], argparse.ArgumentParser]
    body: Callable[[argparse.Namespace], int]
    before_another: tuple[str, ...] = ()

    def __call__(self, argv: list[str] | None = None, observer: CommandObserver | None = None) -> int:
        """Parse and run: a ZincError becomes its sentence and exit code, Ctrl-C becomes 130. `argv` None: the
        process's own line."""
        parser = self.parser()
        parser.prog = f"zinc-rt {self.name}"
        words = sys.argv[1:] if argv is None else argv

        def parse_and_run() -> int:
            at = next((at for at, word in enumerate(words) if word in self.before_another), None)
            arguments = parser.parse_args(words[:at])
            arguments.wrapped = None if at is None else words[at + 1 :]
            arguments.line = shlex.join(("zinc-rt", self.name, *words))
            arguments.observer = observer or CommandObserver()
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="backslashreplace")  # a path or a terminal can lack a character
            read_settings(os.environ)  # every command refuses a misspelt setting, also those that read none
            return self.body(arguments)

        return _guarded(f"zinc-rt {self.name}", parse_and_run, program=argv is None)


def registered() -> dict[str, EntryPoint]:
    """Every installed command by its name; `load()` gives the Command."""
    from importlib.metadata import entry_points  # late: Ctrl-C while it loads is caught

    return {point.name: point for point in entry_points(group="zinc_rt.commands")}


def _guarded(who: str, body: Callable[[], int], *, program: bool) -> int:
    """Run body(), with what ends it early in one sentence on stderr and as an exit code. `program`: the process
    ends then, and Ctrl-C comes too late to change how."""
    _occupy_standard_streams()
    if sys.stdout is None:
        print(f"{who}: stdout is closed\n  next: redirect it, to /dev/null if it is not wanted", file=sys.stderr)
        return OutputError.exit_code
    try:
        try:
            return body()
        except Exception as error:
            if _began_by_ctrl_c(error):
                raise KeyboardInterrupt from error
            raise
        finally:
            sys.stdout.flush()
            if program:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ZincError as error:
        print(f"{who}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{who}: interrupted", file=sys.stderr)
        # CPython notes that an interrupt left source code run by exec (a dataclass being made), and would end by
        # the signal however it was handled. Running other source takes the note back.
        exec("")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has gone: nothing is left to say
        _discard_stdout()
        return READER_GONE
    except OSError as error:
        if error.filename is not None or error.errno not in _NO_ROOM:
            raise
        _discard_stdout()
        print(f"{who}: stdout: cannot write: {error.strerror}", file=sys.stderr)
        return OutputError.exit_code
    except MemoryError:
        print(f"{who}: out of memory\n  next: a smaller --ctx, or fewer tokens or layers", file=sys.stderr)
        return ZincError.exit_code


def _began_by_ctrl_c(error: BaseException) -> bool:
    """What fails while an interrupt gives everything back says nothing that the user did not ask for."""
    earlier = error.__context__
    return earlier is not None and (isinstance(earlier, KeyboardInterrupt) or _began_by_ctrl_c(earlier))


def _occupy_standard_streams() -> None:
    """Where a caller has closed one, the next file opened would take its number and receive our words."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is fd
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  (for the process's life)


def _discard_stdout() -> None:
    """What is still buffered goes nowhere, so that the interpreter's own flush at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: list[str] | None = None) -> int:
    return _guarded("zinc-rt", lambda: _main(sys.argv[1:] if argv is None else argv), program=argv is None)


def _main(argv: list[str]) -> int:
    commands = registered()
    if not argv or argv[0] in ("-h", "--help"):
        print(_help(commands))
        return 0 if argv else 2
    if argv[0] == "--version":
        from zinc_rt import __version__

        print(f"zinc-rt {__version__}")
        return 0
    if argv[0] not in commands:
        near = meant(argv[0], sorted(commands))
        known = "" if near else f"one of {', '.join(sorted(commands))}; "
        raise UsageError(f"no command {argv[0]!r}{near}", next=f"{known}zinc-rt --help")
    command: Command = commands[argv[0]].load()
    return command(argv[1:])


def _help(commands: dict[str, EntryPoint]) -> str:
    width = max((len(name) for name in commands), default=0)
    screen = max(shutil.get_terminal_size().columns - 2, width + 20)
    rows = "\n".join(
        textwrap.fill(
            f"  {name:<{width}}  {_summary(point)}",
            screen,
            subsequent_indent=" " * (width + 4),
            break_on_hyphens=False,
        )
        for name, point in sorted(commands.items())
    )
    return (
        "ZINC_RT: bring-up and validation of GPUs for LLM inference, with the runtime\n"
        f"inside.\n\nusage: zinc-rt COMMAND [OPTION ...]\n\n{rows}\n\n"
        "`zinc-rt COMMAND --help` explains each. Settings from the environment:\n"
        "docs/settings.md. Completion of these words: zinc-rt completion --help."
    )


def _summary(point: EntryPoint) -> str:
    """The first line of the command module's docstring, without importing it."""
    spec = find_spec(point.module)
    if spec is None or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
