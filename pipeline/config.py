"""The configuration: one pydantic model a section, strict.

An unknown key or a wrong type is an error that names the key, the value and where it came from.
"""

from __future__ import annotations

import contextlib
import difflib
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator


class UserError(Exception):
    """A mistake that the person at the keyboard can mend: one line, exit code 2."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CollectionConfig(_Section):
    """Which images, and what is known about them.

    ``labels`` is ``auto`` (from the folders, where there are folders), ``none``, or the path of a CSV file with the
    columns path,label; ``clicks`` is the path of a CSV file with the columns query,path,count.
    """

    classes: list[str] | None = None  # take these class folders only; null: all of them
    labels: str = "auto"
    clicks: str | None = None
    max_pixels: int = Field(default=100_000_000, gt=0)  # larger images are skipped before they are decoded

    @model_validator(mode="after")
    def _one_supervision(self) -> CollectionConfig:
        if self.clicks is not None and self.labels not in ("auto", "none"):
            raise ValueError("give labels or clicks, not both")
        return self


class SplitConfig(_Section):
    """How many images of each class train and test: a number of images, or a share.

    Folders named train, test and validation below the root take precedence.
    """

    train: int | float = Field(default=0.6, gt=0)
    test: int | float = Field(default=0.4, ge=0)
    seed: int = Field(default=0, ge=0)  # the fold

    @model_validator(mode="after")
    def _shares(self) -> SplitConfig:
        for name in ("train", "test"):
            value = getattr(self, name)
            if isinstance(value, float) and value > 1:
                raise ValueError(f"{name} is a number of images (40) or a share (0.6), not {value}")
        if isinstance(self.train, float) and isinstance(self.test, float) and self.train + self.test > 1:
            raise ValueError(f"train and test are shares of the same images and add up to {self.train + self.test:g}")
        return self


class FeaturesConfig(_Section):
    """From pixels to visterms; see VistermExtractor."""

    n_visterms: int = Field(default=10_000, gt=1)
    n_colors: int = Field(default=20, gt=1, le=256)
    block_size: int = Field(default=64, ge=8)
    stride: int = Field(default=32, ge=1)
    scale: float = Field(default=1.25, gt=1)
    min_blocks: int = Field(default=10, ge=1)
    normalization: Literal["l1", "hellinger"] = "hellinger"
    max_training_images: int = Field(default=2_000, gt=0)  # palette and codebook are learned from at most so many


class OASISConfig(_Section):
    """The online similarity learner; see OASIS."""

    C: float = Field(default=0.1, gt=0)
    n_steps: int = Field(default=300_000, gt=0)
    init: Literal["identity", "zero"] = "identity"
    variant: Literal["symmetric", "online-symmetric", "dissim", "psd"] | None = None
    psd_every: int | None = Field(default=None, gt=0)
    pairs_per_query: int = Field(default=1, gt=0)
    n_rankers: int = Field(default=1, gt=0)
    pass_steps: int = Field(default=10_000, gt=0)  # between two looks at the validation images
    validation_fraction: float | None = Field(default=0.2, gt=0, lt=1)
    patience: int | None = Field(default=5, gt=0)
    refit: bool = True  # once the best number of steps is known, learn from all training images
    click_cutoff: float = Field(default=0.0, ge=0)  # of clicks: how strongly images must be related
    check_negatives: bool = True


class EvaluateConfig(_Section):
    """Who asks whom, and how far down the ranking is looked.

    ``test-test``: each test image is a query, all other test images are ranked. ``query-gallery``: each test image is
    a query, the training images are ranked.
    """

    protocol: Literal["test-test", "query-gallery"] = "test-test"
    max_k: int = Field(default=50, gt=0)  # length of the precision@k curve
    neighbours: int = Field(default=10, gt=0)  # results a query in neighbours.csv and in the report


class ComputeConfig(_Section):
    """How the work is spread; no setting here changes a result."""

    n_jobs: int = -1  # processes; -1: one a core, -2: all but one

    @field_validator("n_jobs")
    @classmethod
    def _not_zero(cls, n_jobs: int) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs is a number of processes, or -1 for one a core, not 0")
        return n_jobs

    backend: Literal["loky", "threading"] = "loky"
    segment_size: int = Field(default=256, gt=0)  # images a unit of work and of resuming
    checkpoint_seconds: float = Field(default=20.0, ge=0)  # a kill costs at most so much training


class Config(_Section):
    """Everything that a run can be told."""

    seed: int = Field(default=0, ge=0)
    collection: CollectionConfig = CollectionConfig()
    split: SplitConfig = SplitConfig()
    features: FeaturesConfig = FeaturesConfig()
    oasis: OASISConfig = OASISConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    compute: ComputeConfig = ComputeConfig()

    def to_yaml(self) -> str:
        """The whole configuration, every default written out."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True)


def load_config(file: Path | None = None, settings: list[str] | None = None) -> Config:
    """Read a configuration file and put single settings on top.

    Parameters
    ----------
    file : Path or None
        YAML file; None starts from the defaults. Paths in it are relative to the file's folder.
    settings : list of str
        ``section.key=value``, the value in YAML.

    Raises
    ------
    UserError
        The file cannot be read, or a key or value is not one that visterm knows.
    """
    values: dict[str, Any] = {}
    source = "the configuration"
    if file is not None:
        source = str(file)
        values = _read_yaml(file)
        section = values.get("collection")
        for key in ("labels", "clicks"):  # a path in a file means beside that file, wherever it is used from
            if isinstance(section, dict) and isinstance(section.get(key), str) and section[key] not in ("auto", "none"):
                section[key] = str((file.parent / section[key]).resolve())
    for setting in settings or []:
        _set(values, setting)
        source = f"{file} with --set" if file else "--set"
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{source}: {_explain(error)}") from None


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{file}: no such configuration file; configs/ holds examples") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UserError(f"{file}: not valid YAML{line} ({getattr(error, 'problem', error)})") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{file}: expected sections such as 'features:', found {type(values).__name__}")
    return values


def _set(values: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UserError(f"--set {setting}: expected section.key=value, for example --set features.n_visterms=1000")
    *sections, last = key.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {setting}: {section} has no keys of its own")
        values = inner
    try:
        values[last] = yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(f"--set {setting}: the value is not valid YAML") from None
    if isinstance(values[last], str) and "e" in text.lower():  # YAML takes 1e-3 for a word
        with contextlib.suppress(ValueError):
            values[last] = float(text)
    if last in ("labels", "clicks") and isinstance(values[last], str) and values[last] not in ("auto", "none"):
        values[last] = str(Path(values[last]).resolve())


def _explain(error: ValidationError) -> str:
    """Turn the first of pydantic's complaints into one line that names the key and the remedy."""
    complaint = error.errors()[0]
    unions = ("int", "float", "list[str]")  # pydantic names the branch of a union as if it were a key
    where = [str(part) for i, part in enumerate(complaint["loc"]) if i == 0 or part not in unions]
    key = ".".join(where)
    if complaint["type"] == "extra_forbidden":
        model = Config
        for part in where[:-1]:
            annotation = model.model_fields[part].annotation
            assert isinstance(annotation, type)
            assert issubclass(annotation, BaseModel)
            model = annotation  # type: ignore[assignment]  # a section, not Config itself
        near = [n for n in difflib.get_close_matches(where[-1], model.model_fields, n=1) if n != where[-1]]
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(model.model_fields)}"
        return f"unknown key {key}; {hint}"
    if complaint["type"] == "value_error":
        return f"{key}: {complaint['ctx']['error']}" if key else str(complaint["ctx"]["error"])
    message = complaint["msg"][0].lower() + complaint["msg"][1:]
    return f"{key}: {message}, not {complaint['input']!r}"
