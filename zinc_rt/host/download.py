"""Download files: resumed after an interruption at any byte, checked against a published size and sha256.

A file in progress is NAME.part, a prefix of the file; NAME.part.json records the file that it is a prefix of. The
finished file replaces NAME atomically.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from zinc_rt.host import locks
from zinc_rt.host.errors import CheckFailed, InputError, OutputError
from zinc_rt.host.files import cache_folder
from zinc_rt.host.input_files import make_read_error
from zinc_rt.host.version import __version__

PIECE_BYTES = 1 << 20
FRUITLESS_TRIES = 5  # in a row, without a new byte
TIMEOUT_SECONDS = 60.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to download. `size_bytes` is None and `sha256` is "" if they are not published."""

    name: str
    url: str  # http, https, or a path of this machine
    size_bytes: int | None = None
    sha256: str = ""

    @property
    def local(self) -> bool:
        return urlsplit(self.url).scheme not in ("http", "https")


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A complete file. `resumed_at`: the bytes that an earlier download left. `checked`: whether its sha256 was
    compared with a published one."""

    path: Path
    size_bytes: int
    sha256: str
    state: Literal["present", "downloaded"]
    resumed_at: int = 0
    checked: bool = False


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects; a token is not passed on to another host."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            request.remove_header("Authorization")
        return request


@dataclass(frozen=True, slots=True)
class DownloadClient:
    """Requests with a token. The token is sent only to the host of `token_url`, over https or on this machine."""

    token: str = ""
    token_url: str = ""
    timeout_seconds: float = TIMEOUT_SECONDS
    sleep: Callable[[float], None] = time.sleep
    _opener: urllib.request.OpenerDirector = field(
        default_factory=lambda: urllib.request.build_opener(_Redirects()), repr=False
    )

    def open(self, url: str, headers: Mapping[str, str] | None = None, *, method: str = "GET") -> Any:
        """Send a request and return the response. Raise urllib's errors."""
        request = urllib.request.Request(url, method=method, headers={**(headers or {})})
        request.add_header("User-Agent", f"zinc-rt/{__version__}")
        if self.token and self._may_send_token(url):
            request.add_header("Authorization", f"Bearer {self.token}")
        return self._opener.open(request, timeout=self.timeout_seconds)

    def json(self, url: str) -> Any:
        """Return the JSON at a URL. Raise InputError if it cannot be read."""
        try:
            with self.open(url) as response:
                return json.load(response)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise request_error(url, error) from error

    def described(self, file: RemoteFile) -> RemoteFile:
        """Return the file with the size and the sha256 that its server or its file system reports."""
        if file.local:
            try:
                return RemoteFile(file.name, file.url, Path(file.url).stat().st_size, file.sha256)
            except OSError as error:
                raise make_read_error(file.url, error) from error
        try:
            with self.open(file.url, method="HEAD") as response:
                length, tag = response.headers.get("Content-Length"), response.headers.get("X-Linked-ETag", "")
        except urllib.error.HTTPError as error:
            if error.code in (405, 501):  # a server without HEAD
                return file
            raise request_error(file.url, error) from error
        except (OSError, http.client.HTTPException) as error:
            raise request_error(file.url, error) from error
        size = int(length) if length and length.isdecimal() else file.size_bytes
        sha256 = tag.strip('"') if _SHA256.fullmatch(tag.strip('"')) else ""
        return RemoteFile(file.name, file.url, file.size_bytes or size, file.sha256 or sha256)

    def _may_send_token(self, url: str) -> bool:
        ours, theirs = urlsplit(self.token_url), urlsplit(url)
        safe = theirs.scheme == "https" or theirs.hostname in LOOPBACK
        return safe and (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc)


def request_error(url: str, error: Exception) -> InputError:
    """Return the error for a failed request, with advice by its cause."""
    if isinstance(error, urllib.error.HTTPError):
        advice = {
            401: "the repository needs a token: set HF_TOKEN",
            403: "accept the model's licence on its page, and set HF_TOKEN to a token that may read it",
            404: "check the name, the file and the revision",
            429: "too many requests: try again later, or set HF_TOKEN",
        }.get(error.code, "try again later; what is downloaded so far is kept")
        return InputError(f"{url}: HTTP {error.code} {error.reason}", next=advice)
    reason = getattr(error, "reason", None) or error
    return InputError(
        f"{url}: {reason or type(error).__name__}",
        next="check the address and the network (http_proxy, https_proxy); the same command resumes",
    )


def download(
    file: RemoteFile,
    target: Path,
    client: DownloadClient,
    *,
    magic: bytes = b"",
    advance: Callable[[int], None] = lambda size_bytes: None,
) -> Downloaded:
    """Download to `target`, resuming an earlier download. A complete file with the published size and sha256 is
    kept. `magic`: the bytes that the file must start with. `advance` is called with the bytes that are complete,
    also those of an earlier download.

    Raise InputError for a failed request and for another file at `target`, CheckFailed for a wrong sha256,
    OutputError if the file cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target):
            if target.exists():
                return _present(file, target, advance)
            return _Download(file, target, client, magic, advance).run()
    except OSError as error:
        raise OutputError(
            f"{target}: cannot write: {error.strerror or error}", next="free the disk, or choose a folder with -o"
        ) from error


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    folder = cache_folder() / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(os.fsencode(target.resolve())).hexdigest()}.lock"
    try:
        descriptor = locks.hold_lock(path)
    except BlockingIOError:
        raise InputError(
            f"{target}: {locks.read_holder(path)} is downloading it", next="wait until it ends, or stop it"
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


def _present(file: RemoteFile, target: Path, advance: Callable[[int], None]) -> Downloaded:
    size = target.stat().st_size
    other = "remove it, or choose another folder with -o"
    if file.size_bytes is not None and size != file.size_bytes:
        raise InputError(
            f"{target}: exists with {size} bytes, the published file has {file.size_bytes}", next=other
        )
    sha256 = _sha256(target)
    if file.sha256 and sha256 != file.sha256:
        raise InputError(f"{target}: exists with sha256 {sha256}, the published one is {file.sha256}", next=other)
    advance(size)
    return Downloaded(target, size, sha256, "present", checked=bool(file.sha256))


class _Interrupted(Exception):
    """The transfer ended early; the download may be continued."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(slots=True)
class _Download:
    file: RemoteFile
    target: Path
    client: DownloadClient
    magic: bytes
    advance: Callable[[int], None]
    etag: str = ""
    size_bytes: int | None = None
    complete: int = 0  # bytes that `advance` has counted

    @property
    def part(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part")

    @property
    def record(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part.json")

    def run(self) -> Downloaded:
        self.size_bytes = self.file.size_bytes
        resumed_at = start = self._resumable()
        self._check_space(start)
        tries = 0
        while self.size_bytes is None or start < self.size_bytes:
            finished, cause = False, None
            try:
                finished = self._copy(start)
            except _Interrupted as interruption:
                cause = interruption.cause
            reached = self.part.stat().st_size if self.part.exists() else 0
            tries = 0 if reached > start else tries + 1
            start = reached
            if finished:
                break
            if tries >= FRUITLESS_TRIES:
                cause = cause or ConnectionError("the connection ended before the file did")
                raise request_error(self.file.url, cause) from cause
            if tries:
                self.client.sleep(0.5 * 2 ** (tries - 1))
        return self._finish(resumed_at)

    def _resumable(self) -> int:
        """Return the size of the earlier download, 0 if there is none of this file."""
        try:
            earlier = json.loads(self.record.read_text(encoding="utf-8"))
            size = self.part.stat().st_size
        except (OSError, ValueError):
            self._restart()
            return 0
        same = isinstance(earlier, dict) and all(
            earlier.get(key) == value for key, value in self._identity().items() if value
        )
        if not same or (self.size_bytes is not None and size > self.size_bytes):
            self._restart()
            return 0
        self.etag = str(earlier.get("etag") or "")
        self._count(size)
        return size

    def _identity(self) -> dict[str, Any]:
        """Return the properties that make two files one. A published sha256 is enough, on any mirror."""
        by_content = {"sha256": self.file.sha256, "size_bytes": self.file.size_bytes}
        return by_content if self.file.sha256 else {"url": self.file.url, **by_content}

    def _restart(self) -> None:
        self.part.unlink(missing_ok=True)
        self.record.unlink(missing_ok=True)
        self.etag = ""
        self._count(0)

    def _check_space(self, start: int) -> None:
        free = shutil.disk_usage(self.target.parent).free
        if self.size_bytes is not None and self.size_bytes - start > free:
            raise OutputError(
                f"{self.target}: {self.size_bytes - start} bytes to download, {free} bytes free",
                next="free the disk, or choose a folder with -o",
            )

    def _copy(self, start: int) -> bool:
        """Append the bytes from `start` on. Return whether the file is complete."""
        if self.file.local:
            with Path(self.file.url).open("rb") as source:
                source.seek(start)
                self._append(source, start)
            return True
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
            if self.etag:
                headers["If-Range"] = self.etag
        try:
            response = self.client.open(self.file.url, headers)
        except urllib.error.HTTPError as error:
            if error.code == 416 and start:
                self._restart()  # the server's file is shorter than what is here
                return False
            if error.code < 500 and error.code != 429:
                raise request_error(self.file.url, error) from error
            raise _Interrupted(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise _Interrupted(error) from error
        with response:
            sent = response.headers.get("Content-Length")
            begin = 0
            if response.status == 206:
                match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
                if match is None or int(match[1]) != start:
                    self._restart()
                    return False
                begin = start
                total = int(match[2]) if match[2] != "*" else None
            else:
                total = int(sent) if sent and sent.isdecimal() else None
            if total is not None and self.size_bytes not in (None, total):
                raise InputError(
                    f"{self.file.url}: has {total} bytes, the published size is {self.size_bytes}",
                    next="the file changed while it was downloaded, or a mirror is out of date: pull again",
                )
            self.size_bytes = total if total is not None else self.size_bytes
            if begin == 0:
                self._restart()
            tag = response.headers.get("ETag", "")
            self.etag = "" if tag.startswith("W/") else tag
            self._write_record()
            self._append(response, begin)
        reached = self.part.stat().st_size
        return reached == self.size_bytes if self.size_bytes is not None else True

    def _write_record(self) -> None:
        content = {
            "url": self.file.url,
            "size_bytes": self.size_bytes,
            "sha256": self.file.sha256,
            "etag": self.etag,
        }
        unfinished = self.record.with_name(f"{self.record.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(content), encoding="utf-8")
        unfinished.replace(self.record)

    def _append(self, source: Any, start: int) -> None:
        if not self.record.exists():
            self._write_record()
        with self.part.open("ab") as part:
            at = start
            while piece := _read(source):
                if at == 0 and not piece.startswith(self.magic[: len(piece)]):
                    raise InputError(
                        f"{self.file.url}: starts with {piece[: len(self.magic)]!r}, not with {self.magic!r}",
                        next="pass the address of the file itself, not of a page about it",
                    )
                part.write(piece)
                at += len(piece)
                self._count(at)

    def _count(self, at: int) -> None:
        self.advance(at - self.complete)
        self.complete = at

    def _finish(self, resumed_at: int) -> Downloaded:
        with self.part.open("rb+") as part:
            os.fsync(part.fileno())
        size, sha256 = self.part.stat().st_size, _sha256(self.part)
        if self.file.sha256 and sha256 != self.file.sha256:
            self._restart()
            raise CheckFailed(
                f"{self.file.url}: sha256 is {sha256}, the published one is {self.file.sha256}; removed",
                next="pull again; if it happens again, the mirror or a proxy changes the file",
            )
        self.part.replace(self.target)
        self.record.unlink(missing_ok=True)
        with suppress(OSError):
            folder = os.open(self.target.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        checked = bool(self.file.sha256)
        return Downloaded(self.target, size, sha256, "downloaded", resumed_at, checked)


def _read(source: Any) -> bytes:
    """Return the next bytes as they arrive: read() would lose those before an error."""
    try:
        return bytes(source.read1(PIECE_BYTES))
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(error) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
