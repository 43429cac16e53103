"""Private data that a bundle must not contain: patterns whose group `v` is the secret, and files to omit."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass

PLACEHOLDER = re.compile(r"<(?:[a-z]+)-\d+>")


@dataclass(frozen=True, slots=True)
class Secret:
    """One kind of secret. `needs`: lower-case words, one of which occurs in every matching text; empty if
    there are none.

    `learn`: the value is redacted wherever else it occurs, too. `keep`: matches that are not secret.
    """

    kind: str
    needs: tuple[str, ...]
    pattern: re.Pattern[str]
    learn: bool = False
    keep: Callable[[re.Match[str]], bool] = lambda match: False

    def may_be_in(self, lower: str) -> bool:
        return not self.needs or any(word in lower for word in self.needs)


def _compile_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(pattern, flags)


def _make_secret(
    kind: str,
    needs: str,
    *pattern: str,
    learn: bool = False,
    keep: Callable[[re.Match[str]], bool] = lambda match: False,
) -> Secret:
    """Return a row of the table. `needs`: alternatives separated by |. `pattern`: parts of an expression."""
    return Secret(kind, tuple(filter(None, needs.split("|"))), re.compile("".join(pattern)), learn, keep)


# Names that identify nobody, and words that would make a text unreadable if they were hidden.
_EVERYBODY = (
    "root daemon nobody user users admin host localhost localdomain linux kernel version unknown none null "
    "default false true gdm sddm lightdm video render audio wheel sudo adm systemd messagebus polkitd dbus docker "
    "ubuntu debian fedora arch archlinux gentoo nixos opensuse steamos bazzite rhel centos amd amdgpu gpu kfd drm "
    "card test system server login session console name owner author simulated (none) n/a na empty not specified "
    "unspecified vm"
)
EVERYBODY = frozenset(_EVERYBODY.split())
# Groups that distributions create.
_GROUPS = (
    "bin sys tty disk lp mail news man proxy kmem dialout fax voice cdrom floppy tape operator src shadow utmp "
    "plugdev staff games input kvm sgx netdev bluetooth scanner lpadmin sambashare lxd lxc libvirt libvirt-qemu "
    "podman wireshark vboxusers uucp optical storage power network lock rfkill seat realtime systemd-journal "
    "nogroup incus-admin gamemode tss mock ssh crontab"
)
GROUPS = EVERYBODY | frozenset(_GROUPS.split())
# Programs that everybody has: their names help the reader and identify nobody.
_PROGRAMS = (
    "python python3 ollama llama-server llama-cli llama-bench vllm comfyui blender ffmpeg mpv vlc firefox chrome "
    "chromium electron code steam gamescope wine wine64 wineserver mangohud xorg xwayland x kwin_wayland "
    "kwin_x11 plasmashell gnome-shell mutter sway hyprland weston cinnamon gdm-x-session systemd systemd-logind "
    "systemd-udevd dbus-daemon pipewire wireplumber bash sh zsh fish make ninja clang gcc ld.lld cc1plus rocminfo "
    "rocm-smi amd-smi vulkaninfo vkcube clinfo glxgears rocgdb umr zinc-rt zinc-rt-run zinc-rt-serve modprobe "
    "insmod kthreadd init"
)
PROGRAMS = frozenset(_PROGRAMS.split())
_PROGRAM = re.compile(
    r"(?:python|pytest)[\d.]*|(?:kworker|ksoftirqd|swapper|migration|cpuhp|rcu\w*|irq|kswapd|khungtaskd|scsi_eh)[/_:-].*|"
    r"(?:amdgpu|amdkfd|kfd|drm|ttm|gfx|comp|sdma|vcn|jpeg|mes|card\d|hsa)[\w.:/-]*",
    re.IGNORECASE,
)
_PUBLIC = re.compile(
    r"(?:[\w-]+\.)*(?:kernel\.org|github\.com|githubusercontent\.com|gitlab\.com|gitlab\.freedesktop\.org|"
    r"freedesktop\.org|amd\.com|debian\.org|ubuntu\.com|launchpad\.net|fedoraproject\.org|redhat\.com|"
    r"archlinux\.org|opensuse\.org|python\.org|pypi\.org|llvm\.org|gnu\.org|mozilla\.org|json-schema\.org|w3\.org)",
    re.IGNORECASE,
)
_UNITS = ("service", "slice", "socket", "target", "device", "mount", "timer", "scope", "path", "swap", "automount")
_TEXT = r"[^\s\"'<>|:;,()\\\x00]"  # of a path, where nothing quotes it
_PART = r"[^\s\"'/<>|:;,()\\\x00]"
_NAME = r"[^\s/\"'<>|:;,()\\\x00-\x1f\x7f-\x9f]"
_TAIL = rf"{_TEXT}*(?:(?: (?!-){_PART}+)+/{_TEXT}*)*"


def _is_not_mail(match: re.Match[str]) -> bool:
    return match["v"].rpartition(".")[2] in _UNITS


def _is_not_host(match: re.Match[str]) -> bool:
    return bool(_PUBLIC.fullmatch(match["v"])) or not re.search("[A-Za-z]", match["v"])


def _is_not_ipv4(match: re.Match[str]) -> bool:
    parts = match["v"].split(".")
    if any(int(part) > 255 or (len(part) > 1 and part[0] == "0") for part in parts):
        return True
    if match["v"] in ("0.0.0.0", "127.0.0.1") or parts[0] == "255":
        return True
    return bool(match["version"]) and not ipaddress.ip_address(match["v"]).is_private


def _is_not_ipv6(match: re.Match[str]) -> bool:
    text = match["v"].partition("%")[0]
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return True
    return address.is_loopback or address.is_unspecified or not re.search(r"\d", text)


def _is_generic_name(match: re.Match[str]) -> bool:
    return match["v"].lower() in EVERYBODY


def _is_public_program(match: re.Match[str]) -> bool:
    name = match["v"].rpartition("/")[2]
    base = name.partition(":")[0].lower()
    return base in PROGRAMS or bool(_PROGRAM.fullmatch(name))


def _is_not_serial(match: re.Match[str]) -> bool:
    value = match["v"]
    return not re.search(r"\d", value) or bool(re.fullmatch(r"tty\w+|0+|0x0+|\d{1,5}(?:/\d{1,5})?", value))


def _is_not_token(match: re.Match[str]) -> bool:
    return bool(re.fullmatch(r"[\d.,x-]{1,5}|none|null|true|false|yes|no", match["v"], re.IGNORECASE))


_HEX2 = "[0-9A-Fa-f]{2}"
_END = r"(?![0-9A-Za-z])"
_NOT_HEX = "(?<![0-9A-Za-z])"
_LABEL = r"[\"']?\s*[:=]\s*[\"']?"
_WORD = r"[^\s\"',;<]+"
_HOME = r"(?:/(?:var/|export/)?home/|/Users/|/(?:run/)?media/)"
_TLDS = (
    r"local|lan|home|internal|intranet|corp|localdomain|private|office|lab|example(?:\.(?:com|org|net))?|"
    r"home\.arpa|ts\.net"
)

# Keys that span lines: looked for in a whole text, all others in pieces of one.
SPANNING = (
    _make_secret(
        "key",
        "-----begin",
        r"(?P<v>-----BEGIN [A-Z0-9 ]+-----(?:(?!-----BEGIN)[\s\S])*?(?:-----END [A-Z0-9 ]+-----|\Z))",
    ),
)
SECRETS: tuple[Secret, ...] = (
    # keys and passwords
    _make_secret(
        "key",
        "aaaa",
        r"(?P<v>(?:sk-)?(?:ssh-[a-z0-9]+|ecdsa-sha2-nistp\d+)(?:@openssh\.com)? +AAAA[A-Za-z0-9+/=]{16,})",
    ),
    _make_secret("key", "aaaa", r"(?P<v>AAAA[BCE][A-Za-z0-9+/]{30,}={0,2})"),
    _make_secret("key", "sha256:", r"(?P<v>SHA256:[A-Za-z0-9+/]{43}=?)"),
    _make_secret("key", "md5:", r"(?i)(?P<v>MD5:(?:[0-9a-f]{2}:){15}[0-9a-f]{2})"),
    _make_secret(  # a line of one that was cut in two
        "key",
        "",
        r"(?m)(?P<v>^(?=[^\n]*[a-z])(?=[^\n]*[A-Z])(?=[^\n]*\d)[A-Za-z0-9+/]{60,76}={0,2}$)",
    ),
    _make_secret(
        "token",
        "ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|hf_|glpat-|sk-|xox|akia|eyj",
        r"(?P<v>\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|hf_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{20,}|",
        r"xox[abp]-[\w-]{10,}|AKIA[A-Z0-9]{16}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*))",
    ),
    _make_secret("token", "bearer |basic ", r"(?i)\b(?:bearer|basic) (?P<v>[A-Za-z0-9+/._~-]{12,}=*)"),
    _make_secret(
        "token",
        "pass|secret|token|key|psk|pin|credential",
        r"(?i)\b(?:\w*pass(?:word|wd|phrase)?|\w*secret(?:_key)?|\w*token|api[_-]?key|psk|pin|credentials?|",
        rf"private[_-]?key){_LABEL}(?P<v>{_WORD})",
        learn=True,
        keep=_is_not_token,
    ),
    _make_secret("network", "ssid", rf"(?i)\bb?ssid{_LABEL}(?P<v>{_WORD})", learn=True),
    _make_secret("network", "ssid", r"(?i)\bssid ['\"](?P<v>[^'\"\n<]+)['\"]", learn=True),
    # numbers that tell one disk, card or machine from another
    _make_secret("disk", "/dev/disk/", rf"/dev/disk/by-(?:id|uuid|partuuid|label|partlabel|path)/(?P<v>{_WORD})"),
    _make_secret(
        "uuid", "-", rf"{_NOT_HEX}(?P<v>[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}){_END}"
    ),
    _make_secret("uuid", "uuid=|label=", rf"(?:PART)?(?:UUID|LABEL)=(?P<v>{_WORD})", learn=True),
    _make_secret("uuid", "", rf"(?i){_NOT_HEX}(?P<v>[0-9a-f]{{32}}){_END}"),  # machine and boot ids without dashes
    _make_secret(
        "uuid",
        "docker|containerd|crio|libpod|kubepods",
        rf"(?:docker|containerd|crio|libpod|kubepods)\S*?[/-](?P<v>[0-9a-f]{{64}}){_END}",
    ),
    _make_secret(
        "mac",
        "",
        rf"(?<![0-9A-Fa-f:-])(?P<v>{_HEX2}(?P<s>[:-]){_HEX2}(?:(?P=s){_HEX2}){{4,}})",
        r"(?![0-9A-Fa-f]|[:-][0-9A-Fa-f])",
    ),
    _make_secret("mac", "", r"(?<![\w.])(?P<v>[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4})(?![\w.])"),
    _make_secret(
        "mac", "", rf"(?<![\w:.])(?P<v>{_HEX2}{_HEX2}(?::{_HEX2}{_HEX2}){{3}})(?![\w:])"
    ),  # EUI-64, an InfiniBand GUID
    _make_secret("mac", "guid", rf"(?i)\b\w*guid{_LABEL}(?P<v>(?:0x)?[0-9a-f]{{16}})\b", learn=True),
    _make_secret("mac", "enx|wlx|wwx|wlan-", r"\b(?:enx|wlx|wwx|wlan-)(?P<v>[0-9a-f]{12})\b"),
    _make_secret(
        "mac",
        "mac|hwaddr|permaddr",
        rf"(?i)\b(?:mac(?:[ _-]?addr(?:ess)?)?|hwaddr|permaddr){_LABEL}(?P<v>[0-9a-f]{{12}})\b",
    ),
    _make_secret(
        "serial",
        "serial",
        r"(?i)\bserial[ _-]?(?:number|no\.?|num|nr|#)[\"']?\s*[:=#]?\s*[\"']?(?P<v>[A-Z0-9][\w./-]{3,})",
        learn=True,
        keep=_is_not_serial,
    ),
    _make_secret(
        "serial",
        "serial|s/n|sn|tag|fru",
        r"(?i)(?<![a-z])(?:\w*serial(?:_short)?|s/n|sn|asset[ _-]?tag|service[ _-]?tag|fru[ _-]?id|",
        rf"fru[ _-]?serial){_LABEL}(?P<v>[A-Z0-9][\w./-]{{3,}})",
        learn=True,
        keep=_is_not_serial,
    ),
    _make_secret(
        "serial",
        "serial",
        r"(?i)\bserial[:=]?\s+[\"']?(?P<v>(?=[A-Z0-9-]*\d)(?=[A-Z0-9-]*[A-Z])[A-Z0-9][A-Z0-9-]{6,})\b",
        learn=True,
        keep=_is_not_serial,
    ),
    _make_secret(
        "card",
        "unique",
        r"(?i)\bunique[ _-]?id[\"']?\s*[:= ]\s*[\"']?(?P<v>(?:0x)?[0-9a-f]{4,20})\b",
        learn=True,
        keep=_is_not_serial,
    ),
    # people and machines
    _make_secret(
        "mail",
        "@|%40",
        r"(?<![A-Za-z0-9._%+-])(?P<v>[A-Za-z0-9._%+-]+(?:@|%40)(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24})\b",
        keep=_is_not_mail,
    ),
    _make_secret(
        "login", "@", r"(?<![\w@./-])(?P<v>[A-Za-z_][\w.-]{0,31}@[A-Za-z][\w-]{1,62})(?=[\s:;,)\]\"']|$)"
    ),
    _make_secret("login", "://", r"\b[a-z][a-z0-9+]*://(?P<v>[^\s/@\"'<]+)@"),
    _make_secret(
        "host",
        "://",
        r"(?i)\b(?:https?|ssh|git|s?ftp|nfs|smb|cifs|rsync|wss?|tcp|udp)://(?P<v>[^\s/:\"'<>]+)",
        keep=_is_not_host,
    ),
    _make_secret(
        "host",
        ".local|.lan|.home|.internal|.intranet|.corp|.private|.office|.lab|.example|.ts.net",
        rf"(?i)(?<![\w./-])(?P<v>[a-z0-9](?:[a-z0-9-]*\.)+(?:{_TLDS}))(?![\w-])",
        learn=True,
    ),
    _make_secret(
        "host",
        ".com|.net|.org|.edu|.gov|.io|.dev|.cloud",
        r"(?i)(?<![\w./@-])(?P<v>[a-z0-9][a-z0-9.-]*\.(?:com|net|org|edu|gov|io|dev|cloud))(?![\w-]|\.\w)",
        keep=_is_not_host,
    ),
    _make_secret(  # two dots at least: many identifiers end in two letters
        "host",
        ".",
        r"(?i)(?<![\w./@-])(?P<v>[a-z0-9][a-z0-9-]*\.[a-z0-9-][a-z0-9.-]*\.",
        r"(?:de|fr|uk|eu|nl|pl|it|es|se|fi|dk|ch|at|cz|ru|cn|jp|br|us|ca|au|kr|tw))(?![\w-]|\.\w)",
        keep=_is_not_host,
    ),
    _make_secret(
        "host",
        "host|node",
        rf"(?i)\b(?:host_?name|node_?name|static hostname){_LABEL}(?P<v>[a-z0-9][\w.-]+)",
        learn=True,
        keep=_is_generic_name,
    ),
    _make_secret(
        "host",
        "host=|server=|node=",
        r"(?i)\b(?:host|server|node)=[\"']?(?P<v>[a-z][\w.-]{2,})",
        learn=True,
        keep=_is_generic_name,
    ),
    _make_secret(
        "host",
        "hostname|host name",
        r"(?i)host ?name (?:set )?(?:to|is|changed to) <?[\"']?(?P<v>[a-z0-9][\w.-]*\w)",
        learn=True,
        keep=_is_generic_name,
    ),
    _make_secret(
        "host", "linux ", r"\bLinux (?P<v>[A-Za-z0-9][\w.-]*) \d+\.\d+", learn=True, keep=_is_generic_name
    ),
    _make_secret(  # as syslog and journalctl begin a line
        "host",
        "",
        r"(?m)^(?:[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT[\d:.,+-]+Z?) ",
        r"(?P<v>[A-Za-z0-9][\w.-]*) [\w./@-]+(?:\[\d+\])?:",
        learn=True,
        keep=_is_generic_name,
    ),
    _make_secret("host", ":/", r"(?<![\w/.:-])(?P<v>[A-Za-z][\w.-]{2,}):/(?=[A-Za-z])"),  # of a mount
    _make_secret("host", "\\\\", r"(?<![\\\w])\\\\(?P<v>[A-Za-z0-9][\w.-]+)\\"),
    _make_secret(
        "user",
        "user=|logname=|username=|login=|owner=",
        r"\b(?:USER|LOGNAME|SUDO_USER|USERNAME|user|username|login|owner)=[\"']?(?P<v>[A-Za-z_][\w.-]*\w)",
        learn=True,
        keep=_is_generic_name,
    ),
    _make_secret(
        "user",
        "user|login|logname|owner|author",
        r"(?im)^\s*[\"']?(?:user ?name|user|login|logname|owner|author)[\"']?\s*:\s*[\"']?(?P<v>[a-z_][\w.-]*\w)",
        learn=True,
        keep=_is_generic_name,
    ),
    _make_secret("user", "id=", r"\b[ug]id=\d+\((?P<v>[^()\s]+)\)", learn=True, keep=_is_generic_name),
    _make_secret(
        "user",
        "for user|of user|accepted |failed |sudo|su",
        r"(?:\b(?:opened|closed) for user |\bof user |\b(?:Accepted|Failed) \w+ for (?:invalid user )?|",
        r"\bsudo(?:\[\d+\])?: +|\bsu(?:\[\d+\])?: \(to \w+\) )(?P<v>[A-Za-z_][\w.-]*\w)",
        learn=True,
        keep=_is_generic_name,
    ),
    _make_secret(
        "user",
        "home/|/users/|media/|~",
        rf"(?:{_HOME}|(?<![\w.~])~)(?P<v>{_NAME}+)(?=[/\s\"':;,)\\]|$)",
        learn=True,
        keep=_is_generic_name,
    ),
    _make_secret(
        "user",
        "users\\",
        r"(?i)\b[A-Z]:\\{1,2}Users\\{1,2}(?P<v>[^\s\\/\"'<>|:;,]+)",
        learn=True,
        keep=_is_generic_name,
    ),
    _make_secret(
        "user",
        "%2f",
        r"(?i)%2F(?:home|Users)%2F(?P<v>[^%\s/\"'&?<>]+)",
        learn=True,
        keep=_is_generic_name,
    ),
    # programs, containers and volumes
    _make_secret(
        "process",
        "process|thread|task|comm|killed|invoked|segfault|program",
        r"(?:\b[Pp]rocess (?:information: process )?|\bthread |\b[Tt]ask:? |\bComm: |\bcomm=[\"']?|\btask=|",
        r"\bKilled process \d+ \(|\bProgram: )(?P<v>(?!information\b|\d+\b|<)[^\s\"',()]+?)",
        r"(?=[\"',)]|:\d+ blocked|,? +pid\b|,? +Not tainted|,? +Tainted|\(\d+\)|\s*$| \w+:)",
        learn=True,
        keep=_is_public_program,
    ),
    _make_secret(
        "process",
        "invoked oom-killer",
        r"(?P<v>[^\s:\]]+) invoked oom-killer",
        learn=True,
        keep=_is_public_program,
    ),
    _make_secret(
        "process",
        "segfault|trap|general protection",
        r"(?m)(?:^|[\s\]])(?P<v>[^\s\[\]]+)\[\d+\]:? (?:segfault|trap|general protection)",
        learn=True,
        keep=_is_public_program,
    ),
    _make_secret("process", "exe=", r"\bexe=[\"']?(?P<v>[^\s\"']+)", keep=_is_public_program),
    _make_secret("cgroup", "memcg=|cpuset=", r"\b(?:\w*_memcg|cpuset)=(?P<v>(?!/,|/$)[^\s,]+)"),
    _make_secret("cgroup", "cgroup", r"\b[Cc]group (?P<v>/[^\s,]+)"),
    _make_secret("cgroup", "task in /", r"\bTask in (?P<v>/\S+)"),
    _make_secret(
        "container",
        "container|machine-|lxc|podman|docker|toolbox|distrobox",
        r"(?i)(?:\bcontainer(?:[ _-]?name)?[=: ]+[\"']?|\bmachine-|\blxc[/.](?:payload\.)?|",
        r"\b(?:podman|docker) (?:run|exec|start|stop|logs)\b.*?--name[ =]|\b(?:toolbox|distrobox) enter )",
        r"(?P<v>(?!runtime\b|id\b|with\b|is\b|from\b)[a-z0-9][\w.-]{2,})",
        keep=_is_generic_name,
    ),
    _make_secret(
        "volume",
        "/dev/mapper/|/dev/zvol/|/volumes/|pool|vg|volume|label",
        r"(?i)(?:/dev/mapper/|/dev/zvol/|/var/lib/\w+/volumes/|",
        r"\b(?:zpool|pool|volume group|logical volume|vg|lv)[ =:]+[\"'])",
        r"(?P<v>(?!control\b)[a-z0-9][^\s\"',)]*)",
        learn=True,
    ),
    # where they keep things
    _make_secret("path", "%2f", r"(?i)%2F(?:home|Users)%2F[^%\s]+%2F(?P<v>(?!<path-)[^\s\"'&?<>]+)"),
    _make_secret("path", "home/|/users/|media/", rf"{_HOME}[^\s/\"'|:;,()\\\x00]+/(?P<v>(?!<path-){_TAIL})"),
    _make_secret(
        "path",
        "/root/|/mnt/|/data/|/srv/|/work/|/scratch/|/nfs/|/project|/volumes/|/storage/",
        rf"(?<![\w>])/(?:root|mnt|data|srv|work|scratch|nfs|projects?|Volumes|storage)/(?P<v>(?!<path-){_TAIL})",
    ),
    _make_secret("path", "~/", rf"(?<![\w/])~/(?!\.(?:local/state|cache)/zinc-rt)(?P<v>(?!<path-){_TAIL})"),
    _make_secret(
        "path",
        "users\\",
        r"(?i)\b[A-Z]:\\{1,2}Users\\{1,2}[^\s\\/\"'|:;,]+\\{1,2}(?P<v>(?!<path-)[^\s\"'<>|:;,]+)",
    ),
    # addresses
    _make_secret(
        "ip",
        "",
        r"(?i)(?P<version>\bver(?:sion)?[ :=v]*|\bv)?(?<![\w.~-])(?P<v>\d{1,3}(?:\.\d{1,3}){3})(?![\w-]|\.\d)",
        keep=_is_not_ipv4,
    ),
    _make_secret(
        "ip",
        "",
        r"(?<![\w:.])(?P<v>(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?:%\w+)?)(?![\w:])",
        keep=_is_not_ipv6,
    ),
)

# Files that are one secret each, by the end of their path.
WHOLE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("serial", _compile_pattern(r"(?:^|/)(?:\w*_serial|serial|serial_number|\w*_asset_tag|wwid|nguid)$")),
    ("uuid", _compile_pattern(r"(?:^|/)(?:product_uuid|uuid|machine-id|boot_id|eui)$")),
    ("card", _compile_pattern(r"(?:^|/)unique_id$")),
    ("host", _compile_pattern(r"(?:^|/)(?:hostname|nodename)$")),
    ("mac", _compile_pattern(r"(?:^|/)net/[^/]+/(?:address|permaddr|phys_port_id)$")),
)
# Files that hold serial numbers in a binary form, or nothing but private data: they are left out.
LEFT_OUT = _compile_pattern(
    r"(?:^|/)(?:edid|vpd|config|rom|environ|\.env|id_(?:rsa|dsa|ecdsa|ed25519)(?:\.pub)?|authorized_keys|known_hosts|"
    r"shadow|\.netrc|\.git-credentials)$"
)
# JSON members by name: their whole value.
MEMBERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "serial",
        _compile_pattern(r"\w*serial(?:_?number|_?no|_short)?|sn|asset_?tag|service_?tag|fru_?id", re.IGNORECASE),
    ),
    ("card", _compile_pattern(r"unique_?id", re.IGNORECASE)),
    ("host", _compile_pattern(r"host_?name|node_?name|nodename|fqdn|server|machine_?name", re.IGNORECASE)),
    ("user", _compile_pattern(r"user(?:_?name)?|login|logname|owner|author|real_?name", re.IGNORECASE)),
    ("mac", _compile_pattern(r"mac(?:_?addr(?:ess)?)?|hwaddr", re.IGNORECASE)),
    ("ip", _compile_pattern(r"ip(?:v[46])?(?:_?addr(?:ess)?)?", re.IGNORECASE)),
    ("uuid", _compile_pattern(r"\w*uuid|machine_?id|boot_?id", re.IGNORECASE)),
    ("mail", _compile_pattern(r"e?-?mail", re.IGNORECASE)),
    (
        "token",
        _compile_pattern(
            r"pass(?:word|wd|phrase)|\w*secret|(?:api|access|auth)_?(?:key|token)|token|private_?key",
            re.IGNORECASE,
        ),
    ),
)
