"""A command as a value: parse its arguments, run it, and convert errors to a message and an exit code."""

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
from zinc_rt.host.settings import Settings, make_settings_error, read_settings
from zinc_rt.host.table_format import use_table_format

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

INTERRUPTED = 130
READER_GONE = 141  # as for a process ended by SIGPIPE
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@dataclass(frozen=True, slots=True)
class Command:
    """A command as a value: called with its arguments, it runs and returns its exit code.

    `body` gets the parsed arguments, with `observer`, which follows the command from outside, and `line`, the
    command line to run it again. The words after the first one in `before_another` are the command line of another
    command: `wrapped`, None without such a word.
    """

    name: str
    parser: Callable[[], argparse.ArgumentParser]
    body: Callable[[argparse.Namespace], int]
    before_another: tuple[str, ...] = ()

    def __call__(self, argv: list[str] | None = None, observer: CommandObserver | None = None) -> int:
        """Parse and run. Return the exit code: that of a ZincError, whose message is printed, or 130 for Ctrl-C.
        `argv` None: the arguments of the process."""
        parser = self.parser()
        words = sys.argv[1:] if argv is None else argv

        def parse_and_run() -> int:
            arguments = self._parse_arguments(parser, words, observer)
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="backslashreplace")  # a path or a terminal can lack a character
            for model in getattr(arguments, "model_files", ()):
                check_model_file(model)
            read_environment()  # every command rejects a misspelt setting, including those that read none
            with use_table_format(getattr(arguments, "format", "text")):
                return self.body(arguments)

        return run_guarded(f"zinc-rt {self.name}", parse_and_run, program=argv is None)

    def parse(self, words: Sequence[str], *, screen: TextIO) -> argparse.Namespace:
        """Parse the words for a caller from Python; tables and text go to `screen`.

        Raise UsageError for words that the command does not accept, and for an invalid setting in the environment.
        """
        parser = self.parser()
        assert isinstance(parser, Parser)
        parser.raise_errors()
        arguments = self._parse_arguments(parser, list(words), None)
        read_environment()
        arguments.screen = screen
        return arguments

    def _parse_arguments(
        self, parser: argparse.ArgumentParser, words: list[str], observer: CommandObserver | None
    ) -> argparse.Namespace:
        parser.prog = f"zinc-rt {self.name}"
        index = next((index for index, word in enumerate(words) if word in self.before_another), None)
        arguments = parser.parse_args(words[:index])
        arguments.wrapped = None if index is None else words[index + 1 :]
        arguments.line = shlex.join(("zinc-rt", self.name, *words))
        arguments.observer = observer or CommandObserver()
        return arguments


def read_environment() -> Settings:
    """Read the settings from the process's environment.

    Raise UsageError for a value that does not parse, an unknown setting, and a tier without a row in
    `backends/registry.py`.
    """
    settings = read_settings(os.environ)
    if settings.tier != "auto":
        try:
            registry.spec(settings.tier.partition(":")[0])
        except UsageError as error:
            raise make_settings_error("ZINC_RT_TIER", settings.tier) from error
    return settings


def find_commands() -> dict[str, EntryPoint]:
    """Return every installed command by name; `load()` returns the Command."""
    from importlib.metadata import entry_points  # imported late, so that Ctrl-C during the import is caught

    return {point.name: point for point in entry_points(group="zinc_rt.commands")}


def run_guarded(owner: str, body: Callable[[], int], *, program: bool) -> int:
    """Run body() and return its exit code. An error is printed on stderr in one sentence. `program`: the process
    ends afterwards, so a later Ctrl-C is ignored."""
    _open_standard_streams()
    if sys.stdout is None:
        print(f"{owner}: stdout is closed\n  next: redirect it, for example to /dev/null", file=sys.stderr)
        return OutputError.exit_code
    try:
        try:
            return body()
        except Exception as error:
            if _is_keyboard_interrupt(error):
                raise KeyboardInterrupt from error
            raise
        finally:
            sys.stdout.flush()
            if program:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ZincError as error:
        print(f"{owner}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{owner}: interrupted", file=sys.stderr)
        # CPython notes that an interrupt left source code run by exec (a dataclass being made), and would end by
        # the signal however it was handled. Running other source takes the note back.
        exec("")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has gone
        _discard(sys.stdout)
        try:
            sys.stderr.flush()
        except OSError:  # it was the same pipe, and a thread wrote to it
            _discard(sys.stderr)
        return READER_GONE
    except OSError as error:
        if error.filename is not None or error.errno not in _NO_ROOM:
            raise
        _discard(sys.stdout)
        print(f"{owner}: stdout: cannot write: {error.strerror}", file=sys.stderr)
        return OutputError.exit_code
    except MemoryError:
        print(f"{owner}: out of memory\n  next: use a smaller --ctx, or fewer tokens or layers", file=sys.stderr)
        return ZincError.exit_code


def _is_keyboard_interrupt(error: BaseException) -> bool:
    """Return whether an error occurred during the clean-up after Ctrl-C; such an error is not reported."""
    earlier = error.__context__
    return earlier is not None and (isinstance(earlier, KeyboardInterrupt) or _is_keyboard_interrupt(earlier))


def _open_standard_streams() -> None:
    """Open the null device for closed standard streams; otherwise the next opened file would receive the
    output."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is fd
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  (for the process's life)


def _discard(stream: TextIO) -> None:
    """Discard buffered output, so that the interpreter's flush at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
