"""Command-line parsing: argparse with one-sentence errors and suggestions, and models as positional arguments.

zinc-rt run: no option --modle: did you mean --model?
  next: zinc-rt run --help
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from zinc_rt.host.errors import UsageError

MODELS = "models"  # of a parser's result: the models that were given, however they were
_INVALID = re.compile(r"invalid (\w+) value: (.*)", re.DOTALL)  # argparse's message for a rejected value
_WANTED = {"int": "a whole number", "float": "a number"}


class Help(argparse.RawDescriptionHelpFormatter):
    """A help formatter that keeps line breaks. Lines wider than the terminal wrap; wrapped examples stay valid for
    a shell."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip("\n").split("\n\n")
        return "\n\n".join(_wrap_paragraph(textwrap.indent(paragraph, indent), width) for paragraph in paragraphs)


class Parser(argparse.ArgumentParser):
    """argparse with short errors and wrapped help. Subparsers made by add_subparsers are Parsers too."""

    most_models: int | None = 0  # the positional arguments it accepts; None: any number
    needs_model = False
    checks_models = True  # Command checks that each of them is a GGUF file before it runs
    raises = False  # wrong arguments raise UsageError instead of ending the process

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **{"formatter_class": Help, **named})

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 after an error message, a suggestion if there is one, and the command for help; after
        `raise_errors`, raise UsageError with the same text."""
        text, advice = f"{self.prog}: {_reword_message(message)}", f"{self.prog} --help"
        if self.raises:
            raise UsageError(text, next=advice)
        self.exit(2, f"{text}\n  next: {advice}\n")

    def raise_errors(self) -> None:
        """Make this parser and its subparsers raise UsageError for wrong arguments."""
        self.raises = True
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for subparser in action.choices.values():
                    subparser.raise_errors()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse like argparse, but reject unknown arguments here, where the options of the subcommand are known.

        Positional words are models if the command accepts models, at any position among the options.
        """
        taken, left = super().parse_known_args(args, namespace)
        words = [] if self.most_models == 0 else [word for word in left if not word.startswith("-")]
        if others := [word for word in left if word not in words]:
            self.error(self._describe_unknown_argument(others[0]))
        if self.most_models != 0:
            first = getattr(taken, MODELS)
            self._take_models(taken, [*([first] if isinstance(first, str) else first or []), *words])
        return taken, []

    def _take_models(self, taken: argparse.Namespace, words: list[str]) -> None:
        """Store the models; `model` is the first of `models`, and `model_files` are the ones that Command
        checks.
        """
        named = taken.model
        if words and named is not None:
            self.error(f"{words[0]}: the model was already set with --model {named}")
        if self.most_models is not None and len(words) > self.most_models:
            self.error(f"{words[self.most_models]}: only one model is accepted, and {words[0]} is given")
        taken.models = words if named is None else [named]
        taken.model = taken.models[0] if taken.models else None
        taken.model_files = taken.models if self.checks_models else []
        if self.needs_model and taken.model is None:
            self.error("no model was given; name a GGUF file")

    def _describe_unknown_argument(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{word}: a word too many"
        flag = word.partition("=")[0]
        return f"no option {flag}{suggest_word(flag, self._option_string_actions)}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = suggest_word(str(value), choices)
        raise argparse.ArgumentError(
            action, f"no {value!r}{near or ':'} {_format_choices(choices, bracket=bool(near))}"
        )


def suggest_word(word: str, candidates: Iterable[str]) -> str:
    """Return `: did you mean X?` with the nearest known word, or an empty string."""
    import difflib  # imported late: only errors need it

    near = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f": did you mean {near[0]}?" if near else ""


def add_models(parser: argparse.ArgumentParser, *, required: bool = True, several: bool = False) -> None:
    """Add the model, or `several`, as positional or with --model: `arguments.model` and `arguments.models`."""
    assert isinstance(parser, Parser)
    parser.most_models, parser.needs_model = None if several else 1, required
    what = "GGUF files" if several else "a GGUF file"
    parser.add_argument(MODELS, metavar="MODEL", nargs="*" if several else "?", help=what)
    parser.add_argument("-m", "--model", metavar="FILE", help="the model, passed as an option")


def _format_choices(choices: Sequence[str], *, bracket: bool) -> str:
    return f"({', '.join(choices)})" if bracket else f"one of {', '.join(choices)}"


def _reword_message(message: str) -> str:
    text = message.removeprefix("argument ")
    if match := _INVALID.search(text):
        kind, value = match.groups()
        return f"{text[: match.start()]}expected {_WANTED.get(kind, kind)}, not {value}"
    return text


def _wrap_paragraph(text: str, width: int) -> str:
    lines = text.splitlines()
    prose = not any(line.startswith(" ") or "  " in line for line in lines)
    if prose and any(len(line) > width for line in lines):
        return textwrap.fill(" ".join(lines), width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(_fold_line(line, width) for line in lines)


def _fold_line(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    words = line.lstrip()
    indent = " " * (len(line) - len(words))
    example = words.startswith(("zinc-rt", "python3 "))
    gap = re.search(r" {2,}", words)
    if example and gap is not None:  # its effect is on a separate line
        prefix = f"{indent}    # "
        comment = textwrap.fill(
            words[gap.end() :].lstrip("# "), width, initial_indent=prefix, subsequent_indent=prefix
        )
        return f"{_fold_line(indent + words[: gap.start()], width)}\n{comment}"
    hanging = indent + " " * (4 if example else gap.end() if gap is not None and gap.end() <= width // 2 else 0)
    lines = textwrap.wrap(
        line, width - 2 * example, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
    return (" \\\n" if example else "\n").join(lines)


MOST_CTX = 2**31 - 1  # positions are int32 in the step's buffers


def parse_context_length(text: str) -> int:
    """Parse a context length in tokens, as argparse's `type`. 0 selects the model's trained length."""
    value = int(text)
    if not 0 <= value <= MOST_CTX:
        raise argparse.ArgumentTypeError(f"{value}: expected 0 (the trained length) to {MOST_CTX} tokens")
    return value


def parse_positive(text: str) -> float:
    """Parse a finite number above 0, as argparse's `type`."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value
