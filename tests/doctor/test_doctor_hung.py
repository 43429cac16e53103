"""`doctor --hung`: silent hangs of the simulated device are named, or the measurement that decides is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sick_machines as corpus

from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import PacketList
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.diagnose import Diagnosis, diagnose
from zinc_rt.doctor.show import format_diagnosis
from zinc_rt.exec import Stream
from zinc_rt.pm4.packets import WaitRegMem, WriteData
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.interfaces import QueueState

SETTLE_SECONDS = 2.0
CARD = "sys/class/drm/card1/device"
DEBUG = "sys/kernel/debug"


@dataclass
class Machine:
    """A healthy machine with a simulated GPU, and the two samples that Linux would show."""

    folder: Path
    inject: tuple[str, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)
    tasks: str = "PID STAT COMMAND WCHAN\n"
    busy: int = 0
    rings: dict[str, tuple[int, int]] = field(default_factory=lambda: {"gfx_0.0.0": (7, 7), "mes_3.0.0": (9, 9)})
    unreadable: dict[str, str] = field(default_factory=dict)
    gone: bool = False
    log: str = ""
    interrupts: int = 81_000

    def __post_init__(self) -> None:
        self.driver = SimDriver(inject=self.inject, time_scale=0.01)
        options = AmdOptions(hang_folder=self.folder, ring_bytes=4096, timeout_seconds=1.0)
        self.backend = open_t1(self.driver, options)
        self.gpu = self.driver.machine.gpus[0]
        self.stream = Stream("main")
        self.word = self.backend.alloc(4096, "host_visible", "word")
        deliver = self.gpu.interrupt

        def count_interrupt(queue: object, context_id: int) -> None:
            if not self.gpu.injector.on("no-interrupt"):
                self.interrupts += 1
            deliver(queue, context_id)  # type: ignore[arg-type]

        self.gpu.interrupt = count_interrupt  # type: ignore[method-assign]

    def submit(self, *packets: object, wait: bool = False) -> None:
        fence = self.backend.submit(self.backend.build(PacketList(packets, "work"), {}), self.stream)  # type: ignore[arg-type]
        if wait:
            fence.wait(SETTLE_SECONDS)

    def write(self, *, wait: bool = False) -> None:
        self.submit(WriteData(self.word.gpu_va, (1,)), wait=wait)

    def wait_until_idle(self, ready: Callable[[], bool] = lambda: False) -> None:
        """Wait until the queues stop advancing or `ready` returns true."""
        deadline, before = time.monotonic() + SETTLE_SECONDS, None
        while time.monotonic() < deadline and not ready():
            now = [entry.queue.rptr for entry in self.gpu.on_hardware]
            if now == before:
                break
            before = now
            time.sleep(0.05)

    def record_sample(self, prefix: str) -> None:
        """What debugfs and /proc say now."""
        queues, created = [], 0
        for index, entry in enumerate(self.gpu.on_hardware):
            queue, created = entry.queue, created + 1
            size_dw = queue.ring_size_bytes // 4
            words = [0] * 56
            words[2] = int(queue.state in (QueueState.ACTIVE, QueueState.HUNG))
            words[10], words[54] = queue.rptr % size_dw, queue.doorbell & 0xFFFFFFFF
            words[17] = size_dw.bit_length() - 2
            words = [0xFFFFFFFF] * 56 if self.gone or self.gpu.gone else words
            rows = [
                f"    {0xC8A4 + 32 * row:08x}: " + " ".join(f"{w:08x}" for w in words[8 * row : 8 * row + 8])
                for row in range(7)
            ]
            queues.append(f" Inst 0,  CP Pipe 0, Queue {index}\n" + "\n".join(rows) + "\n")
        rings = "".join(
            f"--- ring {index} ({name}) ---\nLast signaled fence          0x{result:08x}\n"
            f"Last emitted                 0x{sent:08x}\n"
            for index, (name, (result, sent)) in enumerate(self.rings.items())
        )
        texts = {
            f"{DEBUG}/kfd/hqds": "Node 1, gpu_id 1267:\n" + "".join(queues),
            f"{DEBUG}/kfd/mqds": "Node 1, gpu_id 1267:\n"
            + "  Compute queue on device 1267\n    00000000: 00000000\n" * created,
            f"{DEBUG}/dri/1/amdgpu_fence_info": rings,
            f"{DEBUG}/dri/1/amdgpu_mes_event_log": "00000000: 00000001 00000002\n",
            "proc/interrupts": f"      CPU0\n 120: {self.interrupts}  IR-PCI-MSIX-0000:03:00.0 0-edge  amdgpu\n",
            f"{CARD}/gpu_busy_percent": f"{self.busy}\n",
        }
        self.files |= {prefix + name: output.encode() for name, output in texts.items()}

    def capture_hang(self, between: Callable[[], None] = lambda: None) -> Diagnosis:
        self.wait_until_idle()
        self.record_sample("")
        between()
        self.wait_until_idle()
        self.record_sample("later/")
        base = dict(corpus.load_base("r9700-ubuntu").files)
        base["kernel.log"] += (self.log + "".join(f"{line}\n" for line in self.driver.machine.dmesg)).encode()
        files = base | {"tasks.txt": self.tasks.encode(), "users.txt": b"4711 python3 /dev/kfd\n"} | self.files
        return diagnose(MachineCapture(files, self.unreadable), hung=True)


@pytest.fixture
def make_machine(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    machines: list[Machine] = []

    def create_machine(*inject: str, **more: object) -> Machine:
        machines.append(Machine(tmp_path, inject, **more))  # type: ignore[arg-type]
        return machines[-1]

    yield create_machine
    for item in machines:
        item.driver.close_all()


def hang_by_lost_doorbell(make: Callable[..., Machine]) -> Diagnosis:
    machine = make()
    machine.write(wait=True)
    machine.gpu.injector.add("lost-doorbell")
    machine.write()
    return machine.capture_hang()


def hang_by_unwritten_fence(make: Callable[..., Machine]) -> Diagnosis:
    machine = make("fence-never-written")
    machine.write()
    return machine.capture_hang()


def hang_by_lost_interrupts(make: Callable[..., Machine]) -> Diagnosis:
    machine = make("no-interrupt")

    def load_ring() -> None:
        machine.write(wait=True)
        machine.rings["gfx_0.0.0"] = (9, 9)

    return machine.capture_hang(load_ring)


def hang_by_waiting_packet(make: Callable[..., Machine]) -> Diagnosis:
    machine = make()
    machine.submit(WaitRegMem(machine.word.gpu_va, 42))
    return machine.capture_hang()


def hang_by_endless_kernel(make: Callable[..., Machine]) -> Diagnosis:
    machine = make(busy=100)
    machine.submit(WaitRegMem(machine.word.gpu_va, 42))
    return machine.capture_hang()


def hang_by_unmapped_queue(make: Callable[..., Machine]) -> Diagnosis:
    machine = make()
    machine.write(wait=True)
    for entry in machine.gpu.on_hardware:
        machine.gpu.pause(entry.queue)
    return machine.capture_hang()


def hang_by_failed_reset(make: Callable[..., Machine]) -> Diagnosis:
    machine = make("no-reset")
    machine.write(wait=True)
    machine.gpu.gone = True  # as reset() leaves it, here without its lines in the log
    return machine.capture_hang()


def hang_by_device_off_bus(make: Callable[..., Machine]) -> Diagnosis:
    machine = make(gone=True)
    machine.write(wait=True)
    return machine.capture_hang()


def hang_by_endless_reset(make: Callable[..., Machine]) -> Diagnosis:
    machine = make(
        tasks="PID STAT COMMAND WCHAN\n71 D kworker/3 amdgpu_device_gpu_recover\n4711 D python3 kfd_ioctl\n"
    )
    machine.submit(WaitRegMem(machine.word.gpu_va, 42))
    return machine.capture_hang()


def hang_copy_engine(make: Callable[..., Machine]) -> Diagnosis:
    return make(rings={"gfx_0.0.0": (7, 7), "sdma0": (100, 102), "mes_3.0.0": (9, 9)}).capture_hang()


def hang_mes_ring(make: Callable[..., Machine]) -> Diagnosis:
    return make(rings={"gfx_0.0.0": (7, 7), "mes_kiq_3.1.0": (3, 4)}).capture_hang()


def hang_by_interrupt_storm(make: Callable[..., Machine]) -> Diagnosis:
    machine = make()
    machine.write(wait=True)

    def raise_interrupts() -> None:
        machine.gpu.interrupt(machine.gpu.on_hardware[0].queue, 1)
        machine.interrupts += 60_000

    return machine.capture_hang(raise_interrupts)


def hang_by_endless_eviction(make: Callable[..., Machine]) -> Diagnosis:
    machine = make(tasks="PID STAT COMMAND WCHAN\n88 D kworker/u64:1 svm_range_restore_work\n")
    machine.write(wait=True)
    return machine.capture_hang()


def hang_by_endless_resume(make: Callable[..., Machine]) -> Diagnosis:
    path = f"{CARD}/power/runtime_status"
    return make(files={path: b"resuming\n", f"later/{path}": b"resuming\n"}).capture_hang()


def hang_task_in_driver(make: Callable[..., Machine]) -> Diagnosis:
    return make(tasks="PID STAT COMMAND WCHAN\n4711 D python3 kfd_ioctl_create_queue\n").capture_hang()


def hang_by_silent_smu(make: Callable[..., Machine]) -> Diagnosis:
    return make(unreadable={f"{CARD}/hwmon": "no reply within 3 s: the GPU's SMU may hang"}).capture_hang()


STATES = {
    hang_by_lost_doorbell: "hung.idle",
    hang_by_unwritten_fence: "hung.idle",
    hang_by_lost_interrupts: "hung.interrupts",
    hang_by_waiting_packet: "hung.queue",
    hang_by_endless_kernel: "hung.queue",
    hang_by_unmapped_queue: "hung.mes",
    hang_by_failed_reset: "hung.gone",
    hang_by_device_off_bus: "hung.gone",
    hang_by_endless_reset: "hung.reset",
    hang_copy_engine: "hung.ring",
    hang_mes_ring: "hung.mes",
    hang_by_interrupt_storm: "hung.storm",
    hang_by_endless_eviction: "hung.memory",
    hang_by_endless_resume: "hung.resume",
    hang_task_in_driver: "hung.task",
    hang_by_silent_smu: "power.sensors-silent",
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_silent_state_gets_its_cause_or_the_deciding_measurement(
    state: Callable[[Callable[..., Machine]], Diagnosis], make_machine: Callable[..., Machine]
) -> None:
    result = state(make_machine)
    assert result.first is not None and result.first.id == STATES[state], [f.id for f in result.findings]
    assert result.exit_code() == 1
    if result.first.id == "hung.idle":
        assert "what decides" in result.first.next


def test_waiting_packet_is_distinguished_from_endless_kernel(make_machine: Callable[..., Machine]) -> None:
    waits, runs = hang_by_waiting_packet(make_machine).first, hang_by_endless_kernel(make_machine).first
    assert waits is not None and "a packet waits" in waits.title
    assert runs is not None and "does not end" in runs.title


def test_machine_that_advances_gets_no_cause_and_is_never_ok(make_machine: Callable[..., Machine]) -> None:
    machine = make_machine()
    hung = machine.capture_hang(lambda: machine.write(wait=True))
    assert hung.first is None and hung.exit_code() == 77
    assert "OK" not in format_diagnosis(hung, verbose=False)


def test_hung_machine_without_samples_names_the_files_to_fetch() -> None:
    for name in corpus.BASES:
        result = diagnose(MachineCapture(corpus.load_base(name).files), hung=True)
        assert result.first is None and result.exit_code() == 77, name
        assert [
            unknown.waits for unknown in result.unknown if unknown.matters and "hung.queue" in unknown.waits
        ], name
