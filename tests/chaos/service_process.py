"""A small run, a process that serves it, and a client that sends any bytes."""

import http.client
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import cv2
import numpy as np

VISTERM = Path(sys.executable).with_name("visterm")
RUN = "hostile"
TOKEN = "tell-nobody-at-all-please"
LABELS = ("pear", "plum", "fig")
PER_LABEL = 8
_OLD = "was trained before the training images or their labels changed"


@dataclass
class Service:
    """A process that serves a run, and where everything lies that its responses must not name."""

    folder: Path
    process: subprocess.Popen
    host: str
    port: int
    errors: Path
    token: str | None = None
    secrets: tuple[bytes, ...] = field(default=())

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    def memory(self) -> float:
        """Resident memory in MiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    def processor_seconds(self) -> float:
        """Processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def alive(self) -> bool:
        return self.process.poll() is None

    def output(self) -> str:
        """What it wrote to standard error, but for its first line, and old learners where requests removed images."""
        lines = self.errors.read_text(errors="replace").splitlines(keepends=True)
        return "".join(line for line in lines if line != "press Ctrl-C to stop\n" and _OLD not in line)


@dataclass
class Answer:
    """A response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes


def write_images(folder: Path) -> None:
    """Write small images, among them one with a place in its metadata."""
    rng = np.random.default_rng(0)
    for number, label in enumerate(LABELS):
        (folder / label).mkdir(parents=True)
        for i in range(PER_LABEL):
            noise = rng.integers(0, 256, (96 // (number + 2), 128 // (number + 2), 3), dtype=np.uint8)
            pixels = cv2.resize(noise, (128, 96), interpolation=cv2.INTER_CUBIC)
            cv2.imwrite(str(folder / label / f"{i}.jpg"), pixels)
    (folder / "fig" / "0.jpg").rename(folder / "fig" / "<img src=x onerror=alert(1)>.jpg")


def make_run(folder: Path) -> None:
    """Make a run with two learners, an annotator, an evaluation and a study."""
    write_images(folder / "secret-photos")
    small = ("features.n_visterms=40", "oasis.n_steps=4000", "wsabie.n_steps=4000", "compute.n_jobs=1")
    settings = [part for setting in (*small, "split.train=5", "split.test=3") for part in ("--set", setting)]
    for command in (
        ("features", folder / "secret-photos", *settings),
        ("train", "--learner", "oasis,wsabie"),
        ("evaluate", "--learner", "oasis"),
    ):
        subprocess.run(
            [VISTERM, "--quiet", *map(str, command), "--run", RUN], env=_environment(folder), cwd=folder, check=True
        )


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {"VISTERM_RUNS": str(folder / "secret-runs"), "NUMBA_NUM_THREADS": "2"}


@contextmanager
def serving(folder: Path, token: str | None = None) -> Iterator[Service]:
    """Serve the run in a process."""
    errors = folder / f"errors-{'with' if token else 'no'}-token.txt"
    command = [VISTERM, "serve", "--run", RUN, "--port", "0", *(("--token", token) if token else ())]
    with open(errors, "w") as stream:
        process = subprocess.Popen(
            command, env=_environment(folder), cwd=folder, stdout=subprocess.PIPE, stderr=stream, text=True
        )
    try:
        assert process.stdout is not None
        url = urlsplit(process.stdout.readline().strip())
        assert url.hostname, errors.read_text()
        assert url.port
        secrets = (str(folder), str(Path.home()), sys.prefix, sys.base_prefix, str(Path.cwd()))
        encoded = tuple(name.encode() for name in {*secrets, *map(os.path.realpath, secrets)} if len(name) > 4)
        yield Service(folder, process, url.hostname, url.port, errors, token, encoded)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


@contextmanager
def made_run() -> Iterator[Path]:
    """A folder with a run."""
    with tempfile.TemporaryDirectory(prefix="visterm-chaos-") as name:
        make_run(Path(name))
        yield Path(name)


def send(service: Service, data: bytes, seconds: float = 30.0) -> bytes:
    """Send bytes and read until the service closes the connection or the time is over."""
    parts: list[bytes] = []
    with (
        suppress(TimeoutError, ConnectionError),
        socket.create_connection((service.host, service.port), timeout=seconds) as connection,
    ):
        with suppress(ConnectionError):  # refused before it had read everything: the response may be there
            connection.sendall(data)
        while part := connection.recv(1 << 20):
            parts.append(part)
    return b"".join(parts)


def parse(data: bytes, method: str = "GET") -> Answer | None:
    """Parse the first response, after those that tell to go on; None if there is none."""
    while data.startswith(b"HTTP/1.1 100 "):
        data = data.partition(b"\r\n\r\n")[2]
    if not data:
        return None

    class Source:
        def makefile(self, mode: str) -> io.BytesIO:
            return io.BytesIO(data)

    # It only calls makefile() of the socket, which Source has.
    response = http.client.HTTPResponse(Source(), method=method)  # type: ignore[arg-type]
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


def request(
    method: str, target: str | bytes, body: bytes = b"", headers: tuple[tuple[str, str | bytes], ...] = ()
) -> bytes:
    """Make the bytes of a request, which need not be valid; headers replace those that clients send."""
    lines = {"host": ("Host", b"localhost"), "connection": ("Connection", b"close")}
    if body or method not in ("GET", "HEAD", "OPTIONS"):
        lines["content-length"] = ("Content-Length", str(len(body)).encode())
    extra = []
    for name, value in headers:
        encoded = value if isinstance(value, bytes) else value.encode("latin-1", "replace")
        if name.lower() in lines:
            lines[name.lower()] = (name, encoded)
        else:
            extra.append((name, encoded))
    head = method.encode("latin-1", "replace") + b" "
    head += (target if isinstance(target, bytes) else target.encode("utf-8", "surrogateescape")) + b" HTTP/1.1\r\n"
    for name, value in (*lines.values(), *extra):
        head += name.encode("latin-1", "replace") + b": " + value + b"\r\n"
    return head + b"\r\n" + body
