"""A download is complete and right, or resumable: after a kill at any byte, cut connections and changed files."""

from __future__ import annotations

import hashlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from host.file_server import Hub, serving

from zinc_rt.host import download as module
from zinc_rt.host.download import DownloadClient, RemoteFile, download
from zinc_rt.host.errors import CheckFailed, InputError

CONTENT = random.Random(42).randbytes(300_007)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
KILLS = 50


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "PIECE_BYTES", 4099)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub({"/a.gguf": CONTENT})) as hub:
        yield hub


def client(**options: object) -> DownloadClient:
    return DownloadClient(sleep=lambda seconds: None, **options)  # type: ignore[arg-type]


def remote(hub: Hub, **known: object) -> RemoteFile:
    return RemoteFile("a.gguf", f"{hub.url}/a.gguf", **known)  # type: ignore[arg-type]


def killed_at(file: RemoteFile, target: Path, byte: int) -> None:
    """Download in a child process that SIGKILL ends once `byte` bytes have arrived."""
    arrived = 0

    def advance(size_bytes: int) -> None:
        nonlocal arrived
        arrived += size_bytes
        if arrived >= byte:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            download(file, target, client(), advance=advance)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("published", [True, False], ids=["with sha256", "without sha256"])
def test_download_killed_at_random_bytes_resumes(hub: Hub, tmp_path: Path, published: bool) -> None:
    pick = random.Random(published)
    file = remote(hub, sha256=SHA256, size_bytes=len(CONTENT)) if published else remote(hub)
    target, before = tmp_path / "a.gguf", 0
    places = sorted(pick.sample(range(1, len(CONTENT)), KILLS // 2))
    for byte in places:
        killed_at(file, target, byte)
        assert not target.exists()
        part = (tmp_path / "a.gguf.part").read_bytes()
        assert CONTENT.startswith(part) and len(part) >= before
        before = len(part)
    assert before > len(CONTENT) // 2
    result = download(file, target, client())
    assert result.resumed_at == before and result.checked is published
    assert target.read_bytes() == CONTENT
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.gguf", "cache"]


def test_cut_connections_are_continued(hub: Hub, tmp_path: Path) -> None:
    hub.cuts = [1, 50_000, 0, 0, 3]
    assert download(remote(hub), tmp_path / "a.gguf", client()).sha256 == SHA256
    starts = [int(asked[6:-1] or 0) if asked else 0 for _, _, asked in hub.requests]
    assert starts == [0, 1, 50_001, 50_001, 50_001, 50_004]


def test_connection_without_progress_is_given_up_and_kept(hub: Hub, tmp_path: Path) -> None:
    hub.cuts = [100_000, *[0] * 9]
    with pytest.raises(InputError, match="the connection ended before the file did"):
        download(remote(hub), tmp_path / "a.gguf", client())
    assert (tmp_path / "a.gguf.part").read_bytes() == CONTENT[:100_000]


def test_server_without_ranges_starts_again(hub: Hub, tmp_path: Path) -> None:
    hub.ranges, hub.cuts = False, [100_000]
    assert download(remote(hub), tmp_path / "a.gguf", client()).sha256 == SHA256


def test_file_that_changed_on_the_server_starts_again(hub: Hub, tmp_path: Path) -> None:
    hub.cuts = [100_000, *[0] * 9]
    with pytest.raises(InputError):
        download(remote(hub), tmp_path / "a.gguf", client())
    hub.cuts, hub.files["/a.gguf"] = [], CONTENT[::-1]
    assert download(remote(hub), tmp_path / "a.gguf", client()).path.read_bytes() == CONTENT[::-1]


def test_published_sha256_resumes_on_a_mirror(hub: Hub, tmp_path: Path) -> None:
    hub.cuts = [100_000, *[0] * 9]
    file = remote(hub, sha256=SHA256, size_bytes=len(CONTENT))
    with pytest.raises(InputError):
        download(file, tmp_path / "a.gguf", client())
    with serving(Hub({"/mirror/a.gguf": CONTENT})) as mirror:
        other = RemoteFile("a.gguf", f"{mirror.url}/mirror/a.gguf", len(CONTENT), SHA256)
        hub_tag_is_unknown_here = download(other, tmp_path / "a.gguf", client())
    assert hub_tag_is_unknown_here.sha256 == SHA256


def test_wrong_sha256_is_removed(hub: Hub, tmp_path: Path) -> None:
    hub.files["/a.gguf"] = CONTENT[:-1] + b"x"
    with pytest.raises(CheckFailed, match="the published one is"):
        download(remote(hub, sha256=SHA256), tmp_path / "a.gguf", client())
    assert not list(tmp_path.glob("a.gguf*"))


def test_size_other_than_published_is_rejected(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the published size is 5"):
        download(remote(hub, size_bytes=5), tmp_path / "a.gguf", client())


def test_page_instead_of_a_file_is_rejected(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not with b'GGUF'"):
        download(remote(hub), tmp_path / "a.gguf", client(), magic=b"GGUF")


def test_complete_file_is_kept_and_another_is_named(hub: Hub, tmp_path: Path) -> None:
    target = tmp_path / "a.gguf"
    target.write_bytes(CONTENT)
    assert download(remote(hub, sha256=SHA256), target, client()).state == "present"
    assert not hub.requests
    target.write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(InputError, match="exists with sha256"):
        download(remote(hub, sha256=SHA256), target, client())
    assert target.read_bytes()[-1:] == b"x"


def test_token_is_sent_to_the_hub_only(hub: Hub, tmp_path: Path) -> None:
    with serving(Hub({"/a.gguf": CONTENT})) as store:
        hub.token, hub.redirect = "secret", store.url
        with pytest.raises(InputError, match="set HF_TOKEN"):
            download(remote(hub), tmp_path / "a.gguf", client())
        download(remote(hub), tmp_path / "a.gguf", client(token="secret", token_url=hub.url))
        assert store.tokens == [""]
    assert hub.tokens == ["", "Bearer secret"]


def test_second_download_of_a_file_is_refused(hub: Hub, tmp_path: Path) -> None:
    def again(size_bytes: int) -> None:
        with pytest.raises(InputError, match="is downloading it"):
            download(remote(hub), tmp_path / "a.gguf", client())

    download(remote(hub), tmp_path / "a.gguf", client(), advance=again)


def test_missing_file_and_unreachable_server_have_advice(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="HTTP 404"):
        download(RemoteFile("b", f"{hub.url}/b"), tmp_path / "b", client())
    with pytest.raises(InputError, match="the same command resumes"):
        download(RemoteFile("b", "http://127.0.0.1:9/b"), tmp_path / "b", client())
