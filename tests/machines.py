"""Two network namespaces, each joined to this machine by a cable, for the workers of the Dask tests.

They are made before the tests begin and removed after them, or by the next session where this one is killed: a new
address of this machine ends all requests of a browser, and so the tests that use one (net::ERR_NETWORK_CHANGED).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

_VARIABLE = "VISTERM_TEST_MACHINES"  # for the workers of pytest-xdist


class Machine(NamedTuple):
    """Name of a namespace, and the addresses of its cable."""

    name: str
    here: str
    there: str


def make_machines() -> None:
    """Make the two namespaces, where that is possible."""
    made, reason = [], "" if shutil.which("ip") else "no command 'ip', which makes network namespaces"
    nets = [] if reason else free_nets()
    for i, net in enumerate(nets):
        name, here, there = machine = Machine(f"vt{os.getpid()}-{i}", f"10.213.{net}.1", f"10.213.{net}.2")
        made.append(machine)
        for command in (
            f"ip netns add {name}",
            f"ip link add {name}a type veth peer name {name}b",
            f"ip link set {name}b netns {name}",
            f"ip addr add {here}/30 dev {name}a",
            f"ip link set {name}a up",
            f"ip -n {name} addr add {there}/30 dev {name}b",
            f"ip -n {name} link set {name}b up",
            f"ip -n {name} link set lo up",
        ):
            done = subprocess.run(command.split(), capture_output=True, text=True)
            if done.returncode and not reason:
                reason = f"network namespaces cannot be made here: {done.stderr.strip()}"
    os.environ[_VARIABLE] = json.dumps([made, reason])


def free_nets() -> list[int]:
    """Remove what killed sessions have left; return two numbers that no other session has in its addresses."""
    for name, session in re.findall(r"^(vt(\d+)-\d)\b", _output("ip netns list"), re.MULTILINE):
        if not Path("/proc", session).exists():
            _remove(name)
    used = {int(net) for net in re.findall(r" 10\.213\.(\d+)\.", _output("ip -o -4 addr"))}
    first = os.getpid()  # so that two sessions that begin at once look at different ones
    return [net for i in range(256) if (net := (first + i) % 256) not in used][:2]


def machines() -> tuple[list[Machine], str]:
    """Those that were made; none, and the reason, where they could not be."""
    made, reason = json.loads(os.environ.get(_VARIABLE, '[[], "none were made"]'))
    return [] if reason else [Machine(*one) for one in made], reason


def remove_machines() -> None:
    """Remove them."""
    for name, *_ in json.loads(os.environ.pop(_VARIABLE, "[[]]"))[0]:
        _remove(name)


def _output(command: str) -> str:
    return subprocess.run(command.split(), capture_output=True, text=True).stdout


def _remove(name: str) -> None:
    subprocess.run(["ip", "link", "del", f"{name}a"], capture_output=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
