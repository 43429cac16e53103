"""Ctrl-C between a request and its answer: nothing that the device gave is lost, and no answer goes astray."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from zinc_rt.sim.serve import wire
from zinc_rt.sim.serve.client import SimClient

FILE = "/sys/class/kfd/kfd/topology/nodes/1/gpu_id"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimClient]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    client = SimClient(name="interrupted")
    yield client
    client.close_all()
    signal.signal(signal.SIGINT, before)


def interrupt_next_answer(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Wait for the next answer while that many Ctrl-C arrive."""
    real = wire.receive

    def receive_interrupted(*arguments: object) -> wire.WireMessage:
        monkeypatch.setattr(wire, "receive", real)
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(wire, "receive", receive_interrupted)


def test_reply_is_read_before_interrupt_is_raised_at_next_request(
    client: SimClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = client.read_file(FILE)
    interrupt_next_answer(monkeypatch, times=1)
    assert client.read_file(FILE) == want
    with pytest.raises(KeyboardInterrupt):
        client.list_dir("/dev/dri")
    assert client.read_file(FILE) == want


@pytest.mark.rest
def test_second_interrupt_is_immediate_and_discards_only_its_reply(
    client: SimClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = client.read_file(FILE)
    fd = client.open("/dev/kfd", 2)
    interrupt_next_answer(monkeypatch, times=2)
    with pytest.raises(KeyboardInterrupt):
        client.list_dir("/dev/dri")
    assert client.read_file(FILE) == want
    client.close(fd)  # it is still the same client to the device


def test_ignored_interrupt_stays_ignored(client: SimClient, monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupt_next_answer(monkeypatch, times=3)
    want = client.read_file(FILE)
    assert client.read_file(FILE) == want
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
