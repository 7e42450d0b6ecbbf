"""Runs without visterms: vectors that were made elsewhere, and those of an ONNX image model."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Collection, Outcome
from visterm.pipeline.store.files import file_sha256, publish, write_text
from visterm.pipeline.store.records import fingerprint, is_fresh, make_record, read_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.segments import write_segment
from visterm.pipeline.store.vectors import extractor_content

if TYPE_CHECKING:
    from visterm.features import VectorTable


SEGMENT_BYTES = 64_000_000  # of vectors taken over at once


def extractor_config(config: Config) -> dict[str, Any]:
    """What the configuration says of how vectors are made, as records of extractors hold it."""
    if config.collection.vectors.file is not None:
        return {"vectors": {"unit": config.collection.vectors.unit}}
    if config.features.kind == "onnx":  # the model itself is known by its SHA-256, wherever it lies
        return {"features": {"kind": "onnx", "onnx": config.features.onnx.model_dump(exclude={"model"})}}
    return {"features": config.features.model_dump(exclude={"kind", "onnx"}), "seed": config.seed}


def fit_embedder(run: Run, config: Config, console: Console, *, force: bool) -> str:
    """Check the ONNX model and copy it into the run, if it is not there; return the fingerprint of the extractor.

    Once it is there, the file that it came from may go.
    """
    sha256 = file_sha256(config.features.onnx.model or "")
    record = make_record("extractor", extractor_config(config), {"model": sha256})
    if sha256 is None and not force:
        old = read_record(run.extractor)
        if old is not None and old["config"] == record["config"]:
            record["inputs"] = old["inputs"]
    if not force and is_fresh(run.extractor, record):
        return extractor_content(run)
    from visterm.features import OnnxEmbedder, silence_decoders

    silence_decoders()
    embedder = OnnxEmbedder(**config.features.onnx.model_dump(), max_pixels=config.collection.max_pixels)
    with console.phase("checking the model"), publish(run.extractor, record) as folder:
        try:
            embedder.fit()
            embedder.save(folder / "files")
        except (ValueError, ImportError) as error:
            raise UserError(str(error)) from None
        record["n_features"] = embedder.n_features_out_
        record["content"] = fingerprint(record["config"], embedder.sha256_)
    return extractor_content(run)


def read_table(config: Config, root: Path | None) -> tuple[VectorTable, Path]:
    """Read the vectors that the configuration names, with ids relative to the root of the images, and that root.

    Without a root it is the folder of the vectors: whether there are images below it does not matter before one is
    shown.
    """
    from visterm.features import printable, read_vectors

    given = config.collection.vectors
    assert given.file is not None
    columns = given.model_dump(include={"vector_column", "id_column", "label_column"})
    try:
        table = read_vectors(given.file, given.ids, **columns)
    except ValueError as error:
        raise UserError(str(error)) from None
    root = root if root is not None else Path(given.file).absolute().parent
    prefix = os.path.join(root, "")
    ids = [one.removeprefix(prefix) for one in table.ids]
    for one in ids:
        if os.path.isabs(one) or os.pardir in one.split(os.sep):
            raise UserError(
                f"{given.ids or given.file}: the id {printable(one)!r} is a path outside of {root}; give a directory "
                "above all images: visterm features IMAGES --vectors FILE"
            )
    if len(set(ids)) < len(ids):
        raise UserError(f"{given.ids or given.file}: some image has two ids, one absolute and one relative to {root}")
    return table._replace(ids=ids), root


def fit_table(run: Run, config: Config, table: VectorTable, *, force: bool) -> str:
    """Note what kind of vectors the run has; return the fingerprint of that."""
    kind = {"n_features": table.X.shape[1], "dense": not hasattr(table.X, "indptr")}
    record = make_record("extractor", extractor_config(config), kind)
    if not force and is_fresh(run.extractor, record):
        return extractor_content(run)
    with publish(run.extractor, record) as folder:
        write_text(folder / "files" / "vectors.json", json.dumps(kind))
        record["n_features"] = table.X.shape[1]
        record["content"] = fingerprint(record["config"], kind)
    return extractor_content(run)


def copy_table(
    config: Config, collection: Collection, table: VectorTable, digests: Sequence[str], console: Console
) -> int:
    """Take pending vectors over, a segment at a time; return how many."""
    pending = collection.pending()
    place = {one: row for row, one in enumerate(table.ids)}
    size = max(1, SEGMENT_BYTES // (4 * table.X.shape[1]))
    chunks = [pending[i : i + size] for i in range(0, len(pending), size)]
    first = collection.reserve_segments(len(chunks)) if chunks else 0
    with console.phase("taking vectors over", len(pending), "vectors") as phase:
        for i, chunk in enumerate(chunks):
            rows = [place[one] for _, one in chunk]
            X = table.rows(rows, unit=config.collection.vectors.unit)
            write_segment(collection.segments / str(first + i), X)
            outcomes = [
                Outcome(id_, digests[row], None, None, n, None)
                for n, ((id_, _), row) in enumerate(zip(chunk, rows, strict=True))
            ]
            collection.enter_segment(first + i, outcomes)
            phase.advance_to(min((i + 1) * size, len(pending)))
    return len(pending)
