"""Parse the output of `lspci -vvv`, with or without -nn, to functions by address."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

ADDRESS = r"(?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_HEAD = re.compile(rf"^({ADDRESS}) (.+)$", re.IGNORECASE)
_IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]", re.IGNORECASE)
_LINK = re.compile(r"Lnk(Cap|Sta):.*?Speed (\d+(?:\.\d+)?)GT/s.*?Width x(\d+)")
_REGION = re.compile(r"Region (\d+): (?:\[virtual\] )?Memory at (\S+) .*?(?:\[size=(\d+)([KMGT]?)\]|$)")
_REBAR = re.compile(r"BAR (\d+): current size: (\d+)([KMGT]?)B, supported:(.*)")
_BUS = re.compile(r"Bus: primary=([0-9a-f]+), secondary=([0-9a-f]+), subordinate=([0-9a-f]+)", re.IGNORECASE)
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
GRAPHICS = ("vga compatible controller", "display controller", "3d controller", "processing accelerators")


_NUMBERS = re.compile(
    r"^(?:Class )?([0-9a-f]{4}): ([0-9a-f]{4}):([0-9a-f]{4})(?: (?!\()(\S+))?", re.IGNORECASE
)  # -n


@dataclass(frozen=True, slots=True)
class PciFunction:
    address: str  # with its domain
    title: str
    text: str = field(repr=False)
    vendor: int | None = None
    device: int | None = None
    driver: str | None = None
    modules: str = ""
    link: tuple[float, int] | None = None  # GT/s, lanes now
    link_most: tuple[float, int] | None = None
    regions: dict[int, int | None] = field(default_factory=dict)  # BAR → bytes; None where it has no address
    bar_sizes: dict[int, tuple[int, int]] = field(default_factory=dict)  # resizable BAR → bytes now, bytes at most
    buses: tuple[int, int, int] | None = None  # of a bridge: primary, secondary, subordinate

    @property
    def amd_graphics(self) -> bool:
        title = self.title.lower()
        numbers = _NUMBERS.match(title)
        if numbers:  # of lspci -n, and of busybox
            return numbers[2] == "1002" and numbers[1] in ("0300", "0302", "0380", "1200")
        amd = self.vendor == 0x1002 or "[amd/ati]" in title or "advanced micro devices" in title
        return amd and title.startswith(GRAPHICS)

    @property
    def gone(self) -> bool:
        """Return whether the configuration space reads as all ones, which means that nothing answers on
        the bus."""
        return "Unknown header type 7f" in self.text or "(rev ff)" in self.title


def parse_lspci(text: str) -> dict[str, PciFunction]:
    """Parse the output. All lines between two headers belong to the first header. Unknown lines are kept in
    `text`."""
    functions: dict[str, PciFunction] = {}
    head: tuple[str, str] | None = None
    body: list[str] = []
    for line in [*text.splitlines(), "00:00.0 end"]:
        matched = _HEAD.match(line)
        if not matched:
            body.append(line)
            continue
        if head:
            functions[head[0]] = _parse_function(*head, "\n".join(body))
        address = matched[1].lower()
        head, body = (address if address.count(":") == 2 else f"0000:{address}", matched[2]), []
    return functions


def find_bridge_chain(functions: dict[str, PciFunction], address: str) -> list[PciFunction]:
    """Return the bridges above a function, nearest first, by their bus numbers."""
    domain, bus = address.split(":")[0], int(address.split(":")[1], 16)
    above = []
    for _ in range(32):  # a malformed listing may loop
        bridge = next(
            (
                function
                for function in functions.values()
                if function.buses and function.buses[1] == bus and function.address.startswith(f"{domain}:")
            ),
            None,
        )
        if bridge is None or bridge.buses is None:
            break
        above.append(bridge)
        bus = bridge.buses[0]
    return above


def _parse_function(address: str, title: str, text: str) -> PciFunction:
    ids = _IDS.findall(title)
    links = {kind: (float(speed), int(width)) for kind, speed, width in _LINK.findall(text)}
    driver = re.search(r"Kernel driver in use: (\S+)", text)
    numbers = _NUMBERS.match(title)
    if numbers:
        ids = [(numbers[2], numbers[3])]
    modules = re.search(r"Kernel modules: (.+)", text)
    regions: dict[int, int | None] = {}
    for bar, where, size, unit in _REGION.findall(text):
        regions[int(bar)] = int(size) * UNITS[unit] if size and not where.startswith("<") else None
    buses = _BUS.search(text)
    return PciFunction(
        address,
        title,
        text,
        int(ids[-1][0], 16) if ids else None,
        int(ids[-1][1], 16) if ids else None,
        driver[1] if driver else numbers[4] if numbers else None,
        modules[1] if modules else "",
        links.get("Sta"),
        links.get("Cap"),
        regions,
        {
            int(bar): (int(now) * UNITS[unit], _largest_size(sizes))
            for bar, now, unit, sizes in _REBAR.findall(text)
        },
        (int(buses[1], 16), int(buses[2], 16), int(buses[3], 16)) if buses else None,
    )


def _largest_size(sizes: str) -> int:
    return max((int(size) * UNITS[unit] for size, unit in re.findall(r"(\d+)([KMGT]?)B", sizes)), default=0)
