"""Vectors made elsewhere: a table with an id per vector."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from visterm.pipeline.console import Console, count, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages.extraction import Source
from visterm.pipeline.stages.vector_kinds import VectorKind
from visterm.pipeline.store.catalogue import Outcome
from visterm.pipeline.store.checksums import Record
from visterm.pipeline.store.files import publish, write_text
from visterm.pipeline.store.image_names import ImageNames
from visterm.pipeline.store.notes import Notes
from visterm.pipeline.store.paths import absolute
from visterm.pipeline.store.records import fingerprint
from visterm.pipeline.store.scan import Changes
from visterm.pipeline.store.vectors import ALIKE

from .network_vectors import model_settings, model_sha256

if TYPE_CHECKING:
    from visterm.features import VectorTable
    from visterm.pipeline.config.models import Settings

_LOOKED_FOR, _COMPARED = 1000, 8  # ids whose photos are looked for; photos that the model is tried on
SEGMENT_BYTES = 64_000_000  # per segment
_SAMPLE, _NEARLY_EQUAL = 200, 0.999  # vectors, and a cosine of all of them that tells next to nothing


def _least_cosine(table: VectorTable) -> float:
    """The least cosine among a sample of dense vectors; 0 for few, sparse or empty ones."""
    import numpy as np

    n = len(table.ids)
    if n < 10 or hasattr(table.X, "indptr"):
        return 0.0

    sample = table.rows(np.unique(np.arange(_SAMPLE) * n // _SAMPLE).tolist())
    return float((sample @ sample.T).min())


def _without_picture(root: Path, ids: Sequence[str]) -> str:
    """Say how many ids, of a sample where there are many, are no image below the root; empty if all are."""
    from visterm.features import printable

    some = ids[:: -(-len(ids) // _LOOKED_FOR)]
    absent = [id_ for id_ in some if not os.path.exists(root / id_)]
    if not absent:
        return ""
    if len(absent) == len(some):
        remedy = "their pictures are shown after 'visterm features IMAGES --vectors FILE'"
        return f"no id, such as {printable(absent[0])}, is an image below {root}; {remedy}"
    of = f"{len(absent):,} of {count(len(some), 'id')}" + " of a sample" * (len(some) < len(ids))
    return f"{of}, such as {printable(absent[0])}, are no image below {root}"


class _PrecomputedVectors(VectorKind):
    """Vectors made elsewhere, in a table with an id per vector; perhaps with the image model that made them.

    The model changes no vector: it embeds other photos and explains results.
    """

    _table: VectorTable  # by scan
    _digests: list[str]

    def settings(self) -> Settings:
        unit, precision = self.config.collection.vectors.unit, self.config.features.precision
        return {"vectors": {"unit": unit}, "features": {"precision": precision}}

    def inputs(self) -> Settings:
        inputs: Settings = {"n_features": self._table.X.shape[1], "dense": not hasattr(self._table.X, "indptr")}
        if self.config.features.kind == "onnx":  # not among the settings: no vector depends on it
            settings, old = model_settings(self.config.features.onnx), self.run.record(self.run.extractor)
            kept = {} if old is None or old["inputs"].get("onnx") != settings else old["inputs"]
            sha256 = model_sha256(self.config.features.onnx.model or "") or kept.get("model")
            inputs |= {"onnx": settings, "model": sha256}
        return inputs

    def scan(self, root: Path | None, *, force: bool) -> tuple[Path, Changes]:
        from visterm.features import printable, read_vectors

        source = self.config.collection.vectors
        assert source.file is not None
        if root is not None and not root.is_dir():
            raise UserError(f"{printable(root)}: no such folder; give the folder that holds the images")
        columns = source.model_dump(include={"vector_column", "id_column", "label_column"})
        try:
            table = read_vectors(source.file, source.ids, **columns)
        except ValueError as error:
            raise UserError(str(error)) from None
        root = absolute(root) if root is not None else self.catalogue.root
        has_photos = root is not None
        if root is None and all(map(os.path.isabs, table.ids)):
            root = Path(os.path.commonpath([os.path.dirname(id_) for id_ in table.ids]))
        # Without a directory of images the folder of the vectors is the root; it matters only once images are shown.
        root = root if root is not None else absolute(Path(source.file)).parent
        notes = Notes(Path(source.ids or source.file), skip_bad_rows=False)
        self._table = table = table._replace(ids=self._below(root, table.ids, notes if has_photos else None))
        self._digests, labels = table.digests(), table.labels
        changes = self.catalogue.take_vectors(
            root, table.ids, self._digests, labels, self.config, fields=table.fields, replace=force
        )
        changes.tables = "; ".join(filter(None, (table.source, _without_picture(root, table.ids))))
        changes.warnings = (*notes.lines(), *changes.warnings)
        if _least_cosine(table) > _NEARLY_EQUAL:
            changes.warnings += (
                f"vectors of {source.file} are nearly equal: the cosine of any two of a sample is over {_NEARLY_EQUAL};"
                " if one number outweighs the others, divide each column by its standard deviation",
            )
        return root, changes

    def _below(self, root: Path, names: Sequence[str], notes: Notes | None) -> list[str]:
        """Return ids relative to the root, of absolute paths and of those that begin with the root's last folders.

        Where neither is so, ids may be keys, as clip-retrieval writes them of shards: the only photo of this name.
        """
        from visterm.features import find_images, printable

        source = self.config.collection.vectors
        some = names[:: -(-len(names) // _LOOKED_FOR)]

        def fits(end: str) -> tuple[int, int]:
            """Count which of some ids are known without this beginning, and which are images; the most are right."""
            ids = [name.removeprefix(end) for name in some]
            return len(self.catalogue.known(ids)), sum(os.path.exists(root / id_) for id_ in ids)

        ends = [os.path.join(*root.parts[i:], "") for i in range(len(root.parts))]
        prefix = max([ends[0], *(end for end in ends[1:] if all(name.startswith(end) for name in names))], key=fits)
        ids = [name.removeprefix(prefix) for name in names]
        if notes is not None and not fits(prefix)[1]:
            known = self.catalogue.known()
            if not known.keys() >= set(ids):
                photos = ImageNames({os.path.relpath(path, root) for path in find_images(root)}, root)
                ids = [id_ if id_ in known else photos.near(id_, notes) or id_ for id_ in ids]
        for id_ in ids:
            if os.path.isabs(id_) or os.pardir in id_.split(os.sep):
                raise UserError(
                    f"{source.ids or source.file}: the id {printable(id_)!r} is a path outside of {root}; give a "
                    "directory above all images: visterm features IMAGES --vectors FILE"
                )
        if len(set(ids)) < len(ids):
            raise UserError(
                f"{source.ids or source.file}: an image has two ids, one absolute and one relative to {root}"
            )
        return ids

    def any_readable(self, root: Path) -> bool:
        return True

    def _make_extractor(self, record: Record, root: Path, console: Console) -> None:
        shape = {name: record["inputs"][name] for name in ("n_features", "dense")}
        with publish(self.run.extractor, record) as folder:
            write_text(folder / "files" / "vectors.json", json.dumps(shape))
            if self.config.features.kind == "onnx":
                self._keep_model(folder / "files", root, console)
            record["n_features"] = shape["n_features"]
            record["content"] = fingerprint(record["config"], shape)  # without the model: learners stay up to date

    def _keep_model(self, folder: Path, root: Path, console: Console) -> None:
        """Check that the model makes the imported vectors, on some photos, and copy it; UserError if it does not."""
        import numpy as np

        from visterm.features import OnnxEmbedder, silence_decoders

        silence_decoders()
        unit = self.config.collection.vectors.unit
        settings = self.config.features.onnx.model_dump() | {"unit": unit}
        try:
            embedder = OnnxEmbedder(**settings, max_pixels=self.config.collection.max_pixels).fit()
            shape, n = self._table.X.shape, embedder.n_features_out_
            if n != shape[1] or hasattr(self._table.X, "indptr"):
                raise ValueError(f"{one_line(str(embedder.model))}: gives {n:,} numbers, and vectors have {shape[1]:,}")
            rows = [row for row, id_ in enumerate(self._table.ids[:_LOOKED_FOR]) if (root / id_).is_file()][:_COMPARED]
            made = embedder.transform([root / self._table.ids[row] for row in rows])
            embedder.save(folder)
        except (ValueError, ImportError) as error:
            raise UserError(str(error)) from None
        if not rows:
            console.say(f"{root}: no photos of the vectors here to compare with those of the model")
            return
        stored = self._table.rows(rows, unit=unit)
        lengths = np.linalg.norm(made, axis=1) * np.linalg.norm(stored, axis=1)
        cosine = float(np.median((made * stored).sum(axis=1) / np.maximum(lengths, 1e-12)))
        if cosine < ALIKE:
            raise UserError(
                f"{one_line(str(embedder.model))}: its vectors are not those that were imported (cosine {cosine:.2f}, "
                f"median of {count(len(rows), 'photo')}): set features.onnx.preprocess, layer, pool, resize as then"
            )
        console.say(f"the model makes the imported vectors: cosine {cosine:.3f}, median of {count(len(rows), 'photo')}")

    def source(self, root: Path) -> Source:
        rows = {id_: row for row, id_ in enumerate(self._table.ids)}
        unit, precision = self.config.collection.vectors.unit, self.config.features.precision
        return _TableSource(self._table, rows, self._digests, unit, precision)


@dataclass(frozen=True)
class _TableSource:
    """A table in memory."""

    title: ClassVar[str] = "importing vectors"
    noun: ClassVar[str] = "vectors"
    parallel: ClassVar[bool] = False

    table: VectorTable
    row_of: dict[str, int]
    digests: Sequence[str]
    unit: bool
    precision: str

    @property
    def segment_size(self) -> int:
        """Vectors per segment."""
        return max(1, SEGMENT_BYTES // (4 * self.table.X.shape[1]))

    def vectors(self, images: Sequence[tuple[int, str]], parent: int) -> tuple[list[Outcome], Any]:
        """Return an outcome per vector, and the vectors."""
        rows = [self.row_of[path] for _, path in images]
        outcomes = [
            Outcome(id_, self.digests[row], None, None, i, None)
            for i, ((id_, _), row) in enumerate(zip(images, rows, strict=True))
        ]
        return outcomes, self.table.rows(rows, unit=self.unit)
