"""A bundle is small, listed, readable as text, the same in a folder and in an archive, and safe to open."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard
from plants import SecretPlants, plant_secrets

from zinc_rt.cli.report import Report, Result
from zinc_rt.doctor.bundle import archive
from zinc_rt.doctor.bundle.bounds import MOST_BYTES
from zinc_rt.doctor.bundle.format import MANIFEST, SCHEMA, Bundle, read, write
from zinc_rt.doctor.bundle.make import BundleMaker
from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.host.errors import InputError, OutputError, UsageError, ZincError


def make_maker(**files: str) -> Bundle:
    maker = BundleMaker()
    maker.add_machine(
        MachineCapture(
            {"proc/version": b"Linux version 6.14.0 (x)\n", "kernel.log": b"amdgpu: up\n"},
            {"firmware.txt": "EACCES"},
        )
    )
    result = Result("P20/t1", "probe", "fail", tier="t1", reason="no fence", cause="no EOP buffer")
    maker.add("reports/pm4-test.json", Report("pm4-test", results=[result]).to_json(), "report")
    for name, text in files.items():
        maker.add(f"logs/{name}", text, "log")
    return maker.make_bundle()


@pytest.mark.parametrize("name", ["bundle", "b.tar.gz", "b.tgz", "b.tar.zst"])
def test_folders_and_archives_have_same_content(name: str, tmp_path: Path) -> None:
    bundle = make_maker()
    size_bytes = write(bundle, tmp_path / name)
    second = read(tmp_path / name)
    assert second.id == bundle.id and second.files == bundle.files and 0 < size_bytes < MOST_BYTES
    assert second.capture.files["proc/version"].startswith(b"Linux version 6.14.0")
    assert second.capture.unreadable == {"firmware.txt": "EACCES"}


def test_manifest_lists_every_file_and_identifies_the_bundle(tmp_path: Path) -> None:
    write(make_maker(), tmp_path / "b")
    manifest = json.loads((tmp_path / "b" / MANIFEST).read_text())
    assert manifest["schema"] == SCHEMA and manifest["combination"]["kernel"] == "6.14.0"
    listed = {row["path"]: row["bytes"] for row in manifest["files"]}
    there = {
        p.relative_to(tmp_path / "b").as_posix(): p.stat().st_size
        for p in (tmp_path / "b").rglob("*")
        if p.is_file()
    }
    assert listed == {name: size for name, size in there.items() if name != MANIFEST}
    text = (tmp_path / "b" / "README.txt").read_text()
    assert "FAIL    P20/t1: no fence" in text and "cause: no EOP buffer" in text and "kernel    6.14.0" in text


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ({"kernel": "6.9.0"}, "kernel 6.9.0"),
        ({"kernel": "6.14.0", "simulated": True}, "of a simulated device"),
        ({"firmware": {"MES": 0x70}}, "MES firmware 0x70"),
    ],
)
def test_report_of_another_setup_is_kept_separate(device: dict[str, Any], reason: str) -> None:
    firmware = b"MES feature version: 1, firmware version: 0x00000084\n"
    maker = BundleMaker()
    maker.add_machine(MachineCapture({"proc/version": b"Linux version 6.14.0 (x)\n", "firmware.txt": firmware}))
    passed = [Result("P20/t1", "probe", "pass", tier="t1")]
    maker.add("reports/old.json", Report("pm4-test", device=device, results=passed).to_json(), "report")
    same = {"kernel": "6.14.0", "firmware": {"MES": 0x84, "PFP": 7}}
    maker.add("reports/new.json", Report("pm4-test", device=same, results=passed).to_json(), "report")
    bundle = maker.make_bundle()
    assert list(bundle.reports) == ["reports/new.json"] and "logs/of-another-setup-old.json" in bundle.files
    assert bundle.manifest["notes"] == [f"old.json belongs to another setup ({reason}): moved to logs/"]
    assert bundle.combination.firmware == {"mes": "0x84", "pfp": "0x7"}


def test_archive_is_anonymous_and_reproducible(tmp_path: Path) -> None:
    bundle = make_maker()
    for name in ("a.tar.gz", "b.tar.gz"):
        write(bundle, tmp_path / name)
    first, second = gzip.decompress((tmp_path / "a.tar.gz").read_bytes()), (tmp_path / "a.tar.gz").read_bytes()
    assert second[4:8] == bytes(4), "no time in gzip's header"
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        assert {(m.uname, m.gname, m.uid, m.mtime) for m in tar} == {("", "", 0, 0)}
        assert {m.name.partition("/")[0] for m in tar} == {"a"}, "unpacked, it litters nothing"


def test_secrets_are_removed_from_output(tmp_path: Path) -> None:
    plants = SecretPlants(seed=5)
    maker = BundleMaker()
    for name, content in plant_secrets(plants, 5).items():
        maker.add(name, content, "log")
    write(maker.make_bundle(), tmp_path / "b")
    everything = b"".join(path.read_bytes() for path in (tmp_path / "b").rglob("*") if path.is_file())
    names = " ".join(path.as_posix() for path in (tmp_path / "b").rglob("*"))
    secrets = [item for kind in plants.said.values() for item in kind]
    assert len(secrets) > 300
    assert not [secret for secret in secrets if secret.encode() in everything or secret in names]


@pytest.mark.rest
def test_oversized_bundle_keeps_newest_data_and_lists_truncations(
    tmp_path: Path,
) -> None:
    maker = BundleMaker(most_bytes=450_000)
    lines = "".join(f"[{n:9}.000000] amdgpu 0000:03:00.0: line {n}\n" for n in range(60_000))
    maker.add_machine(MachineCapture({"kernel.log": lines.encode()}))
    for n in range(8):
        maker.add(f"logs/big{n}.log", lines[: 1_000_000 + n], "log")
        maker.add(f"hangs/h{n}/ring.bin", os.urandom(1 << 17) + b"\0", "hang")
        rows = [Result(f"P{i}/t1", "probe", "pass", reason="x" * 300) for i in range(900)]
        maker.add(
            f"reports/r{n}.json",
            Report("pm4-test", results=rows, details={"log": lines[:400_000]}).to_json(),
            "report",
        )
    bundle = maker.make_bundle()
    assert 200_000 < write(bundle, tmp_path / "b") < 450_000
    log = bundle.files["machine/kernel.log"].decode()
    assert log.endswith("line 59999\n") and "older bytes are cut]" in log.splitlines()[0]
    cut = {row["path"]: row for row in bundle.manifest["cut"]}
    assert cut["machine/kernel.log"]["had_bytes"] == len(lines) and "newest" in cut["machine/kernel.log"]["why"]
    assert "cut       machine/kernel.log" in bundle.files["README.txt"].decode()
    for name, report in bundle.reports.items():
        assert report["results"][0]["id"] == "P0/t1", f"{name} is still a report"
    assert read(tmp_path / "b").id == bundle.id


@pytest.mark.rest
def test_many_tiny_files_are_bounded_too() -> None:
    maker = BundleMaker(most_bytes=MOST_BYTES)
    for n in range(2000):
        maker.add(f"hangs/h{n}/report.txt", "word " * 5, "hang")
    bundle = maker.make_bundle()
    assert sum(map(len, bundle.files.values())) < MOST_BYTES and len(bundle.files) <= 1502
    assert sum(row["why"] == "left out" for row in bundle.manifest["cut"]) >= 500


def test_size_limit_is_2_mb_for_every_producer() -> None:
    assert MOST_BYTES == BundleMaker().most_bytes == 2_000_000


def test_older_bundle_is_replaced_and_foreign_files_are_untouched(tmp_path: Path) -> None:
    write(make_maker(old="x"), tmp_path / "b")
    write(make_maker(new="y"), tmp_path / "b")
    assert not (tmp_path / "b/logs/old").exists() and (tmp_path / "b/logs/new").exists() and read(tmp_path / "b")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat").write_text("meow")
    with pytest.raises(OutputError, match="contains other files"):
        write(make_maker(), tmp_path / "photos")
    assert (tmp_path / "photos" / "cat").read_text() == "meow"


# --- what a stranger may send ---


def write_tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def regular_member(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def link_member(name: str, to: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, to
    return member, b""


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "leads out": (lambda: write_tar(regular_member("../../etc/passwd")), "would lie outside"),
    "absolute": (lambda: write_tar(regular_member("/etc/passwd")), "would lie outside"),
    "windows": (lambda: write_tar(regular_member("..\\x")), "would lie outside"),
    "symlink": (lambda: write_tar(link_member("b/x", "/etc/passwd", tarfile.SYMTYPE)), "not a regular file"),
    "hard link": (lambda: write_tar(link_member("b/x", "/etc/passwd", tarfile.LNKTYPE)), "not a regular file"),
    "device": (lambda: write_tar(link_member("b/x", "", tarfile.CHRTYPE)), "not a regular file"),
    "pipe": (lambda: write_tar(link_member("b/x", "", tarfile.FIFOTYPE)), "not a regular file"),
    "twice": (lambda: write_tar(regular_member("b/x"), regular_member("b/x", b"y")), "there twice"),
    "control": (lambda: write_tar(regular_member("b/x\x1b[2J")), "would lie outside"),
    "crowd": (lambda: write_tar(*(regular_member(f"b/{n}", b"") for n in range(4001))), "more than 4000 files"),
    "bomb": (lambda: bytes(archive.MOST_BYTES + 1), "unpacks to more than"),
    "no manifest": (lambda: write_tar(regular_member("b/x")), "bundle.json is missing"),
    "no tar": (lambda: b"hello" * 1000, "not a bundle"),
    "empty": (lambda: b"", "not a bundle"),
}


@pytest.mark.rest(keep=9)
@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.zst"])
@pytest.mark.parametrize("case", HOSTILE)
def test_malicious_archive_is_rejected_with_one_line_error(case: str, suffix: str, tmp_path: Path) -> None:
    content, output = HOSTILE[case]
    packed = gzip.compress(content(), 1) if suffix.endswith("gz") else zstandard.compress(content())
    path = tmp_path / f"b{suffix}"
    path.write_bytes(packed)
    with pytest.raises(InputError, match=output) as error:
        read(path)
    assert str(error.value).partition("\n  next: ")[0].count("\n") == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name], "nothing was unpacked"


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.zst"])
def test_truncated_or_corrupted_archive_is_rejected_at_any_offset(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"b{suffix}"
    write(make_maker(), path)
    data = path.read_bytes()
    for end in range(0, len(data) - 9, max(1, len(data) // 40)):
        path.write_bytes(data[:end])
        with pytest.raises(InputError):
            read(path)
    for index in range(12, len(data) - 9, max(1, len(data) // 40)):
        path.write_bytes(data[:index] + bytes([data[index] ^ 0x55]) + data[index + 1 :])
        with suppress(InputError):
            assert read(path).id == create_bundle(data, tmp_path, suffix), "a change was taken for the original"


def create_bundle(complete: bytes, folder: Path, suffix: str) -> str:
    path = folder / f"whole{suffix}"
    path.write_bytes(complete)
    return read(path).id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(schema="zinc-rt-bundle/2"), "this build reads zinc-rt-bundle/1"),
        (lambda m: m.pop("files"), "no valid 'files'"),
        (lambda m: m["files"].pop(), "not listed"),
        (lambda m: m["files"].append({"path": "../x", "sha256": ""}), "would lie outside"),
        (lambda m: m["files"].append({"path": "logs/x", "sha256": ""}), "listed but missing"),
        (lambda m: m["files"].append(7), "lists 7"),
        (lambda m: m["files"][0].update(sha256="0" * 64), "does not match bundle.json"),
        (lambda m: m["combination"].update(chip={"a": 1}), "no valid 'chip'"),
        (lambda m: m["combination"].update(firmware=[]), "no valid 'firmware'"),
    ],
)
def test_manifest_that_does_not_match_its_files_is_rejected(
    change: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    bundle = make_maker()
    manifest = json.loads(json.dumps(bundle.manifest))
    change(manifest)
    path = tmp_path / "b.tar.gz"
    archive.write_archive(path, {MANIFEST: json.dumps(manifest).encode(), **bundle.files})
    with pytest.raises(InputError, match=message):
        read(path)


def test_folder_links_do_not_expose_foreign_files(tmp_path: Path) -> None:
    write(make_maker(x="y"), tmp_path / "b")
    (tmp_path / "secret").write_text("y")
    (tmp_path / "b/logs/x").unlink()
    (tmp_path / "b/logs/x").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="is a link"):
        read(tmp_path / "b")


@pytest.mark.parametrize("name", ["missing.tar.gz", "missing", "file.txt"])
def test_non_bundle_is_rejected(name: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises((InputError, UsageError)) as error:
        read(tmp_path / name)
    assert isinstance(error.value, ZincError) and error.value.exit_code == 2
