"""Two network namespaces, each joined by a cable to that of the session, for the workers of the Dask tests.

The session has a network of its own, too: where an address of the machine comes or goes, a browser ends all its
requests (net::ERR_NETWORK_CHANGED), which would fail the tests that another session runs meanwhile. What a test fetches
from the package index, it fetches `outside`.
"""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

_VARIABLE = "VISTERM_TEST_MACHINES"  # for the workers of pytest-xdist
_CLONE_NEWNET = 0x40000000  # os.CLONE_NEWNET, from Python 3.12 on


class Machine(NamedTuple):
    """Name of a namespace, and the addresses of its cable."""

    name: str
    here: str
    there: str


def make_machines() -> None:
    """Move this process to a network of its own, with two namespaces beside it, where that is possible."""
    reason = _why_not()
    made = [] if reason else [Machine(f"vt{os.getpid()}-{i}", f"10.213.{i}.1", f"10.213.{i}.2") for i in range(2)]
    if made:
        for name, session in re.findall(r"^(vt(\d+)-\w+)", _run("ip netns list").stdout, re.MULTILINE):
            if not Path("/proc", session).exists():  # it was killed
                _run(f"ip netns del {name}")
        _run(f"ip netns attach vt{os.getpid()}-out {os.getpid()}", check=True)
        ctypes.CDLL(None).unshare(_CLONE_NEWNET)
        _run("ip link set lo up", check=True)
    for name, here, there in made:
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
            _run(command, check=True)
    os.environ[_VARIABLE] = json.dumps([made, reason])


def _why_not() -> str:
    """Try in another process, since there is no way back."""
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "no command 'ip', which makes network namespaces"
    name = f"vt{os.getpid()}-try"
    cable = f"ip link set lo up && ip link add {name} type veth peer name {name}b && ip link set {name}b netns {name}"
    done = subprocess.run(
        ["sh", "-c", f"ip netns add {name} && unshare --net sh -c '{cable}'"], capture_output=True, text=True
    )
    _run(f"ip netns del {name}")
    return f"network namespaces cannot be made here: {done.stderr.strip()}" if done.returncode else ""


def machines() -> tuple[list[Machine], str]:
    """Those that were made; none, and the reason, where they could not be."""
    made, reason = json.loads(os.environ.get(_VARIABLE, '[[], "none were made"]'))
    return [Machine(*one) for one in made], reason


@contextmanager
def outside() -> Iterator[None]:
    """Put this thread, and what it starts meanwhile, into the network of the machine."""
    made, _ = machines()
    if not made:  # it is there
        yield
        return
    session = made[0].name.partition("-")[0]
    with open(f"/run/netns/{session}-out") as there, open("/proc/thread-self/ns/net") as here:
        _enter(there)
        try:
            yield
        finally:
            _enter(here)


def _enter(namespace: IO[str]) -> None:
    if ctypes.CDLL(None).setns(namespace.fileno(), _CLONE_NEWNET):
        raise OSError(f"no way into {namespace.name}")


def remove_machines() -> None:
    """Remove them."""
    made, _ = machines()
    os.environ.pop(_VARIABLE, None)
    for name in [f"vt{os.getpid()}-out", *(machine.name for machine in made)] if made else []:
        _run(f"ip netns del {name}")


def _run(command: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command.split(), capture_output=True, text=True, check=check)
