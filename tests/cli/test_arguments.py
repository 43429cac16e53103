"""Short errors with the nearest right word, models as plain words, help that fits, scripts of completion."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from zinc_rt.cli.completion import SHELLS, build_full_parser, iterate_parsers
from zinc_rt.cli.options import add_device, find_simulated_chip, parse_device_name
from zinc_rt.host.arguments import Parser, add_models, suggest_word
from zinc_rt.host.errors import UsageError

Capture = pytest.CaptureFixture[str]
POINTS = {point.name: point for point in entry_points(group="zinc_rt.commands")}
BASH = shutil.which("bash")


def build_parser(*, several: bool = False, required: bool = True) -> Parser:
    parser = Parser("zinc-rt x")
    add_models(parser, several=several, required=required)
    parser.add_argument("-p", "--prompt")
    parser.add_argument("-c", "--ctx", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--device", choices=("auto", "hw", "sim"))
    return parser


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("M --promt y", "no option --promt: did you mean --prompt?"),
        ("M --promt=y", "no option --promt: did you mean --prompt?"),
        ("M --zzz", "no option --zzz"),
        ("M --device smi", "--device: no 'smi': did you mean sim? (auto, hw, sim)"),
        ("M --device zzz", "--device: no 'zzz': one of auto, hw, sim"),
        ("M --ctx abc", "-c/--ctx: expected a whole number, not 'abc'"),
        ("M --top-p abc", "--top-p: expected a number, not 'abc'"),
        ("M --prompt", "-p/--prompt: expected one argument"),
        ("", "no model was given; name a GGUF file"),
        ("A B", "B: only one model is accepted, and A is given"),
        ("A -m B", "A: the model was already set with --model B"),
    ],
)
def test_parse_error_prints_one_line(words: str, message: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(words.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"zinc-rt x: {message}\n  next: zinc-rt x --help\n"


@pytest.mark.parametrize(
    "words", ["A -p x", "-p x A", "-p x -c 3 A", "-m A -p x", "--model A -p x", "-p x --model=A"]
)
def test_model_is_accepted_at_any_position(words: str) -> None:
    taken = build_parser().parse_args(words.split())
    assert (taken.model, taken.models, taken.prompt) == ("A", ["A"], "x")


@pytest.mark.parametrize("words", ["A B C -p x", "A -p x B C", "-p x A B C", "A B -c 4 C"])
def test_several_models_keep_their_order(words: str) -> None:
    assert build_parser(several=True).parse_args(words.split()).models == ["A", "B", "C"]


def test_model_is_optional_when_not_required() -> None:
    taken = build_parser(required=False, several=True).parse_args([])
    assert (taken.model, taken.models) == (None, [])


def test_unknown_option_is_reported_for_its_subcommand(capsys: Capture) -> None:
    parser = Parser("zinc-rt y")
    action = parser.add_subparsers(dest="action").add_parser("bench")
    action.add_argument("--runs")
    with pytest.raises(SystemExit):
        parser.parse_args(["bench", "--rnus", "3"])
    assert capsys.readouterr().err.startswith("zinc-rt y bench: no option --rnus: did you mean --runs?\n")
    with pytest.raises(SystemExit):
        parser.parse_args(["bnech"])
    assert "no 'bnech': did you mean bench?" in capsys.readouterr().err


def test_parser_for_python_callers_raises_instead_of_exiting(capsys: Capture) -> None:
    parser = Parser("zinc-rt y")
    action = parser.add_subparsers(dest="action").add_parser("bench")
    action.add_argument("--runs", type=int)
    parser.raise_errors()
    with pytest.raises(UsageError, match=r"zinc-rt y bench: no option --rnus: did you mean --runs\?") as caught:
        parser.parse_args(["bench", "--rnus", "3"])
    assert caught.value.next == "zinc-rt y bench --help"
    with pytest.raises(UsageError, match="zinc-rt y bench: --runs: expected a whole number, not 'x'"):
        parser.parse_args(["bench", "--runs", "x"])
    with pytest.raises(UsageError, match="zinc-rt y: action: no 'bnech'"):
        parser.parse_args(["bnech"])
    assert capsys.readouterr().err == ""


def test_misspelling_suggests_nearest_command() -> None:
    assert suggest_word("validat", POINTS) == ": did you mean validate?" and suggest_word("qqq", POINTS) == ""


@pytest.mark.parametrize("name", sorted(POINTS))
def test_every_command_rejects_unknown_option_in_two_lines(name: str, capsys: Capture) -> None:
    words = ["--", "run", "--nonsense"] if name == "trace" else ["--nonsense"]
    try:
        code = POINTS[name].load()(words)
    except SystemExit as ended:
        code = ended.code
    output = capsys.readouterr()
    assert code == 2 and not output.out and len(output.err.splitlines()) <= 2, output.err
    assert output.err.startswith("zinc-rt ")


def all_help_texts() -> list[tuple[str, Parser]]:
    result = []
    for name, parser in iterate_parsers():
        left = [(f"zinc-rt {name}", parser)]
        while left:
            words, item = left.pop()
            assert isinstance(item, Parser), words
            result.append((words, item))
            for action in item._actions:
                if hasattr(action, "_name_parser_map"):
                    left += [(f"{words} {key}", sub) for key, sub in action._name_parser_map.items()]
    return result


def test_every_help_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    pages = {words: parser.format_help() for words, parser in all_help_texts()}
    assert len(pages) > len(POINTS)
    assert not [
        f"{words}: {line}" for words, page in pages.items() for line in page.splitlines() if len(line) > 80
    ]


def test_short_options_mean_the_same_in_every_command() -> None:
    wanted = {"--model": "-m", "--ctx": "-c", "--prompt": "-p"}
    for words, parser in all_help_texts():
        for long, short in wanted.items():
            action = parser._option_string_actions.get(long)
            assert action is None or short in action.option_strings, f"{words} {long}"
        for short in ("-m", "-c", "-n", "-p"):
            action = parser._option_string_actions.get(short)
            assert action is None or action.option_strings[-1] in (*wanted, *TOKENS), f"{words} {short}"


TOKENS = ("--max-tokens", "--steps", "--new-tokens", "--tokens", "--prompt-tokens")


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_contains_every_command(shell: str, capsys: Capture) -> None:
    assert POINTS["completion"].load()([shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in POINTS) and "t_cpu_native" in script


def test_completion_covers_every_command() -> None:
    (commands,) = [action for action in build_full_parser()._actions if hasattr(action, "_name_parser_map")]
    assert set(commands._name_parser_map) == set(POINTS)


@pytest.mark.rest(keep=3)
@pytest.mark.skipif(BASH is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "completions"),
    [
        (["val"], "validate"),
        (["run", "--ti"], "--tier --timeout"),
        (["run", "--tier", "t_cpu_"], "t_cpu_native"),
        (["validate", "--sanitizer", ""], "off fast full"),
        (["perf", "be"], "bench"),
        (["doctor", "--device", "a"], "auto"),
        (["run", "mod"], "model.gguf"),
    ],
)
def test_bash_completion_works(words: list[str], completions: str, tmp_path: Path, capsys: Capture) -> None:
    POINTS["completion"].load()(["bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "model.gguf").touch()
    line = 'source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_zinc_rt; echo "${COMPREPLY[*]}"'
    assert BASH is not None
    result = subprocess.run(
        [BASH, "-c", line, "bash", "zinc-rt", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert (result.stdout.strip(), result.stderr) == (completions, "")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("sim", {}),
        ("sim:gfx1201", {"chip": "gfx1201"}),
        ("sim:gfx1201@6.16", {"chip": "gfx1201", "linux": "6.16"}),
        ("sim:@7.0+userq-cwsr", {"linux": "7.0+userq-cwsr"}),
    ],
)
def test_device_names_a_simulated_chip_and_linux(text: str, options: dict[str, str]) -> None:
    parser = argparse.ArgumentParser()
    add_device(parser.add_argument_group(), "")
    arguments = parser.parse_args(["--device", text])
    asked = vars(arguments)
    assert {name: asked[name] for name in ("chip", "linux") if asked[name]} == options
    assert asked["device"] == "sim" and find_simulated_chip(asked) == text


@pytest.mark.parametrize(("text", "words"), [("sim:gfx1201@5.4", "unknown Linux version '5.4'"), ("sim:x", "x")])
def test_unknown_simulated_linux_or_chip_is_rejected(text: str, words: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=words):
        parse_device_name(text)
