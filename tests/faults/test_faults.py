"""The corpus of faults is in step with the tree, its scoring says what it means, and faults are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_plant import ROOT, CannotPlant, copy_tree, plant_fault, reason_not_applicable
from fault_row import BadRow, Edit, Fault, load_faults, parse_fault
from fault_score import FaultScore, score_output
from fault_walk import CommandOutput, advised_commands
from faults_command import main, try_fault

from zinc_rt.host.files import cache_folder

CORPUS = load_faults()
LEAST = 80
QUICK = "rope-turns-backwards"  # a fault takes half a minute: the others are planted with --slow


def make_fault(**changed: object) -> Fault:
    row = {
        "name": "a-fault",
        "kind": "wrong sign",
        "cause": "a sum where a difference is meant",
        "guilty": "kernel",
        "edits": {"file": "README.md", "find": "ZINC_RT", "replace": "zinc"},
        "run": "validate",
        "place": "node rope-0",
        "named": "stored by rope",
    }
    return parse_fault("kernels", {**row, **changed})


def make_output(text: str, code: int = 1) -> list[CommandOutput]:
    return [CommandOutput("validate", code, text)]


# --- the corpus ---------------------------------------------------------------------------------------------


def test_corpus_is_large_and_of_many_kinds() -> None:
    assert len(CORPUS) >= LEAST
    assert len({fault.kind for fault in CORPUS}) >= 30


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("fault", CORPUS, ids=str)
def test_fault_still_applies(fault: Fault) -> None:
    assert not reason_not_applicable(fault)


@pytest.mark.parametrize("fault", CORPUS, ids=str)
def test_row_cannot_match_its_own_command(fault: Fault) -> None:
    """What it plants, and how its files are called, is no proof of having found it."""
    text = " ".join((*fault.run, *(edit.file for edit in fault.edits)))
    assert fault.named and fault.place
    assert not all(is_found(regex, text) for regex in fault.named), "the command's own words name the cause"
    assert " -k" not in text, "the corpus must not choose the probe that fails"
    assert not any(is_found(regex, "PASS  FAIL  1 model: 3 failed, exit 1") for regex in fault.named)


def is_found(regex: str, text: str) -> bool:
    import re

    return re.search(regex, text) is not None


# --- planting -----------------------------------------------------------------------------------------------


def test_missing_anchor_is_reported_and_changes_no_file(tmp_path: Path) -> None:
    fault = make_fault(edits={"file": "pyproject.toml", "find": "no such line", "replace": "another"})
    assert reason_not_applicable(fault) == "pyproject.toml: the anchor is there 0 times: 'no such line'"
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(CannotPlant, match="0 times"):
        plant_fault(fault, tmp_path)


def test_planting_does_not_modify_the_tree(tmp_path: Path) -> None:
    fault = next(fault for fault in CORPUS if fault.name == "swiglu-squares-the-gate")
    edit = fault.edits[0]
    before = (ROOT / edit.file).read_bytes()
    tree = copy_tree(tmp_path / "tree")
    (tree / edit.file).write_text((tree / edit.file).read_text().replace(edit.options["find"], ""))
    assert (ROOT / edit.file).read_bytes() == before
    assert (tree / "zinc_rt" / "validate").is_symlink() and not (tree / "tests").exists()


def test_tensor_bytes_are_changed_in_a_copy(tmp_path: Path) -> None:
    from fault_plant import PLANTERS

    (tmp_path / "golden").symlink_to(ROOT / "golden")
    options = {"copy": "golden/qwen3-q.gguf", "tensor": "blk.0.attn_norm.weight", "at": 4, "write": "0000807f"}
    PLANTERS["tensor"](Edit("tensor", "bad.gguf", options), tmp_path)
    good, bad = (ROOT / "golden" / "qwen3-q.gguf").read_bytes(), (tmp_path / "bad.gguf").read_bytes()
    changed = [index for index, (a, b) in enumerate(zip(good, bad, strict=True)) if a != b]
    assert 1 <= len(changed) <= 4 and changed[-1] - changed[0] < 4


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"guilty": "nobody"}, "guilty is"),
        ({"named": "("}, "is not a regular expression"),
        ({"edits": {"file": "a", "find": "b"}}, "an edit of kind text does not accept file, find"),
        ({"color": "red"}, "unknown keys color"),
    ],
)
def test_invalid_row_is_rejected(changed: dict[str, object], message: str) -> None:
    with pytest.raises(BadRow, match=message):
        make_fault(**changed)


# --- what words are worth -----------------------------------------------------------------------------------


def test_output_with_place_and_cause_scores_as_named() -> None:
    assert score_output(make_fault(), make_output("node rope-0, stored by rope")) == FaultScore("named", "")
    assert score_output(make_fault(), make_output("node rope-0")).score == "located"
    assert score_output(make_fault(), make_output("stored by rope")).score == "detected"
    assert score_output(make_fault(), make_output("all is well", 0)).score == "missed"
    assert score_output(make_fault(), make_output("nothing to compare", 77)).score == "missed", (
        "what did not run found nothing"
    )


def test_traceback_is_not_a_finding() -> None:
    text = "Traceback (most recent call last)\n node rope-0, stored by rope"
    assert score_output(make_fault(), make_output(text)).score == "detected"


def test_blaming_only_innocent_parts_scores_as_misleading() -> None:
    result = "node rope-0, stored by rope\nsuspect    t1 differs from t_cpu: suspect "
    assert score_output(make_fault(), make_output(result + "the oracle")) == FaultScore(
        "misleading", "suspect the oracle"
    )
    assert score_output(make_fault(), make_output(result + "the oracle, or what they share")).score == "named"
    assert score_output(make_fault(), make_output(result + "t1")).score == "named"
    assert score_output(make_fault(guilty="model code"), make_output(result + "t1")).score == "misleading"
    assert (
        score_output(make_fault(innocent="layer 3"), make_output(result + "t1, in layer 3")).score == "misleading"
    )


def test_only_failing_lines_count() -> None:
    passed = "P34/t1  pass  sim  node rope-0  stored by rope\nprogress  node rope-0, stored by rope\n"
    assert score_output(make_fault(), make_output(passed)).score == "detected"
    found = "node rope-0, stored by rope, 17 of 32"
    assert score_output(make_fault(), make_output(found)).score == "named"
    healthy = "  node rope-0, stored by rope, 3 of 32\n"
    assert score_output(make_fault(), make_output(found), healthy).score == "refused"
    assert (
        score_output(make_fault(named="32nd|wrong"), make_output(found + "\nwrong"), healthy).score == "detected"
    ), "the place stands only in a line that the healthy run prints too"
    outputs = [*make_output("t1 differs"), CommandOutput("replay --info", 0, found)]
    assert score_output(make_fault(), outputs).score == "detected", "a command that passes finds nothing"


def test_causes_advice_first_bad_and_hangs_are_accusations() -> None:
    found = "node rope-0, stored by rope\n"
    for line, guilty in (
        ("  cause     the doorbell does not reach the command processor", "driver"),
        ("  advice    update the firmware", ""),
        ("zinc-rt run: t2: fence 2 not reached within 10 s: a packet stops the queue", "packets"),
        ("first bad  qwen3-q, t1 against t_cpu: layer 1, node attn_norm-1", ""),
    ):
        assert score_output(make_fault(), make_output(found + line)).score == "misleading", line
        if guilty:
            assert score_output(make_fault(guilty=guilty), make_output(found + line)).score == "named", line
    two = "first bad  q, t2 against t_cpu: layer 1\nfirst bad  q, t1 against t_cpu: layer 0, node rope-0\n"
    assert score_output(make_fault(), make_output(found + two)).score == "named"


def test_advice_is_followed_once_starting_with_latest_output() -> None:
    text = "next       zinc-rt isa lint k.zrt\nrepro      zinc-rt validate --model m\n"
    first = CommandOutput("validate --model m", 1, text)
    assert list(advised_commands([first])) == ["zinc-rt isa lint k.zrt"]
    second = CommandOutput("isa lint k.zrt", 1, "error: no such file\n  next: zinc-rt asm --check")
    assert next(advised_commands([first, second])) == "zinc-rt asm --check"


def test_list_prints_faults_and_wrong_name_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "swiglu-*"]) == 0
    assert "swapped operands" in capsys.readouterr().out
    assert main(["no-such-fault"]) == 2
    assert "unknown fault 'no-such-fault'" in capsys.readouterr().err


# --- the faults themselves ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=[] if fault.name == QUICK else pytest.mark.slow, id=fault.name)
        for fault in CORPUS
    ],
)
def test_planted_fault_is_named(fault: Fault) -> None:
    if fault.waits_for:
        pytest.xfail(f"waits for {fault.waits_for}")
    result = try_fault(fault, cache=cache_folder().parent)
    assert result.score.score == "named", f"{result.score}\n" + "\n".join(item.text for item in result.said)
