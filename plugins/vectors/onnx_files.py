"""The files of an ONNX model: the graph, and those beside it where its weights may lie.

PyTorch's exporter writes weights into a second file, and a model above 2 GB must have one. The graph names it, by a
path relative to its own folder. ONNX Runtime resolves that path against the current folder when it gets the graph as
bytes, so the folder is named here, each path is checked, and the SHA-256 of a model is that of all its files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import pathlib
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from visterm.features.images import StrPath, printable
from visterm.files import replaced

from .onnx_graph import parse

MAX_NODES = 20_000  # of a graph: ONNX Runtime takes a minute or two to open a chain of so many, and four times as
# long for twice as many, and cannot be interrupted
_LOCATION = b"\x0a\x08location"  # how protobuf writes the name of the entry that names a file
_INLINED = 1024  # bytes of weights that are read into the graph: numbers that decide shapes, such as axes
_BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}  # packed
# Files of a saved embedder, beside which weights are copied.
_OF_EMBEDDERS = ("model.onnx", "embedder.json", "text.json", "tokenizer.json")


@dataclass
class ModelFile:
    """A model as it lies on disk, read by `read_model`."""

    data: bytes  # of the graph, and of the weights unless they lie in files of their own
    weights: dict[str, pathlib.Path] = field(default_factory=dict)  # files of weights by the paths in the graph
    folder: str | None = None  # in which ONNX Runtime must look for them
    graph: Any = None  # parsed, with their paths below that folder

    def parsed(self) -> Any:
        """Return the graph; ImportError if the package onnx is missing."""
        return parse(self.data) if self.graph is None else self.graph

    def check_nodes(self) -> None:
        """Refuse a graph of too many nodes, with those of inner graphs (If, Loop); ValueError without its name."""
        with contextlib.suppress(ImportError):
            if (n := _n_nodes(self.parsed().graph)) > MAX_NODES:
                raise ValueError(f"a graph of {n:,} nodes; at most {MAX_NODES:,} are supported")

    def sha256(self) -> str:
        """Return the SHA-256 of the model, in hexadecimal: that of its file, or of all its files with their names."""
        digest = hashlib.sha256(self.data).hexdigest()
        if not self.weights:
            return digest
        files = [[location, _file_sha256(path)] for location, path in sorted(self.weights.items())]
        return hashlib.sha256(json.dumps([digest, files]).encode()).hexdigest()

    def n_bytes(self) -> int:
        """Return the size of all its files."""
        return len(self.data) + sum(path.stat().st_size for path in self.weights.values())

    def copy_to(self, folder: pathlib.Path) -> None:
        """Copy all files of the model into a folder, the graph, last, as ``model.onnx``."""
        for location, path in self.weights.items():
            (folder / location).parent.mkdir(parents=True, exist_ok=True)
            with open(path, "rb") as source, replaced(folder / location) as file:  # which may be one file
                shutil.copyfileobj(source, file)
        with replaced(folder / "model.onnx") as file:
            file.write(self.data)


def read_model(path: StrPath) -> ModelFile:
    """Read a model, and check the files that its weights lie in.

    Raises
    ------
    ValueError
        The model cannot be read, or a file of weights is missing, too short, of another type, or outside of the folder
        of the model. One line, without the name of the model.
    ImportError
        Weights lie in files, and the package onnx, which reads their names, is missing.
    """
    path = pathlib.Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"the model cannot be read ({error.strerror}); give the path of an ONNX file") from None
    if _LOCATION not in data:
        return ModelFile(data)
    try:
        graph = parse(data)
    except ImportError as error:
        raise ImportError(f"{printable(path)}: models with weights in another file need onnx: {error}") from None
    tensors = [tensor for tensor in _tensors(graph) if tensor.data_location == tensor.EXTERNAL]
    if not tensors:
        return ModelFile(data)
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in tensors]
    folders = [path.parent.resolve(), path.resolve().parent]  # the second is another one where the model is a link
    weights = {location: _file_of(location, folders) for location in {place.get("location", "") for place in places}}
    folder = next((one for one in folders if all(file.is_relative_to(one) for file in weights.values())), None)
    if folder is None:
        links = ", ".join(f"{name} -> {file}" for name, file in weights.items() if not file.is_relative_to(folders[0]))
        raise ValueError(f"its weights lie outside of its folder ({printable(links)}): refused; copy them beside it")
    for tensor, place in zip(tensors, places, strict=True):
        _resolve(tensor, place, weights[place["location"]], folder)
    return ModelFile(data, weights, os.fspath(folder), graph)


def _n_nodes(graph: Any) -> int:
    inner = (one for node in graph.node for attribute in node.attribute for one in (attribute.g, *attribute.graphs))
    return len(graph.node) + sum(map(_n_nodes, inner))


def _file_of(location: str, folders: list[pathlib.Path]) -> pathlib.Path:
    """Return the real path of a file of weights.

    A link may lead into the folder of the model, and, where the model is a link itself, into the folder that this one
    leads to, as in the cache of a hub.
    """
    named = pathlib.PurePosixPath(location.replace("\\", "/"))
    shown = printable(location)
    if not named.name or location in _OF_EMBEDDERS:
        raise ValueError(f"names {shown!r} as the file of its weights, which cannot be: export it again")
    if named.is_absolute() or ".." in named.parts or ":" in named.parts[0]:
        raise ValueError(f"its weights lie outside of its folder ({shown}): refused; export it with weights beside it")
    file = next((folder / location for folder in folders if (folder / location).exists()), None)
    if file is None:
        raise ValueError(f"its weights are missing: put the file {shown} into {printable(folders[0])}")
    if not stat.S_ISREG(file.stat().st_mode):
        raise ValueError(f"its weights are missing: {shown} in {printable(folders[0])} is no file")
    return file.resolve()


def _resolve(tensor: Any, place: dict[str, str], file: pathlib.Path, folder: pathlib.Path) -> None:
    """Name the file of a tensor by its real path below the folder; take numbers that are few into the graph."""
    offset, length = _span(tensor, place, file)
    if length <= _INLINED:
        with open(file, "rb") as stream:
            stream.seek(offset)
            tensor.raw_data = stream.read(length)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = os.fspath(file.relative_to(folder))


def _span(tensor: Any, place: dict[str, str], file: pathlib.Path) -> tuple[int, int]:
    """Return the offset and the length in bytes of a tensor's numbers in its file, which must hold them."""
    name, size = printable(tensor.name), file.stat().st_size
    kind = tensor.DataType.Name(tensor.data_type) if tensor.data_type in tensor.DataType.values() else "STRING"
    try:
        offset = int(place.get("offset") or 0)
        length = int(place["length"]) if "length" in place else None
        if kind in ("UNDEFINED", "STRING") or offset < 0 or min([0, *tensor.dims]) < 0:
            raise ValueError
    except ValueError:
        raise ValueError(f"where the weights {name} lie makes no sense: export the model again") from None
    needed = -(-math.prod(tensor.dims) * _bits(tensor.data_type, kind) // 8)
    if length not in (None, needed):
        shape = " x ".join(map(str, tensor.dims)) or "1"
        raise ValueError(
            f"the weights {name} are {kind.lower()} of {shape}, {needed:,} bytes, and {printable(file.name)} has "
            f"{length:,}: they are of another type or model; export the model again"
        )
    if offset + needed > size:
        raise ValueError(
            f"its weights, {printable(file.name)}, are too short: {size:,} bytes, and {name} ends at "
            f"{offset + needed:,}; copy or export the file again"
        )
    return offset, needed


def _bits(data_type: int, kind: str) -> int:
    from onnx import helper

    return _BITS.get(kind) or 8 * helper.tensor_dtype_to_np_dtype(data_type).itemsize


def _tensors(message: Any) -> Iterator[Any]:
    """Yield all tensors of a model, those in attributes, functions and inner graphs, too."""
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                if descriptor.message_type.name == "TensorProto":
                    yield part
                else:
                    yield from _tensors(part)


def _file_sha256(path: pathlib.Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
