"""The kinds of vectors that a run can have: visterms, vectors of a network, or a table of precomputed vectors."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from visterm.pipeline.config.plain import NOT_OF_VISTERMS
from visterm.pipeline.console import Console, count, one_line, told_of_compiling
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load
from visterm.pipeline.store.as_new import keep_counts_as_new, save_counts_as_new
from visterm.pipeline.store.checksums import Record
from visterm.pipeline.store.files import file_sha256, publish
from visterm.pipeline.store.opened import OpenedRun
from visterm.pipeline.store.paths import absolute
from visterm.pipeline.store.records import fingerprint, is_up_to_date, make_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.scan import Changes
from visterm.pipeline.store.segments import has_segments
from visterm.pipeline.store.vectors import extractor_content, extractor_of, reading_of, supervision_of
from visterm.pipeline.workers import connected

from .extraction import ImageSource, Source, try_read

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config, Settings

_AT_ONCE = 20_000  # images whose counts are read at a time
# What a record keeps when idf alone is learned again.
_OF_CODEBOOK = ("training_images", "learned_from", "last_image", "held_out", "reading")
HELD_OUT = 0.2  # share of each label's training images that are measured as new ones, as learners hold out


def needs_directory(run: Run, config: Config) -> bool:
    """Return whether the directory of images must be given: a run has none yet, and no table of vectors is named."""
    catalogue = run.collection / "catalogue.sqlite"
    known = os.path.lexists(catalogue) or has_segments(catalogue.with_name("segments"))
    return config.collection.vectors.file is None and not known


def vector_kind(run: OpenedRun) -> VectorKind:
    """Return the kind of vectors that the configuration asks for."""
    name = run.config.features.kind if run.config.collection.vectors.file is None else "table"
    kind: type[VectorKind] = _VistermVectors if name == "visterms" else load(f"vectors of kind {name}")
    return kind(run)


def changed_settings(run: OpenedRun) -> str:
    """Describe how settings differ from those that the extractor of a run was made with; empty if they do not."""
    record = run.record(run.extractor)
    if record is None:
        return ""
    old, new = flat(record["config"]), flat(vector_kind(run).settings())
    missing = object()
    keys = [key for key in old | new if old.get(key, missing) != new.get(key, missing)]
    if len(keys) != 1 or keys[0] not in old or keys[0] not in new:
        return f"{', '.join(keys)} differ from those it was made with" if keys else ""
    return f"made with {keys[0]}={json.dumps(old[keys[0]])}, now {json.dumps(new[keys[0]])}"


def reweight(run: OpenedRun) -> None:
    """Change how counts become weights, if that alone differs: palette, codebook, idf and counts stay as they are.

    A kill in between leaves counts that seem to be of another extractor, and `features` extracts them again.
    """
    settings, old = vector_kind(run).settings(), run.record(run.extractor)
    weights = settings.get("features", {}).get("weighting")
    if old is None or weights is None or old["config"] == settings or run.catalogue["extractor"] != old["content"]:
        return
    if old["config"] | {"features": old["config"]["features"] | {"weighting": weights}} != settings:
        return
    extractor: Any = copy.copy(extractor_of(run))
    extractor.set_params(**weights)
    _replace_extractor(run, extractor, make_record("extractor", settings, old["inputs"]), old)


def _replace_extractor(run: OpenedRun, extractor: Any, record: dict[str, Any], old: dict[str, Any]) -> None:
    """Publish an extractor in place of one with the same codebook and counts."""
    with publish(run.extractor, record) as folder:
        extractor.save(folder / "files")
        keep_counts_as_new(run, folder)
        record |= {key: old[key] for key in _OF_CODEBOOK if key in old}
        record["content"] = _content(record, folder)
    run.catalogue["extractor"] = record["content"]


def _say_centers(extractor: Any, n_visterms: int, console: Console) -> None:
    """Say where the training images had blocks for fewer visterms than asked for."""
    from visterm.features.cells import n_cells

    made = len(extractor.codebook_.centers_) * n_cells(extractor.cells)
    if made < n_visterms - n_cells(extractor.cells):
        console.say(
            f"{made:,} of {n_visterms:,} visterms are used, as each needs four blocks of the training images; more or "
            "larger images give more"
        )


def learned_from(run: OpenedRun) -> list[str] | None:
    """Return the paths of the images that a codebook was made from, in their order; None if it would be others now."""
    kind, root = vector_kind(run), run.catalogue.root
    if root is None or not isinstance(kind, _VistermVectors):
        return None
    paths = kind._training_images(root)[0]
    digest = (run.record(run.extractor) or {}).get("learned_from")
    return paths if digest == _digest(run.catalogue.ids_of(paths)) else None


def _digest(ids: Sequence[int]) -> str:
    return hashlib.sha256(repr(ids).encode()).hexdigest()


def _content(record: Record, folder: Path) -> str:
    """Return the fingerprint of visterms: settings, palette, codebook and idf."""
    arrays = [[path.name, file_sha256(path)] for path in sorted((folder / "files").glob("*.npy"))]
    return fingerprint(record["config"], arrays, *([record["reading"]] if "reading" in record else []))


def flat(settings: Settings, prefix: str = "") -> Settings:
    """Return nested settings by their full names, section.key."""
    by_name: Settings = {}
    for key, value in settings.items():
        by_name |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return by_name


class VectorKind(ABC):
    """One way to get the vectors of a run; its methods are called in the order `scan`, `fit`, `source`."""

    made_again: ClassVar[str] = "its vectors are made again"  # where settings have changed

    def __init__(self, run: OpenedRun):
        self.run, self.config, self.catalogue = run, run.config, run.catalogue

    @abstractmethod
    def settings(self) -> Settings:
        """Return the part of the configuration that the vectors depend on, as the extractor's record holds it."""

    @abstractmethod
    def inputs(self) -> Settings:
        """Return the fingerprints of everything else that the extractor depends on."""

    @abstractmethod
    def scan(self, root: Path | None, *, force: bool) -> tuple[Path, Changes]:
        """Enter new, changed and removed images; return the root of the images and the changes."""

    @abstractmethod
    def any_readable(self, root: Path) -> bool:
        """Return whether there is anything to fit; if not, enter why each image was skipped."""

    def fit(self, root: Path, console: Console, *, force: bool) -> str:
        """Make the extractor unless it is up to date; return its fingerprint."""
        record, changes = make_record("extractor", self.settings(), self.inputs()), ""
        if force or not is_up_to_date(self.run.extractor, record):
            try:
                changes = changed_settings(self.run) or self._changed_model(record)
            except UserError:
                if not force:  # which overwrites a damaged record
                    raise
            if changes:
                console.say(f"run {self.run.name}: {changes}; {self.made_again}")
            self._make_extractor(record, root, console)
        return extractor_content(self.run)

    def _changed_model(self, record: Record) -> str:
        """Describe how the model differs from the one that the extractor of the run was made with; empty if not."""
        return ""

    @abstractmethod
    def _make_extractor(self, record: Record, root: Path, console: Console) -> None:
        """Learn, check or note what turns images into vectors; publish it with its record."""

    @abstractmethod
    def source(self, root: Path) -> Source:
        """Return what extracts one segment."""

    def finish(self) -> None:  # noqa: B027  # nothing by default
        """Complete the extractor once all images are extracted."""


class _ImageVectors(VectorKind):
    """Vectors that are computed from the images of a directory."""

    def scan(self, root: Path | None, *, force: bool) -> tuple[Path, Changes]:
        root = absolute(root) if root is not None else self.catalogue.root
        if root is None:
            raise UserError(f"run {self.run.name} has no images yet; give their directory: visterm features IMAGES")
        read_pixels = reading_of(self.run, self.config.collection.max_pixels)
        return root, self.catalogue.scan(root, self.config, replace=force, read_pixels=read_pixels)

    def any_readable(self, root: Path) -> bool:
        if self.catalogue.counts_by("status")["ok"]:
            return True
        from visterm.features import silence_decoders

        silence_decoders()
        training = set(self.catalogue.training_paths())
        skipped = []
        for id_, path in self.catalogue.pending():
            if path in training:
                outcome, pixels = try_read(id_, root / path, self.config.collection.max_pixels)
                if pixels is not None:
                    return True
                skipped.append(outcome)
        self.catalogue.enter_segment(0, skipped)
        return False

    def source(self, root: Path) -> Source:
        return ImageSource.of(self.run, root)

    def _white(self, root: Path, console: Console) -> int:
        """Return the level of white of files of more than 8 bits, as most training images have it; say it."""
        from visterm.features.images import MAX_WHITE, common_white

        paths = [root / path for path in self.catalogue.training_paths()]
        common = common_white(paths, max_pixels=self.config.collection.max_pixels)
        if 0 < common.white < MAX_WHITE:
            rest = "files that declare another, or whose brightest level is that of fewer bits, keep theirs"
            console.say(f"files of more than 8 bits: white is {common.white:,}, as half of them need it; {rest}")
        if common.dim:
            console.warn(
                f"{len(common.dim):,} of {count(common.n_images, 'file')} of more than 8 bits need less and stay dim, "
                f"such as {one_line(os.fspath(common.dim[0]))}: where they are of fewer bits and not dim, a tag "
                "SMaxSampleValue (TIFF) or a chunk sBIT (PNG) says so"
            )
        return common.white


class _VistermVectors(_ImageVectors):
    """Visterm counts; palette, codebook and idf are learned from the training images."""

    made_again = "its visterms are learned and extracted again"

    def settings(self) -> Settings:
        return {"features": self.config.features.model_dump(exclude=set(NOT_OF_VISTERMS)), "seed": self.config.seed}

    def fit(self, root: Path, console: Console, *, force: bool) -> str:
        if not force:
            reweight(self.run)
        return super().fit(root, console, force=force)

    def inputs(self) -> Settings:
        # Only the split: if new images made the extractor stale, each would change the vectors of all others.
        return {"split": self.catalogue["split"]}

    def _make_extractor(self, record: Record, root: Path, console: Console) -> None:
        from visterm.features import VistermExtractor, silence_decoders

        paths, y, held_out, measured = self._training_images(root)
        features = self.config.features
        silence_decoders()
        extractor = VistermExtractor(
            **features.of_extractor(),
            max_pixels=self.config.collection.max_pixels,
            white=self._white(root, console),
            random_state=self.config.seed,
            n_jobs=self.config.compute.n_jobs,
            on_error="skip",
        )
        title = f"learning {count(features.n_visterms, 'visterm')} from {count(len(paths), 'training image')}"
        with (
            connected(self.config, self.run, root / paths[0]) as cluster,
            told_of_compiling(console),
            console.phase(title, unit="images") as phase,
            publish(self.run.extractor, record) as folder,
        ):
            distribute = None if cluster is None else cluster.map
            images = [root / path for path in paths]
            of_few, of_all = ([i for i, path in enumerate(paths) if path in group] for group in measured)
            groups = [group for group in (of_few, of_all if len(of_all) > len(of_few) else []) if group]
            try:
                with warnings.catch_warnings(action="ignore", category=UserWarning):  # unreadable: reported at the end
                    extractor.fit(images, y, callback=phase.advance_to, distribute=distribute, held_out=groups)
            except ValueError as error:
                raise UserError(f"{root}: {error}") from None
            extractor.save(folder / "files")
            if groups:
                save_counts_as_new(folder, self.catalogue.ids_of(paths), groups, extractor.held_out_counts_)
            record["reading"] = extractor.rules._asdict()
            record["training_images"] = extractor.weighting_.n_images_
            record["learned_from"] = _digest(self.catalogue.ids_of(paths))
            if extractor.palette_ is not None:
                _say_centers(extractor, features.n_visterms, console)
            if len(paths) < len(self.catalogue.training_paths()):
                record["idf_of"] = "sample"  # until `finish` has the counts of all
            if held_out:
                record["held_out"] = held_out
            record["last_image"] = self.catalogue.last_id  # images with larger ids are new since
            record["content"] = _content(record, folder)

    def finish(self) -> None:
        """Learn idf from all training images, where palette and codebook were learned from a sample of them.

        Once: images added later change no idf. A kill in between leaves counts that seem to be of another extractor,
        and `features` extracts them again.
        """
        from visterm.features import VistermWeighting

        old = self.run.record(self.run.extractor)
        images = self.catalogue.images("train")
        if old is None or old.get("idf_of") != "sample" or not images:
            return
        extractor: Any = copy.copy(extractor_of(self.run))
        blocks = (images[start : start + _AT_ONCE] for start in range(0, len(images), _AT_ONCE))
        extractor.weighting_ = VistermWeighting(tf=extractor.tf).fit_blocks(self.catalogue.counts(b) for b in blocks)
        _replace_extractor(self.run, extractor, make_record("extractor", old["config"], old["inputs"]), old)

    def _training_images(self, root: Path) -> tuple[list[str], list[str] | None, list[str], tuple[set[str], set[str]]]:
        """Return the images that the codebook is made from, with their labels for a forest, and those to hold out.

        That is paths of at most ``max_training_images`` images, their labels or None, paths for early stopping, and
        what is to be measured as new photos: these paths, and these with those of whole classes.

        Vectors of other training images are not like those of new photos: half of 10,000 k-means centres hold blocks of
        one image alone, and trees fit the labels of their images. So these images make no codebook, where there are
        more than enough or it is a forest. Else they do, as test mAP is higher where learners learn from vectors of
        such images, and they are counted once more without the blocks that they have in it.
        """
        paths = self.catalogue.training_paths()
        if not paths:
            raise UserError(
                f"{root}: no training images to learn visterms from; see the split section of the configuration"
            )
        labels, clicks = self.catalogue.labels(), self.config.collection.clicks is not None
        forest = self.config.features.codebook.kind == "forest"
        if forest:
            paths = [path for path in paths if path in labels]
            if not paths:
                raise UserError(
                    f"{root}: a forest codebook learns from labels: sort the images into one folder per class, "
                    "or give a table: --set collection.labels=labels.csv (columns path,label)"
                )
            if clicks or any(len(labels[path]) > 1 for path in paths):
                raise UserError(
                    f"{root}: a forest codebook learns from one label per image; "
                    "with several, or with clicks, use features.codebook.kind=kmeans"
                )
        labelled = [] if self.catalogue.has_validation() else [path for path in paths if path in labels]
        held_out, unseen = self._held_out(labelled, [labels[path] for path in labelled], clicks)
        if forest:
            paths = self._sample([path for path in paths if path not in held_out])
            return paths, [next(iter(labels[path])) for path in paths], sorted(held_out), (set(), set())
        both = held_out | unseen
        if len(paths) > self.config.features.max_training_images:
            paths = self._sample([path for path in paths if path not in both])
        return paths, None, sorted(held_out), (held_out, both)

    def _sample(self, paths: list[str]) -> list[str]:
        from numpy.random import default_rng

        most = self.config.features.max_training_images
        if len(paths) <= most:
            return paths
        return [paths[i] for i in sorted(default_rng(self.config.seed).choice(len(paths), most, replace=False))]

    def _held_out(self, paths: list[str], labels: list[dict[str, float]], clicks: bool) -> tuple[set[str], set[str]]:
        """Return what learners hold out of these images: some for early stopping, and whole classes; both may be empty.

        Classes are those that a learner of the same seed draws, see `visterm.learners.validation`.
        """
        from visterm.learners.validation import TooFewImages, split, split_by_class, unseen_rows

        if not paths:
            return set(), set()
        y, _ = supervision_of(labels, clicks=clicks)
        seed = self.config.seed
        try:
            rows = split(y, HELD_OUT, seed)
        except TooFewImages:
            return set(), {paths[row] for row in split_by_class(y, seed)}
        return {paths[row] for row in rows}, {paths[row] for row in unseen_rows(y, seed)}
