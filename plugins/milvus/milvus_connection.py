"""Connections to Milvus, a server or a file, and what goes wrong with them in one line."""

import contextlib
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from visterm.extras import how_to_install
from visterm.pipeline.console import without_password

CONNECT_SECONDS = 5.0
# A file is served by this process. pymilvus pings every 10 seconds, too often for its server, and gRPC
# prints that.
_FILE_OPTIONS = {"grpc.keepalive_time_ms": 2**31 - 1}  # never

_open_files: set[Path] = set()  # of milvus-lite, by this process


class MilvusError(Exception):
    """Milvus cannot be used, in one line: what, where, what to do."""


class Unusable(MilvusError):
    """Milvus responds but the operation fails: a damaged file, for example."""


def connect(uri: str) -> Any:
    """Return a ``pymilvus.MilvusClient`` of an address as of `MilvusIndex`; a file that does not exist is made.

    MilvusError if there is no answer within 5 seconds, another process holds the file, or pymilvus is missing; Unusable
    if it is no Milvus file, or a damaged one.
    """
    file = Path(uri) if uri.endswith(".db") and "://" not in uri else None
    try:
        from pymilvus import MilvusClient

        if file is not None:
            import milvus_lite  # noqa: F401 -- only whether it is installed: pymilvus would fail later, in other words
    except ModuleNotFoundError as error:
        raise MilvusError(f"Milvus needs {error.name}: {how_to_install('milvus')}") from None
    # milvus-lite would take any folder for its own. What is no folder is of its first versions, or anything else.
    if file is not None and (file.is_file() or (file.is_dir() and any(file.iterdir()) and not _lock(file).exists())):
        raise Unusable(f"{file}: no Milvus file (milvus-lite keeps a folder); name another one, or remove it")
    for name in ("pymilvus", "milvus_lite"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they print what they raise as well, with tracebacks
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            with said(uri):
                client = MilvusClient(uri, timeout=CONNECT_SECONDS, grpc_options=_FILE_OPTIONS if file else {})
            if file is not None:
                _open_files.add(file.absolute())
            return client
        except MilvusError as error:
            if file is None:
                raise
            if time.monotonic() > until:  # else the process that has it open may end in a moment, as a search does
                if _is_held(file):
                    raise MilvusError(
                        f"{file}: another process has this Milvus file open, and only one can; let both use a server "
                        f"(plugins/milvus/README.md), or end the other"
                    ) from None
                if not isinstance(error, Unusable):
                    raise
                raise Unusable(f"{file}: cannot be opened as a Milvus file; remove it ({error})") from None
        time.sleep(0.2)


def was_removed(file: Path) -> bool:
    """Whether a file of milvus-lite is gone that this process has open: it serves what it knows, and writes nothing."""
    return file.absolute() in _open_files and not _lock(file).exists()


def _lock(file: Path) -> Path:
    """Lock file of a process that has a file of milvus-lite open."""
    return file / "LOCK"


def _is_held(file: Path) -> bool:
    """Whether a process has a file of milvus-lite open."""
    import fcntl

    try:
        with open(_lock(file)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def close_file(uri: str) -> None:
    """Close a file of milvus-lite that this process has open."""
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(uri)
    _open_files.discard(Path(uri).absolute())


@contextlib.contextmanager
def said(uri: str) -> Iterator[None]:
    """Turn what pymilvus and gRPC raise into one line."""
    try:
        yield
    except MilvusError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pymilvus", "grpc"):
            raise
        text = getattr(error, "message", "") or str(error)
        if re.search("(?i)fail connecting|unavailable|deadline|time(d )?out", text):
            no_answer = "no answer; is it running, and is the address right?"
            raise MilvusError(f"Milvus at {without_password(uri)}: {no_answer}") from None
        text = text.replace(uri, without_password(uri)).partition("\n")[0][:200]
        raise Unusable(f"Milvus at {without_password(uri)}: {text}") from None
