"""zinc-rt accept finds every planted defect of a simulated board, and nothing on a healthy one."""

from __future__ import annotations

import hashlib
import html
import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.cli.report import Report, Result
from zinc_rt.host.devices import load_devices
from zinc_rt.host.errors import InputError
from zinc_rt.probes.accept import page
from zinc_rt.probes.accept.command import main
from zinc_rt.probes.accept.run import run_acceptance
from zinc_rt.probes.accept.sensors import SensorSample, judge_samples
from zinc_rt.probes.accept.work import ALL_ONES, expected_arithmetic, expected_registers
from zinc_rt.probes.device import parse_device
from zinc_rt.probes.kit import shaders
from zinc_rt.sim.inject import INJECTIONS

DEFECTS = {  # what is planted → the check that must fail; no other may
    "lane-value": "arithmetic",
    "register-stuck": "registers",
    "vram-stuck-bit": "vram",
    "vram-bit-flip": "vram",
    "short-vram": "memory",
    "missing-cus": "compute-units",
    "link-narrow": "link-width",
    "link-drop": "link-under-load",
    "clock-cap": "clock-under-load",
    "power-cap": "power-limit",
    "overheats": "temperature",
    "ecc-corrected": "memory-corrected",
    "ecc-uncorrected": "memory-uncorrected",
    "pcie-errors": "link-corrected",
    "spontaneous-reset": "resets",
    "firmware-old": "firmware",
}
PLACED = ("lane-value", "register-stuck", "vram-stuck-bit", "vram-bit-flip")  # the seed says where
CASES = [f"{name}@{seed}" if name in PLACED else name for name in DEFECTS for seed in (1, 2, 3)]
CASES = list(dict.fromkeys(CASES))
ROW = load_devices()["R9700"]
LINK = (32.0, 16)


def run_accept(*inject: str, seconds: float = 0.01) -> list[Result]:
    name = "-".join(inject).replace("@", "-") or "healthy"
    spec = replace(parse_device("sim", inject), shared=f"test-accept-{name}-{random.randrange(1 << 30):x}")
    device = {"arch": "gfx1201", "kernel": "7.0.4"}
    return list(run_acceptance(spec, "t1", seconds, device, model=False, say=lambda text: None))


def failed_ids(results: list[Result]) -> list[str]:
    return [result.id for result in results if result.status == "fail"]


def test_table_names_every_defect_that_a_simulated_board_can_have() -> None:
    assert {row.name for row in INJECTIONS if row.probe == "accept"} | {"firmware-old"} == set(DEFECTS)


@pytest.mark.rest(keep=2)
@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("defect", CASES)
def test_planted_defect_is_the_only_one_blamed(defect: str) -> None:
    results = run_accept(defect)
    assert failed_ids(results) == [DEFECTS[defect.partition("@")[0]]]
    bad = next(result for result in results if result.status == "fail")
    assert bad.reason and (bad.cause or bad.advice)


def test_healthy_board_passes_every_check() -> None:
    results = run_accept()
    assert [(result.id, result.status) for result in results if result.status != "pass"] == []
    vram = next(result for result in results if result.id == "vram")
    assert vram.measure["rounds"] >= 1 and vram.measure["gib_checked"] > 0


@pytest.mark.rest
def test_hang_ends_the_work_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaders, "COMPILE_SECONDS", 3.0)  # how long a fence of a simulated device may take
    results = run_accept("fence-never-written")
    assert "hang" in failed_ids(results)


def test_unknown_board_is_skipped_and_names_the_file_to_extend() -> None:
    spec = replace(parse_device("sim:rx9060xt", []), shared=f"test-accept-row-{random.randrange(1 << 30):x}")
    results = list(run_acceptance(spec, "t1", 0.3, {"arch": "gfx1200"}, model=False, say=lambda text: None))
    assert results[0].status == "skip" and "devices.yaml" in results[0].advice


def test_expected_sum_matches_exact_arithmetic() -> None:
    """Every result is rounded from an exact fraction, for a random part of the values."""
    for first in (0, 0x3F70, 0x7F40, 0x8000, 0xBF00):
        total = 0
        for high in range(first, first + 64):
            if high & 0x7F80 == 0x7F80:
                continue
            x = np.array([high << 16], np.uint32).view(np.float32)[0]
            exact = Fraction(float(x))
            for value in (exact, exact * exact + exact, exact + Fraction(1, 2)):
                negative_zero = value == 0 and high == 0x8000 and value is exact
                total = (total * 31 + (0x80000000 if negative_zero else round_to_f32_bits(value))) & ALL_ONES
            total = (total * 31 + ((high << 16) * 0x9E3779B1 & ALL_ONES)) & ALL_ONES
        assert expected_arithmetic(first, first + 64) == total


def round_to_f32_bits(value: Fraction) -> int:
    """Round a fraction to the nearest float32, ties to even, in integers."""
    sign, size = (0x80000000 if value < 0 else 0), abs(value)
    if size == 0:
        return 0
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, -126)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while exponent > -126 and size < Fraction(2) ** exponent:
        exponent -= 1
    mantissa = round(size / Fraction(2) ** (exponent - 23))
    if mantissa >= 1 << 24:
        mantissa, exponent = mantissa >> 1, exponent + 1
    if exponent > 127:
        return sign | 0x7F800000
    return sign | (mantissa if mantissa < 1 << 23 else (exponent + 127) << 23 | mantissa & 0x7FFFFF)


@pytest.mark.parametrize("mask", [0, ALL_ONES])
def test_expected_value_is_the_xor_of_every_register(mask: int) -> None:
    for item in (0, 5, 300):
        total = 0
        for register in range(4, 256):
            total = (31 * total + ((item + register * 0x01000193 & ALL_ONES) ^ mask)) & ALL_ONES
        assert int(expected_registers(301, mask)[item]) == total


def hour_samples(random: random.Random, **change: object) -> list[SensorSample]:
    """Samples of one hour of load, one per minute: noise, a link glitch, sometimes a corrected link error."""
    glitch, corrected, samples = random.randrange(8, 55), 0, []
    for minute in range(60):
        corrected += random.random() < 0.02
        warm = 1 - 2 ** (-minute / 4)
        healthy = SensorSample(
            60.0 * minute,
            junction_c=45 + 45 * warm + random.gauss(0, 2),
            clock_mhz=ROW.clock_mhz * random.uniform(0.8, 1.02) if minute else 500.0,
            power_w=290 + random.gauss(0, 5),
            link_gts=2.5 if minute == glitch else 32.0,
            corrected=0,
            uncorrected=0,
            link_corrected=17 + corrected,
            link_fatal=0,
            resets=0,
        )
        changes = {name: value(minute) if callable(value) else value for name, value in change.items()}
        samples.append(replace(healthy, **changes))  # type: ignore[arg-type]
    return samples


def test_healthy_hours_have_no_suspects() -> None:
    dice = random.Random(33)
    wrong = [
        row.id for _ in range(1000) for row in judge_samples(hour_samples(dice), ROW, LINK) if row.status != "pass"
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("temperature", {"junction_c": lambda minute: 60 + minute}),
        ("temperature", {"junction_c": lambda minute: 112 if minute > 50 else 85}),
        ("clock-under-load", {"clock_mhz": lambda minute: 2900 - 50 * minute}),
        ("clock-under-load", {"clock_mhz": 1200.0}),
        ("link-under-load", {"link_gts": lambda minute: 16.0 if minute > 30 else 32.0}),
        ("link-under-load", {"link_gts": 2.5}),
        ("memory-corrected", {"corrected": lambda minute: int(minute > 58)}),
        ("memory-uncorrected", {"uncorrected": lambda minute: int(minute > 40)}),
        ("link-corrected", {"link_corrected": lambda minute: minute // 4}),
        ("link-fatal", {"link_fatal": lambda minute: int(minute > 20)}),
        ("resets", {"resets": lambda minute: int(minute > 30)}),
    ],
)
def test_faulty_hour_is_found_only_by_its_rule(check: str, change: dict[str, object]) -> None:
    for seed in range(20):
        rows = judge_samples(hour_samples(random.Random(seed), **change), ROW, LINK)
        assert [row.id for row in rows if row.status == "fail"] == [check]


def test_unknown_sensors_are_skipped_and_do_not_pass() -> None:
    rows = judge_samples([SensorSample(float(second)) for second in range(10)], ROW, None)
    assert {row.status for row in rows} == {"skip"} and len(rows) == 8


def make_report() -> Report:
    return Report(
        "accept", device={"name": "<board>", "simulated": True}, results=[Result("vram", "accept", "pass")]
    )


def test_page_has_the_report_and_its_digest() -> None:
    text = page.render_page(make_report())
    body = html.unescape(re.search(r'<pre id="report">(.*?)</pre>', text, re.S)[1])  # type: ignore[index]
    assert hashlib.sha256(body.encode()).hexdigest() in text and json.loads(body)["command"] == "accept"
    assert "Not signed" in text and "&lt;board&gt;" in text and "SIMULATED" in text


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_openssh_accepts_the_signature_until_the_report_changes(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    text = page.render_page(make_report(), key)
    parts = {name: html.unescape(match[1]) for name in ("report", "signature")
             if (match := re.search(rf'<pre id="{name}">(.*?)</pre>', text, re.S))}  # fmt: skip
    signature = tmp_path / "report.json.sig"
    signature.write_text(parts["signature"])
    check = ["ssh-keygen", "-Y", "check-novalidate", "-n", page.NAMESPACE, "-s", str(signature)]
    for body, good in ((parts["report"], True), (parts["report"].replace("pass", "fail"), False)):
        ended = subprocess.run(check, input=body.encode(), check=False, capture_output=True)
        assert (ended.returncode == 0) is good
    with pytest.raises(InputError, match="cannot sign"):
        page.sign_text("text", signature)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "1"], "--budget 1: expected a time such as 60s"),
        (["--budget", "0s"], "--budget 0s: expected"),
        (["--key", "k"], "--key requires --page"),
        (["--device", "sim", "--page", "a.html", "--key", "missing"], "missing: no such file"),
        (["--inject", "lane-value"], "supported only by a simulated device"),
        (["--device", "sim", "--inject", "lane"], "unknown injection 'lane'"),
    ],
)
def test_usage_error_prints_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.rest
def test_command_reports_shortcuts_and_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--device",
        "sim",
        "--budget",
        "0.1s",
        "--no-model",
        "--page",
        str(tmp_path / "a.html"),
        "--json",
        "-",
    ]
    assert main(words) == 0
    streams = capsys.readouterr()
    body = json.loads(streams.out)
    assert "0.1 s of work instead of one hour" in body["shortcuts"] and body["verdict"]["status"] == "PASS"
    assert "Accepted" in (tmp_path / "a.html").read_text() and "shortcut  no model was replayed" in streams.err
