"""Bisecting an environment: how many runs, how often right, and what the user sees on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from zinc_rt.doctor.bringup.bisect_env import command, confirm, journal, speed
from zinc_rt.doctor.bringup.bisect_env import simulate as module
from zinc_rt.doctor.bringup.bisect_env.model import ALWAYS, ENOUGH, NEVER, build_model
from zinc_rt.doctor.bringup.bisect_env.propose import propose, run_minutes
from zinc_rt.doctor.bringup.bisect_env.simulate import (
    BOOTS,
    NOT_TOLD,
    RIGHT_LIMIT,
    SETTINGS,
    TOLD,
    UNEXPLAINED,
    VERY_FLAKY,
    WRONG_LIMIT,
    SimulatedSetting,
    simulate,
)
from zinc_rt.doctor.bringup.bisect_env.variables import (
    SCHEMA,
    Problem,
    Rates,
    Variable,
    load_problem,
    parse_problem,
)
from zinc_rt.host.errors import InputError

Capture = pytest.CaptureFixture[str]
TWO = ("good", "bad")


def make_variables(count: int, kind: str = "other") -> tuple[Variable, ...]:
    return tuple(Variable(f"v{index}", TWO, 0, 1, kind) for index in range(count))


def make_document(**more: Any) -> dict[str, Any]:
    rows = {f"v{index}": {"good": "good", "bad": "bad"} for index in range(6)}
    return {"schema": SCHEMA, "test": "zinc-rt pm4-test -k P20", "variables": rows, **more}


@pytest.fixture
def begun_journal(tmp_path: Path) -> Path:
    """A journal of six variables."""
    (tmp_path / "v.yaml").write_text(yaml.safe_dump(make_document()))
    assert command.main(["start", str(tmp_path / "v.yaml"), "--journal", str(tmp_path / "j")]) == 0
    return tmp_path / "j"


def run_bisect(path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Run the command. Every record belongs to a separate boot, unless words contains --boot."""
    out = path.with_name("report.json")
    if words[0] == "record" and "--boot" not in words:
        words = (*words, "--boot", f"boot {len(path.read_bytes().splitlines())}")
    code = command.main([*words, "--journal", str(path), "--json", str(out)])
    return code, json.loads(out.read_text())["details"]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("setting", TOLD, ids=lambda s: s.text)
def test_known_flake_rate_keeps_run_count_low(setting: SimulatedSetting, request: pytest.FixtureRequest) -> None:
    result = simulate(setting, 1000 if request.config.getoption("--slow") else 100)
    assert setting.median_limit is not None and np.median(result.runs) <= setting.median_limit
    assert result.right.mean() >= RIGHT_LIMIT and (result.spent <= result.planned).all()


@pytest.mark.slow
@pytest.mark.parametrize("setting", (*NOT_TOLD, *VERY_FLAKY, *BOOTS), ids=lambda s: s.text)
def test_unknown_flake_rate_is_handled(setting: SimulatedSetting) -> None:
    result = simulate(setting, 200)
    assert setting.median_limit is None or np.median(result.runs) <= setting.median_limit
    assert result.right.mean() >= RIGHT_LIMIT and (result.spent <= result.planned).all()


@pytest.mark.slow
@pytest.mark.parametrize("setting", UNEXPLAINED, ids=lambda s: s.text)
def test_cause_outside_the_model_is_not_named(setting: SimulatedSetting) -> None:
    result = simulate(setting, 200)
    assert result.wrong.mean() <= WRONG_LIMIT


@pytest.mark.parametrize("setting", [VERY_FLAKY[0], UNEXPLAINED[3]], ids=lambda s: s.text)
def test_rarely_flaky_and_unexplained_faults_get_the_right_verdict(setting: SimulatedSetting) -> None:
    result = simulate(setting, 20)
    assert (result.right if setting.explained else result.not_found).all() and not result.wrong.any()


FAULTS = {
    "either of two": lambda bad: bad["v1"] or bad["v4"],
    "not both": lambda bad: bad["v1"] != bad["v4"],
    "three": lambda bad: bad["v1"] and bad["v3"] and bad["v4"],
}


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        ("either of two", "two independent causes are likely"),
        ("three", "three or more together are likely"),
    ],
)
def test_cause_outside_the_model_ends_with_advice(
    tmp_path: Path, fault: str, advice: str, capsys: Capture
) -> None:
    (tmp_path / "v.yaml").write_text(yaml.safe_dump(make_document(flaky={"bad_passes": 0.05, "good_fails": 0.0})))
    start = tmp_path / "j"
    assert command.main(["start", str(tmp_path / "v.yaml"), "--journal", str(start)]) == 0
    for _ in range(60):
        _, output = run_bisect(start, "next")
        if output["ended"]:
            break
        bad = {name: value == "bad" for name, value in output["next"]["set"].items()}
        run_bisect(start, "record", "fail" if FAULTS[fault](bad) else "pass")
    assert output["verdict"] == "not-explained"
    assert advice in capsys.readouterr().out


def test_boots_are_planned_before_they_are_used(begun_journal: Path, capsys: Capture) -> None:
    planned = 0
    for _ in range(60):
        _, output = run_bisect(begun_journal, "next")
        if output["ended"]:
            break
        if output["confirmation"] and not planned:
            assert "to be confirmed, in at most" in capsys.readouterr().out
            planned = sum(arm["planned_boots"] for arm in output["confirmation"]["arms"])
            assert not any(arm["boots"] for arm in output["confirmation"]["arms"])
        run_bisect(begun_journal, "record", "fail" if output["next"]["set"]["v2"] == "bad" else "pass")
    assert output["verdict"] == "guilty" and planned
    assert sum(len(arm["boots"]) for arm in output["confirmation"]["arms"]) <= planned


def test_runs_of_one_boot_count_less_than_runs_of_several() -> None:
    model = build_model(Problem(make_variables(3), rates=Rates(0.1, 0.1)))
    present, failed = model.find_present_causes(np.array([[1, 0, 0]])).T, np.array([True])
    once = model.after(model.start(), present, failed)
    same = model.after(once, present, failed, model.boot_failure_probability(present, failed))
    other = model.after(once, present, failed)
    index = [model.cause_probabilities(item)[0, 0] for item in (once, same, other)]
    assert index[0] < index[1] < index[2]


def test_repeated_boot_does_not_fill_the_plan(begun_journal: Path) -> None:
    for _ in range(60):
        _, output = run_bisect(begun_journal, "next")
        if output["confirmation"]:
            break
        run_bisect(begun_journal, "record", "fail" if output["next"]["set"]["v2"] == "bad" else "pass")
    for _ in range(4):
        run_bisect(
            begun_journal,
            "record",
            "fail",
            "--boot",
            "the same",
            "--with",
            "v0=good,v1=good,v2=bad,v3=good,v4=good,v5=good",
        )
    only = run_bisect(begun_journal, "status")[1]["confirmation"]["arms"][0]
    assert [boot["runs"] for boot in only["boots"]] == [4]


def test_confirmation_distinguishes_a_second_cause_from_chance() -> None:
    """Failures without the suspect refute it, unless runs fail as often with all values good."""

    def judge_runs(failures: int, good: int) -> float:
        likelihood = np.zeros((1, 3, len(confirm.CHANCES)))
        for arm, (runs, failed) in enumerate([(8, 8), (16, failures), (16, good)]):
            for index in range(runs):
                likelihood[0, arm] += confirm.compute_boot_likelihood(int(index < failed), 1)
        return float(confirm.judge(likelihood).cause[0])

    assert judge_runs(0, 0) > 0.97 and judge_runs(8, 0) < 0.01 and judge_runs(3, 4) > judge_runs(4, 0)


@pytest.fixture
def begun_speed_journal(tmp_path: Path) -> Path:
    rows = {"mesa": {"good": "v0", "bad": "v31", "values": [f"v{index}" for index in range(32)]}}
    (tmp_path / "v.yaml").write_text(yaml.safe_dump(make_document(variables=rows, measure={"unit": "tokens/s"})))
    assert command.main(["start", str(tmp_path / "v.yaml"), "--journal", str(tmp_path / "j")]) == 0
    return tmp_path / "j"


def test_two_speed_steps_are_located(begun_speed_journal: Path, capsys: Capture) -> None:
    noise = np.random.default_rng(3)
    for _ in range(60):
        _, output = run_bisect(begun_speed_journal, "next")
        if output["ended"]:
            break
        version = int(output["next"]["set"]["mesa"][1:])
        value = 50 * (0.9 if version >= 9 else 1) * (0.88 if version >= 20 else 1) * (1 + 0.02 * noise.normal())
        run_bisect(begun_speed_journal, "record", f"{value:.3f} tokens/s", "--output", "right")
    report = json.loads(begun_speed_journal.with_name("report.json").read_text())["results"]
    steps = next(item for item in report if item["id"] == "steps")["measure"]["steps"]
    assert [(item["from"], item["slower"]) for item in steps] == [("v9", True), ("v20", True)]
    assert len(output["runs"]) <= output["most_runs"] == 40
    assert "mesa v9 is slower than v8" in capsys.readouterr().out


def test_run_with_wrong_output_is_neither_fast_nor_slow(begun_speed_journal: Path, capsys: Capture) -> None:
    for _ in range(2):
        run_bisect(begun_speed_journal, "record", "900", "--output", "wrong", "--with", "mesa=v31")
    _, output = run_bisect(begun_speed_journal, "status")
    assert not output["likeliest"] and output["wrong_output"] == [{"mesa": "v31"}]
    assert run_bisect(begun_speed_journal, "next")[1]["next"]["set"]["mesa"] != "v31"
    assert "the output is wrong with mesa v31" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["41.3"], "pass --output"),
        (["41.3 s", "--output", "right"], "expected a positive number of tokens/s"),
        (["pass", "--output", "right"], "expected a positive number of tokens/s"),
        (["0", "--output", "right"], "expected a positive number"),
    ],
)
def test_speed_without_unit_or_output_is_rejected(
    begun_speed_journal: Path, words: list[str], message: str, capsys: Capture
) -> None:
    assert command.main(["record", *words, "--journal", str(begun_speed_journal)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("setting", speed.SPEED_SETTINGS[:1], ids=lambda s: s.text)
def test_planted_steps_are_found_within_the_planned_runs(setting: speed.SpeedSetting) -> None:
    result = speed.simulate(setting, 12)
    assert result.right.mean() >= 0.9 and result.runs.max() <= result.most


@pytest.mark.slow
@pytest.mark.parametrize("setting", speed.SPEED_SETTINGS, ids=lambda s: s.text)
def test_speed_table_matches_measurements(setting: speed.SpeedSetting) -> None:
    result = speed.simulate(setting, 200)
    assert not setting.judged or result.right.mean() >= speed.RIGHT_LIMIT
    assert result.runs.max() <= result.most


@pytest.mark.parametrize("cause", [{"v3"}, {"v1", "v4"}])
def test_bisection_runs_from_start_to_verdict(begun_journal: Path, cause: set[str]) -> None:
    """Every command line of it, as a person types them."""
    for _ in range(60):
        _, output = run_bisect(begun_journal, "next")
        if output["ended"]:
            break
        fails = all(output["next"]["set"][name] == "bad" for name in cause)
        run_bisect(begun_journal, "record", "fail" if fails else "pass")
    assert set(output["suspects"][0]["variables"]) == cause and output["verdict"] == "guilty"
    assert len(output["runs"]) <= 45


@pytest.mark.parametrize(("outcome", "text"), [("fail", ALWAYS), ("pass", NEVER)])
def test_cause_outside_the_variables_is_not_blamed_on_them(
    begun_journal: Path, outcome: str, text: str, capsys: Capture
) -> None:
    for _ in range(40):
        _, output = run_bisect(begun_journal, "record", outcome)
        if output["ended"]:
            break
    assert output["suspects"][0]["text"] == text
    assert "NOT FOUND" in capsys.readouterr().out


def test_first_bad_value_is_found() -> None:
    kernel = Variable("kernel", ("6.8", "6.12", "6.16", "6.18", "7.0"), 0, 4, "kernel")
    problem = Problem((kernel, *make_variables(3)), rates=Rates(0.001, 0.001))
    model = build_model(problem)
    posterior, now = model.start(), problem.bad
    for _ in range(20):
        proposal = propose(problem, model, posterior, now)
        assert proposal is not None
        now = proposal.run
        fails = now[0] >= 3
        posterior = model.after(posterior, model.find_present_causes(np.array([now])).T, np.array([fails]))
        if model.cause_probabilities(posterior).max() >= ENOUGH:
            break
    best = model.causes[int(model.cause_probabilities(posterior)[0].argmax())]
    assert best.text == "kernel from 6.18 on (6.16 is good)"


def test_unordered_values_can_be_bad_in_any_combination() -> None:
    bar = Variable("BAR", ("on", "auto", "off"), 0, 2, "bios", ordered=False)
    assert set(bar.bad_value_sets()) == {frozenset({2}), frozenset({1, 2})}


def test_reboot_is_paid_once_and_package_change_is_free() -> None:
    problem = Problem(
        (Variable("a", TWO, 0, 1, "kernel"), Variable("b", TWO, 0, 1, "cmdline"), *make_variables(1))
    )
    runs = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1]])
    still, one, two, package = run_minutes(problem, runs, (0, 0, 0))
    assert still == package == problem.test_minutes and one == two > still


def test_cheaper_of_two_equally_informative_runs_is_proposed() -> None:
    problem = Problem((Variable("a", TWO, 0, 1, "kernel"), Variable("b", TWO, 0, 1)), rates=Rates(0.1, 0.001))
    model = build_model(problem)
    result = propose(problem, model, model.start(), problem.bad)
    assert result is not None and result.run == (1, 0)


def test_thirty_variables_are_supported() -> None:
    problem = Problem(make_variables(30), rates=Rates(0.1, 0.001))
    model = build_model(problem)
    result = propose(problem, model, model.start(), problem.bad)
    assert result is not None and result.bits > 0.7  # of the 0.76 that so flaky a test can tell


def test_same_run_is_proposed_until_an_outcome_is_recorded(begun_journal: Path) -> None:
    first, second = (run_bisect(begun_journal, "next")[1]["next"]["set"] for _ in range(2))
    assert first == second
    run_bisect(begun_journal, "record", "unclear")
    assert run_bisect(begun_journal, "status")[1]["runs"][0]["outcome"] == "unclear"


def test_incomplete_journal_line_is_the_only_one_lost(begun_journal: Path, capsys: Capture) -> None:
    run_bisect(begun_journal, "record", "fail")
    data = begun_journal.read_bytes()
    begun_journal.write_bytes(data + b'\n{"what": "record", "run": {"v0": "go')
    code, output = run_bisect(begun_journal, "status")
    assert (code, output["torn_lines"], len(output["runs"])) == (0, 1, 1)
    assert "1 truncated line ignored" in capsys.readouterr().out
    run_bisect(begun_journal, "record", "pass")
    assert len(run_bisect(begun_journal, "status")[1]["runs"]) == 2


def test_later_edit_of_variables_file_has_no_effect(begun_journal: Path) -> None:
    begun_journal.with_name("v.yaml").write_text("other")
    assert run_bisect(begun_journal, "next")[0] == 0


def test_combination_that_could_not_be_set_up_is_not_proposed_again(begun_journal: Path) -> None:
    _, output = run_bisect(begun_journal, "next")
    changed = list(output["next"]["change"])
    pair = {name: output["next"]["set"][name] for name in [*changed, *output["next"]["set"]][:2]}
    assert run_bisect(begun_journal, "record", "--could-not", "--because", ",".join(pair))[0] == 0
    for _ in range(6):
        _, output = run_bisect(begun_journal, "next")
        if output["ended"]:
            break
        assert any(output["next"]["set"][name] != value for name, value in pair.items())
        run_bisect(begun_journal, "record", "fail")


def test_exhausted_combinations_are_reported(tmp_path: Path, capsys: Capture) -> None:
    rows = {name: {"good": 1, "bad": 2} for name in ("v0", "v1")}
    (tmp_path / "v.yaml").write_text(yaml.safe_dump(make_document(variables=rows)))
    path = tmp_path / "j"
    command.main(["start", str(tmp_path / "v.yaml"), "--journal", str(path)])
    codes = [command.main(["record", "--could-not", "--journal", str(path)]) for _ in range(4)]
    assert codes == [0, 0, 0, 1]
    assert "every combination" in capsys.readouterr().err


def test_suspect_whose_arm_cannot_be_set_up_stays_unconfirmed(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "v.yaml").write_text(yaml.safe_dump(make_document(variables={"v0": {"good": 1, "bad": 2}})))
    command.main(["start", str(tmp_path / "v.yaml"), "--journal", str(tmp_path / "j")])
    assert command.main(["record", "--could-not", "--journal", str(tmp_path / "j")]) == 1
    assert "the suspect cannot be confirmed: a run with only v0 bad" in capsys.readouterr().err


def test_actual_configuration_overrides_proposed_one(begun_journal: Path) -> None:
    run_bisect(begun_journal, "next")
    _, output = run_bisect(begun_journal, "record", "pass", "--with", "v0=good,v1=good")
    assert output["runs"][0]["set"]["v0"] == output["runs"][0]["set"]["v1"] == "good"


def test_run_on_wrong_booted_kernel_is_rejected(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "version").write_text("Linux version 6.12.57")
    row = {"good": "6.12", "bad": "7.0", "kind": "kernel", "seen_in": str(tmp_path / "version")}
    (tmp_path / "v.yaml").write_text(yaml.safe_dump(make_document(variables={"kernel": row})))
    words = ["--journal", str(tmp_path / "j")]
    command.main(["start", str(tmp_path / "v.yaml"), *words])
    kernel = run_bisect(tmp_path / "j", "next")[1]["next"]["set"]["kernel"]
    other = {"6.12": "7.0", "7.0": "6.12"}[kernel]
    (tmp_path / "version").write_text(f"Linux version {other}")
    assert command.main(["record", "fail", *words]) == 2
    assert f"kernel is not {kernel}" in capsys.readouterr().err
    assert command.main(["record", "fail", "--with", f"kernel={other}", *words]) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "other/1"}, "schema is 'other/1'"),
        ({"variables": {}}, "one row per variable"),
        ({"variables": {"a": {"good": 1}}}, "a: expected good and bad"),
        ({"variables": {"a": {"good": 1, "bad": 1}}}, "cannot be the cause"),
        ({"variables": {"a": {"good": 1, "bad": 2, "kind": "moon"}}}, "unknown kind 'moon'"),
        ({"variables": {"a": {"good": 1, "bad": 2, "values": [1, 3]}}}, "distinct values, including"),
        ({"variables": {"a": {"good": 1, "bad": 2, "set": {"3": "x"}}}}, "unknown values: 3"),
        ({"flaky": {"bad_passes": 0.1}}, "exactly bad_passes and good_fails"),
        ({"flaky": {"bad_passes": 0.7, "good_fails": 0}}, "from 0 to 0.49"),
        ({"now": "here"}, "now is 'here'"),
        ({"extra": 1}, "unknown keys: extra"),
        ({"test_minutes": "long"}, "test_minutes is 'long'"),
    ],
)
def test_invalid_row_is_reported_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_problem(make_document(**change), "v.yaml")


def test_built_in_example_is_valid(tmp_path: Path) -> None:
    (tmp_path / "v.yaml").write_text(command.EXAMPLE)
    problem, _ = load_problem(tmp_path / "v.yaml")
    runtime = next(variable for variable in problem.variables if variable.name == "runtime power")
    assert runtime.values == ("on", "auto")
    assert runtime.describe_setting(0).startswith("echo on | sudo tee")


def test_values_are_read_verbatim(tmp_path: Path) -> None:
    """What YAML would read as a number, a truth value or a day."""
    rows = "kernel: {good: 6.10, bad: 6.20}, bar: {good: on, bad: off}, firmware: {good: 2025-06-13, bad: 0x10}"
    (tmp_path / "v.yaml").write_text(f"schema: {SCHEMA}\nvariables: {{{rows}}}\n")
    problem, _ = load_problem(tmp_path / "v.yaml")
    assert [variable.values for variable in problem.variables] == [
        ("6.10", "6.20"),
        ("on", "off"),
        ("2025-06-13", "0x10"),
    ]
    assert command.main(["start", str(tmp_path / "v.yaml"), "--journal", str(tmp_path / "j")]) == 0
    assert command.main(["record", "fail", "--journal", str(tmp_path / "j")]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected one of: start"),
        (["next"], "contains no bisection"),
        (["record"], "record expects pass, fail or unclear"),
        (["--simulate", "--confidence", "20"], "--confidence 20"),
        (["start"], "start needs VARIABLES.yaml"),
        (["start", "absent.yaml"], "no such file"),
        (["next", "--could-not"], "--could-not can only be used with record"),
        (["--simulate", "--cases", "0"], "--cases 0"),
    ],
)
def test_usage_error_prints_one_line(words: list[str], message: str, tmp_path: Path, capsys: Capture) -> None:
    assert command.main([*words, "--journal", str(tmp_path / "j")]) == 2
    assert message in capsys.readouterr().err


def test_running_bisection_is_not_overwritten(begun_journal: Path, capsys: Capture) -> None:
    variables_file = str(begun_journal.with_name("v.yaml"))
    assert command.main(["start", variables_file, "--journal", str(begun_journal)]) == 2
    assert "already contains a bisection" in capsys.readouterr().err
    assert command.main(["start", variables_file, "--journal", str(begun_journal), "--again"]) == 0
    assert len(list(begun_journal.parent.glob("j.*"))) == 1


def test_foreign_file_is_rejected_as_journal(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "j").write_text("not one\n")
    assert command.main(["next", "--journal", str(tmp_path / "j")]) == 2
    assert "not the journal of a bisection" in capsys.readouterr().err


def test_unwritable_journal_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "v.yaml").write_text(yaml.safe_dump(make_document()))
    assert command.main(["start", str(tmp_path / "v.yaml"), "--journal", str(tmp_path / "file" / "j")]) == 2


def test_run_table_is_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTINGS", (SETTINGS[0], UNEXPLAINED[3]))
    assert command.main(["--simulate", "--cases", "5", "--json", str(tmp_path / "r.json")]) in (0, 1)
    report = json.loads((tmp_path / "r.json").read_text())
    assert len(report["results"]) == 2 and report["results"][0]["limit"]["median_runs"] == 6
    assert report["results"][1]["limit"] == {"wrong": WRONG_LIMIT}
    monkeypatch.setattr(speed, "SPEED_SETTINGS", speed.SPEED_SETTINGS[:1])
    assert command.main(["--simulate", "speed", "--cases", "2", "--json", str(tmp_path / "r.json")]) in (0, 1)
    assert json.loads((tmp_path / "r.json").read_text())["results"][0]["limit"]["most_runs"] == 36


def test_journal_is_stored_in_state_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert journal.default_path() == tmp_path / "zinc-rt" / "bisect-env.journal"
