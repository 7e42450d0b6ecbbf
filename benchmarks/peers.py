"""Run a peer in its own virtual environment, since its requirements may conflict with ours.

    found = run_in("lightfm", ["lightfm-next==1.19.0", "numpy==2.4.6"], SCRIPT, {"X": X}, timeout=300)

The environment `build/peers/<name>` is made with venv and pip when it is first used, and again when its requirements
change. The script finds the arrays in a dictionary `inputs` and leaves its own in a dictionary `outputs`; both travel
as `.npz` files, never as pickle.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

PEERS = Path(__file__).resolve().parent.parent / "build" / "peers"
INSTALL_SECONDS = 1200

# Reads the inputs, runs the script in a separate namespace, writes the outputs.
_RUNNER = """
import sys
import numpy as np
script, given, found = sys.argv[1:]
with np.load(given, allow_pickle=False) as arrays:
    inputs = {name: arrays[name] for name in arrays.files}
outputs = {}
with open(script, encoding="utf-8") as file:
    code = compile(file.read(), script, "exec")
exec(code, {"__name__": "__main__", "inputs": inputs, "outputs": outputs})
outputs = {name: np.asarray(value) for name, value in outputs.items()}
objects = [name for name, value in outputs.items() if value.dtype == object]
if objects:
    sys.exit(f"outputs must be arrays of numbers or text, {objects[0]!r} is not")
np.savez(found, **outputs)
"""


class PeerError(RuntimeError):
    """The environment could not be created, or the script failed."""


class PeerTimeout(PeerError):
    """The script exceeded its time limit."""


def run_in(
    name: str,
    requirements: Sequence[str],
    script: str | Path,
    inputs: Mapping[str, np.ndarray],
    *,
    timeout: float = 600,
    threads: int = 1,
    shared: bool = False,
) -> dict[str, np.ndarray]:
    """Run a script in the environment of a peer, below build/peers; return the arrays that it left in `outputs`.

    `requirements` are what pip installs: pinned, with what they themselves need where a later version would not do. The
    script is Python text, or a file of it; inputs are numbers or text, a CSR matrix as its three arrays. `timeout` are
    seconds for the script; the installation has its own limit. `threads` are those of the peer's OpenMP and BLAS. With
    `shared`, the peer sees the packages that visterm uses, too, though not visterm: what it shares with us is not
    installed again.

    PeerError has the last lines that the peer or pip wrote; `PeerTimeout` where the script was not done in time.
    """
    python = environment(name, requirements, shared=shared)
    with tempfile.TemporaryDirectory() as folder:
        text = script.read_text(encoding="utf-8") if isinstance(script, Path) else script
        paths = [Path(folder, file) for file in ("script.py", "inputs.npz", "outputs.npz")]
        paths[0].write_text(text, encoding="utf-8")
        arrays = {key: np.asarray(value) for key, value in inputs.items()}
        for key, array in arrays.items():
            if array.dtype == object:
                raise ValueError(f"inputs must be arrays of numbers or text, {key!r} is not")
        np.savez(paths[1], **arrays)
        limits = {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
        # Started in another folder, so that the peer imports nothing from this repository.
        _call([python, "-c", _RUNNER, *paths], name, timeout, cwd=folder, env=os.environ | limits)
        with np.load(paths[2], allow_pickle=False) as found:
            return {key: found[key] for key in found.files}


def attempt(measure: Callable[..., dict], *arguments) -> list[dict]:
    """The record of measure(*arguments); none if its peer cannot be installed or fails, and the reason is printed."""
    try:
        return [measure(*arguments)]
    except PeerError as error:
        print(f"    left out: {measure.__name__}{arguments}: {error}", file=sys.stderr, flush=True)
        return []


def environment(name: str, requirements: Sequence[str], *, shared: bool = False) -> Path:
    """Python of the peer's environment; creates it if it is missing or its requirements have changed."""
    folder = PEERS / name
    python, record = folder / "bin" / "python", folder / "requirements.json"
    wanted = json.dumps([shared, *sorted(requirements)])
    PEERS.mkdir(parents=True, exist_ok=True)
    with (PEERS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be creating it
        # The record is written last, so that an interrupted installation is repeated.
        if not record.exists() or record.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            _call([sys.executable, "-m", "venv", folder], name, INSTALL_SECONDS)
            if shared:
                ours = sysconfig.get_path("purelib")
                own = sysconfig.get_path("purelib", "venv", vars={"base": str(folder)})
                Path(own, "shared.pth").write_text(ours)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _call([*pip, *requirements], name, INSTALL_SECONDS)
            record.write_text(wanted)
    return python


def _call(command: Sequence[str | Path], name: str, timeout: float, **options) -> None:
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, timeout=timeout, **options
        )
    except subprocess.TimeoutExpired:
        raise PeerTimeout(f"peer {name}: no answer within {timeout:g} s") from None
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise PeerError(f"peer {name}: exit code {done.returncode}\n{last}")
