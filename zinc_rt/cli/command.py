"""A command as a value: parse its words, run it, and turn what ends it early into a sentence and an exit code."""

from __future__ import annotations

import argparse
import errno
import io
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from zinc_rt.backends import registry
from zinc_rt.cli.observer import CommandObserver
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import OutputError, UsageError, ZincError
from zinc_rt.host.input_files import check_model_file
from zinc_rt.host.settings import Settings, read_settings, settings_error
from zinc_rt.host.table_format import table_format

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
        words = sys.argv[1:] if argv is None else argv

        def parse_and_run() -> int:
            arguments = self._parsed(parser, words, observer)
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="backslashreplace")  # a path or a terminal can lack a character
            for model in getattr(arguments, "model_files", ()):
                check_model_file(model)
            environment_settings()  # every command refuses a misspelt setting, including those that read none
            with table_format(getattr(arguments, "format", "text")):
                return self.body(arguments)

        return guarded(f"zinc-rt {self.name}", parse_and_run, program=argv is None)

    def parse(self, words: Sequence[str], *, screen: TextIO) -> argparse.Namespace:
        """Parse the words for a caller from Python; tables and text go to `screen`.

        Raise UsageError for words that the command does not accept, and for an invalid setting in the environment.
        """
        parser = self.parser()
        assert isinstance(parser, Parser)
        parser.raise_errors()
        arguments = self._parsed(parser, list(words), None)
        environment_settings()
        arguments.screen = screen
        return arguments

    def _parsed(
        self, parser: argparse.ArgumentParser, words: list[str], observer: CommandObserver | None
    ) -> argparse.Namespace:
        parser.prog = f"zinc-rt {self.name}"
        at = next((at for at, word in enumerate(words) if word in self.before_another), None)
        arguments = parser.parse_args(words[:at])
        arguments.wrapped = None if at is None else words[at + 1 :]
        arguments.line = shlex.join(("zinc-rt", self.name, *words))
        arguments.observer = observer or CommandObserver()
        return arguments


def environment_settings() -> Settings:
    """Read the settings from the process's environment.

    Raises UsageError for a value that does not parse, a knob that does not exist, and a tier without a row in
    `backends/registry.py`.
    """
    settings = read_settings(os.environ)
    if settings.tier != "auto":
        try:
            registry.spec(settings.tier.partition(":")[0])
        except UsageError as error:
            raise settings_error("ZINC_RT_TIER", settings.tier) from error
    return settings


def registered() -> dict[str, EntryPoint]:
    """Every installed command by its name; `load()` gives the Command."""
    from importlib.metadata import entry_points  # late: Ctrl-C while it loads is caught

    return {point.name: point for point in entry_points(group="zinc_rt.commands")}


def guarded(who: str, body: Callable[[], int], *, program: bool) -> int:
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
