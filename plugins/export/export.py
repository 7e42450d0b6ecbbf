"""The stage export: a learned similarity and the gallery, in files that other programs read without visterm."""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypedDict

from visterm.extras import how_to_install
from visterm.files import replaced
from visterm.pipeline.console import Console, count, csv_text
from visterm.pipeline.errors import UserError, naming
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.fields import FieldsRow, read_fields
from visterm.pipeline.store.files import discard_leftovers, write_text
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.models import check_learners, load_trained, warn_if_stale
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.supervision import with_refused
from visterm.pipeline.store.vectors import extractor_content, extractor_of, vectors_by_rows

from .provenance import FILE, Provenance, ids_since, in_files, provenance

if TYPE_CHECKING:
    from visterm.learners.maps import Chain

PRECISIONS = ("float32", "float16", "int8")
_GALLERIES = {"npz": ["similarity.npz"], "parquet": ["gallery.parquet"], "faiss": ["gallery.faiss", "images.csv"]}
_BLOCK = 4096  # images whose gallery sides are computed at a time
_MOST_FAISS = 8_000_000_000  # bytes of an index, which FAISS holds in memory


class _Similarity(NamedTuple):
    """Contents of an export."""

    images: Sequence[Image]
    X: Any  # (n, n_features), CSR or dense
    learner: Any  # or a `Blend`
    chain: Chain | None  # the query side
    run: Run
    fields: Mapping[int, FieldsRow]
    origin: Provenance

    def blocks(self) -> Iterator[tuple[slice, Any, Any]]:
        """The gallery sides of some images at a time, CSR or dense, of the precision, with the scale of int8."""
        for start in range(0, self.X.shape[0], _BLOCK):
            rows = slice(start, start + _BLOCK)
            yield rows, *rounded(self.learner.transform(self.X[rows]), self.origin["precision"])

    def is_sparse(self) -> bool:
        """Whether the gallery sides are CSR."""
        return hasattr(self.learner.transform(self.X[:1]), "indptr")

    def columns(self, rows: slice) -> dict[str, list[str]]:
        """What is said of each of some images, beside id and labels."""
        images = self.images[rows]
        said = [self.fields.get(image.id, FieldsRow("", "", {})) for image in images]
        return {
            "path": [_utf8(image.path) for image in images],
            "split": [image.split or "" for image in images],
            "sha256": [image.sha256 for image in images],
            "date": [one.date for one in said],
            "fields": [_utf8(json.dumps(one.given, ensure_ascii=False)) for one in said],
        }

    def needs_chain(self, name: str, kind: str) -> Chain:
        """The query side as products; UserError where it needs other steps."""
        from visterm.learners.maps import as_chain

        if self.chain is None:
            whole, share = self.learner, getattr(self.learner, "learned_weight", 1)
            if share != 1:
                name, whole = f"{name}, of which {share:g} counts,", self.learner.learner
            advice = "use --to onnx"
            if as_chain(whole.query_map(), self.X.shape[1]) is not None:
                advice += ", or --learned-weight 1"
            raise UserError(f"the query side of {name} is more than products of matrices: no {kind}; {advice}")
        return self.chain


class Exported(TypedDict):
    """Result of `export`."""

    run: str
    learner: str
    learned_weight: float  # of the learner beside cosine
    n_images: int
    n_removed: int  # since the earlier export
    files: list[str]


def rounded(side: Any, precision: str) -> tuple[Any, Any]:
    """Return gallery sides in a precision, and of int8 the float32 factor of each row, else None."""
    import numpy as np

    if precision == "float32":
        return side, None
    if precision == "float16":
        with np.errstate(over="ignore"):
            half = side.astype(np.float16)
        if not np.isfinite(half).all():
            raise UserError("--precision float16: the gallery has numbers above 65,504; use int8")
        return half, None
    scale = np.maximum(np.abs(side).max(axis=1), np.float32(1e-30)) / np.float32(127)
    return np.rint(side / scale[:, None]).astype(np.int8), scale


def export(
    run: Run,
    name: str,
    kinds: Sequence[str],
    folder: Path,
    console: Console,
    *,
    learned_weight: float | None = None,
    precision: str = "float32",
    since: Path | None = None,
) -> Exported:
    """Write a similarity and the gallery for other programs, in `kinds` of FORMATS.

    The folder is made if there is none, but no folder above it. Files of the same names are overwritten, each in one
    step. `learned_weight` is the weight of the learned similarity, by default chosen in training; `precision`, one of
    PRECISIONS, that of a dense gallery. `since` is the folder of an earlier export: the gallery has the images alone
    that it lacks, and removed.csv the ids of those that are gone.

    UserError if there is nothing to export, a learner is not trained or cannot be exported, or a package is missing;
    nothing is written then.
    """
    from visterm.learners.blend import effective
    from visterm.learners.maps import as_chain

    check_learners([name])
    for kind in kinds:
        if kind not in FORMATS:
            raise UserError(f"--to {kind}: formats are {', '.join(FORMATS)}")
    if precision not in PRECISIONS:
        raise UserError(f"--precision {precision}: precisions are {', '.join(PRECISIONS)}")
    if since is not None and since.absolute() == folder.absolute():
        raise UserError(f"--since {since}: this export would overwrite it; name another folder by --output")
    with Collection(run.collection) as collection:
        content, images = extractor_content(run), collection.images()
        if not images or collection["extractor"] != content:
            raise UserError(f"run {run.name}: nothing to export yet; run 'visterm features {run.option}' first")
        learner = load_trained(run, name)
        labelled, every = collection.images("train", "validation", labelled=True), images
        warn_if_stale(run, name, with_refused(run, labelled, lambda: every), console)
        similarity = effective(learner, learned_weight)
        try:
            origin = provenance(run, name, similarity, images, precision)
        except NotImplementedError as error:
            raise UserError(f"{name}: {error}") from None
        earlier = ids_since(since, origin) if since is not None else set()
        outdated: list[str] = []  # of an export before into this folder, whose images are not new
        removed = sorted(earlier - {image.id for image in images})
        if earlier:
            images = [image for image in images if image.id not in earlier]
            outdated = [] if images else [file for kind in kinds for file in _GALLERIES.get(kind, ())]
            kinds = kinds if images else ()
        X: Any = vectors_by_rows(run, collection, images) if images else None
        fields = read_fields(collection)
    chain = as_chain(similarity.query_map(), X.shape[1]) if images else None
    exported = _Similarity(images, X, similarity, chain, run, fields, origin)
    if precision != "float32" and images and exported.is_sparse():
        raise UserError(f"--precision {precision}: for dense galleries, and that of run {run.name} is sparse")
    writers = [FORMATS[kind](name, exported) for kind in dict.fromkeys(kinds)]  # checks before anything is written
    if not folder.absolute().parent.is_dir():
        raise UserError(f"--output {folder}: no such folder: {folder.parent}")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder}: this is a file; name a folder")
    folder.mkdir(exist_ok=True)
    for file in (*(file for file, _ in writers), "images.csv", "removed.csv", FILE):
        discard_leftovers(folder / file)
    for file in outdated:
        (folder / file).unlink(missing_ok=True)
    files = []
    with console.phase(f"writing {count(len(images), 'image')}", len(writers), "formats") as phase:
        for done, (file, write) in enumerate(writers, start=1):
            with naming(folder / file), replaced(folder / file) as stream:
                write(stream)
            files.append(folder / file)
            phase.advance_to(done, note=file)
    texts = {FILE: json.dumps(origin, indent=1)}
    if "faiss" in kinds:
        columns = exported.columns(slice(None))
        rows = zip((image.id for image in images), map(_labels, images), *columns.values(), strict=True)
        texts["images.csv"] = csv_text(["id", "labels", *columns], rows)
    if since is not None:
        texts["removed.csv"] = csv_text(["id"], ([id_] for id_ in removed))
    for file, text in texts.items():
        write_text(folder / file, text)
        files.append(folder / file)
    return {
        "run": run.name,
        "learner": name,
        "learned_weight": origin["learned_weight"],
        "n_images": len(images),
        "n_removed": len(removed),
        "files": [str(file) for file in files],
    }


Writer = tuple[str, Callable[[IO[bytes]], Any]]


def _as_npz(name: str, exported: _Similarity) -> Writer:
    import numpy as np
    from scipy import sparse

    chain = exported.needs_chain(name, "npz file")

    def write(stream: IO[bytes]) -> None:
        arrays: dict[str, Any] = {
            "id": np.array([image.id for image in exported.images]),
            "label": np.array([_labels(image) for image in exported.images]),
            "unit": np.array(chain.unit),
            "provenance": np.array(in_files(exported.origin)),
        }
        arrays |= {key: np.array(texts) for key, texts in exported.columns(slice(None)).items()}
        for number, step in enumerate((chain.first, chain.second), start=1):
            if step is not None:
                offset = np.zeros(step.matrix.shape[1], np.float32) if step.offset is None else step.offset
                arrays |= {f"map{number}": np.asarray(step.matrix), f"offset{number}": offset}
        if exported.is_sparse():  # the names of scipy.sparse.load_npz
            gallery = sparse.csr_array(sparse.vstack([side for _, side, _ in exported.blocks()]))
            arrays |= {name: getattr(gallery, name) for name in ("data", "indices", "indptr", "shape")}
            arrays["format"] = np.array(b"csr")
        with zipfile.ZipFile(stream, "w") as file:  # as np.savez, which would take all vectors at once
            for key, array in arrays.items():
                with file.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.save(member, np.asanyarray(array), allow_pickle=False)
            if not exported.is_sparse():
                _, first, _ = next(exported.blocks())
                shape, scales = (len(exported.images), first.shape[1]), []
                header = {"descr": first.dtype.str, "fortran_order": False, "shape": shape}
                with file.open("vector.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    for _, side, scale in exported.blocks():
                        member.write(np.ascontiguousarray(side).data)
                        scales += [] if scale is None else [scale]
                if scales:
                    with file.open("scale.npy", "w") as member:
                        np.save(member, np.concatenate(scales))

    return "similarity.npz", write


def _as_onnx(name: str, exported: _Similarity) -> Writer:
    from visterm.learners import to_onnx

    try:
        model = to_onnx(exported.learner)
    except (ImportError, ValueError) as error:
        raise UserError(f"{name}: {error}") from None
    return "similarity.onnx", lambda stream: stream.write(_with_origin(model, exported.origin))


def _as_pixels(name: str, exported: _Similarity) -> Writer:
    from visterm.learners import to_onnx
    from visterm.plugins.vectors.onnx_embedder import OnnxEmbedder

    from .pixels import pixels_to_query

    embedder, record = extractor_of(exported.run), exported.run.record(exported.run.extractor) or {}
    if not isinstance(embedder, OnnxEmbedder):
        raise UserError(
            f"--to pixels: run {exported.run.name} has no network; make one: 'visterm features IMAGES --deep'"
        )
    try:
        rounded = record["config"]["features"]["precision"] == "float16"
        model = pixels_to_query(embedder.fit(), to_onnx(exported.learner), rounded=rounded)
    except (ImportError, ValueError) as error:
        raise UserError(f"{name}: {error}") from None
    return "pixels.onnx", lambda stream: stream.write(_with_origin(model, exported.origin))


def _with_origin(model: bytes, origin: Provenance) -> bytes:
    """Return an ONNX model whose metadata say where it comes from."""
    import onnx

    parsed = onnx.load_from_string(model)
    parsed.metadata_props.add(key="visterm.provenance", value=in_files(origin))
    return parsed.SerializeToString()


def _as_parquet(name: str, exported: _Similarity) -> Writer:
    pa = _package("pyarrow", "parquet")
    parquet = importlib.import_module("pyarrow.parquet")

    def batch(rows: slice, side: Any, scale: Any) -> Any:
        import numpy as np
        from scipy import sparse

        images = exported.images[rows]
        labels = [[_utf8(label) for label in sorted(image.labels)] for image in images]
        columns = {
            "id": pa.array([image.id for image in images], pa.int64()),
            "labels": pa.array(labels, pa.list_(pa.string())),
            **{key: pa.array(texts, pa.string()) for key, texts in exported.columns(rows).items()},
        }
        if sparse.issparse(side):
            ends = side.indptr.astype(np.int32)
            for key, values in (("columns", side.indices.astype(np.int32)), ("values", side.data)):
                columns[key] = pa.ListArray.from_arrays(ends, values)
        else:
            columns["vector"] = pa.FixedSizeListArray.from_arrays(np.asarray(side).ravel(), side.shape[1])
        if scale is not None:
            columns["scale"] = pa.array(scale)
        return pa.table(columns).replace_schema_metadata({"visterm.provenance": in_files(exported.origin)})

    def write(stream: IO[bytes]) -> None:
        writer = None
        for block in exported.blocks():
            table = batch(*block)
            writer = writer or parquet.ParquetWriter(stream, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()

    return "gallery.parquet", write


def _as_faiss(name: str, exported: _Similarity) -> Writer:
    import numpy as np
    from scipy import sparse

    faiss = _package("faiss", "ann")
    chain = exported.needs_chain(name, "index of FAISS")
    size, precision = exported.learner.transform(exported.X[:1]).shape[1], exported.origin["precision"]
    if precision == "int8":
        raise UserError("--precision int8: FAISS has no scale per row; use --precision float16, or --to npz")
    if (n_bytes := 4 * size * len(exported.images)) > _MOST_FAISS:
        raise UserError(
            f"FAISS holds dense vectors: {count(len(exported.images), 'image')} with {size:,} numbers take "
            f"{n_bytes / 1e9:.0f} GB; use --to npz, or --to parquet"
        )

    def write(stream: IO[bytes]) -> None:
        flat = faiss.IndexFlatIP(size)
        if precision == "float16":
            flat = faiss.IndexScalarQuantizer(size, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
        inner = faiss.IndexIDMap2(flat)
        ids = np.array([image.id for image in exported.images])
        for rows, side, _ in exported.blocks():
            dense = side.toarray() if sparse.issparse(side) else np.ascontiguousarray(side)
            inner.add_with_ids(dense.astype(np.float32, copy=False), ids[rows])
        index = faiss.IndexPreTransform(inner)
        for transform in reversed(_faiss_transforms(faiss, chain, exported.X.shape[1])):
            index.prepend_transform(transform)  # of the queries: the gallery has been added behind it
        faiss.write_index(index, faiss.PyCallbackIOWriter(stream.write))

    return "gallery.faiss", write


def _faiss_transforms(faiss: Any, chain: Chain, width: int) -> list[Any]:
    import numpy as np

    transforms = []
    for step in (chain.first, chain.unit, chain.second):
        if step is True:
            transforms.append(faiss.NormalizationTransform(width, 2.0))
        elif step:
            transform = faiss.LinearTransform(width, step.matrix.shape[1], step.offset is not None)
            width = step.matrix.shape[1]
            faiss.copy_array_to_vector(np.ascontiguousarray(step.matrix.T).ravel(), transform.A)
            if step.offset is not None:
                faiss.copy_array_to_vector(np.ascontiguousarray(step.offset, np.float32), transform.b)
            transform.is_trained = True
            transforms.append(transform)
    return transforms


FORMATS: dict[str, Callable[[str, _Similarity], Writer]] = {
    "npz": _as_npz,
    "onnx": _as_onnx,
    "pixels": _as_pixels,
    "parquet": _as_parquet,
    "faiss": _as_faiss,
}


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"this export needs {name}: {how_to_install(extra)}") from None


def _labels(image: Image) -> str:
    return _utf8(";".join(sorted(image.labels)))


def _utf8(text: str) -> str:
    """Escape the bytes of a file name that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
