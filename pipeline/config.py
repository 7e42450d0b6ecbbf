"""The configuration: one pydantic model a section, strict.

An unknown key or a wrong type is an error that names the key, the value and where it came from.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

# Settings that name files.
_PATHS = (
    ("collection", "labels"),
    ("collection", "clicks"),
    ("collection", "vectors", "file"),
    ("collection", "vectors", "ids"),
    ("features", "onnx", "model"),
    ("evaluate", "is_a"),
    ("index", "uri"),
)


class UserError(Exception):
    """A mistake that the person at the keyboard can mend: one line, exit code 2."""


def without_password(text: str) -> str:
    """Return an address, or a setting with one, without name and password."""
    if "@" not in text:
        return text
    from visterm.retrieval.milvus import shown

    return shown(text)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class VectorsConfig(_Section):
    """Vectors that were made elsewhere, in place of images; see read_vectors."""

    file: str | None = None  # .npy, .npz or .parquet
    ids: str | None = None  # .txt, .csv, .npy or .parquet, where the file has none
    unit: bool = True  # scale them to unit length
    vector_column: str = "vector"
    id_column: str = "id"
    label_column: str = "label"


class CollectionConfig(_Section):
    """Which images, and what is known about them.

    ``labels`` is ``auto`` (from the folders, where there are folders), ``none``, or the path of a CSV file with the
    columns path,label; ``clicks`` is the path of a CSV file with the columns query,path,count.
    """

    classes: list[str] | None = None  # take these class folders only; null: all of them
    labels: str = "auto"
    clicks: str | None = None
    max_pixels: int = Field(default=100_000_000, gt=0)  # larger images are skipped before they are decoded
    vectors: VectorsConfig = VectorsConfig()

    @model_validator(mode="after")
    def _one_supervision(self) -> CollectionConfig:
        if self.vectors.file is not None and self.classes is not None:
            raise ValueError("classes chooses folders of images, and vectors.file has none: leave one of them out")
        if self.vectors.file is None and self.vectors.ids is not None:
            raise ValueError("vectors.ids names the vectors of vectors.file, which is missing")
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


class CodebookConfig(_Section):
    """What turns a block into visterms: k-means centres, or the nodes of a forest, which learns from labels."""

    kind: Literal["kmeans", "forest"] = "kmeans"
    n_trees: int = Field(default=10, gt=0)  # these three are of the forest; see ForestCodebook
    n_candidates: int = Field(default=20, gt=0)
    min_samples_leaf: int = Field(default=5, gt=0)


class OnnxConfig(_Section):
    """An image model, run by ONNX Runtime; see OnnxEmbedder."""

    model: str | None = None
    size: int | list[int] | None = None  # height and width in pixels; null: as the model says
    resize: Literal["crop", "stretch", "pad"] = "crop"
    keep: float = Field(default=1.0, gt=0, le=1)  # with crop
    mean: float | list[float] = 0.0  # (pixel - mean) * scale, of pixels from 0 to 255
    scale: float | list[float] = 1 / 255
    channels: Literal["rgb", "bgr"] = "rgb"
    layer: str | None = None  # null: the model's output
    batch: int = Field(default=1, gt=0)
    unit: bool = True  # scale vectors to unit length


class FeaturesConfig(_Section):
    """From pixels to visterms, see VistermExtractor; or to vectors by an ONNX model, which has a section of its own."""

    kind: Literal["visterms", "onnx"] = "visterms"
    onnx: OnnxConfig = OnnxConfig()
    n_visterms: int = Field(default=10_000, gt=1)
    codebook: CodebookConfig = CodebookConfig()
    n_colors: int = Field(default=20, gt=1, le=256)
    block_size: int = Field(default=64, ge=8)
    stride: int = Field(default=32, ge=1)
    scale: float = Field(default=1.25, gt=1)
    min_blocks: int = Field(default=10, ge=1)
    normalization: Literal["l1", "hellinger"] = "hellinger"
    max_training_images: int = Field(default=2_000, gt=0)  # palette and codebook are learned from at most so many

    @model_validator(mode="after")
    def _has_model(self) -> FeaturesConfig:
        if self.kind == "onnx" and self.onnx.model is None:
            raise ValueError("kind: onnx needs a model: --set features.onnx.model=model.onnx")
        if self.kind == "visterms" and self.onnx.model is not None:
            raise ValueError("onnx.model is used with kind: onnx only: --set features.kind=onnx")
        return self


class OASISConfig(_Section):
    """The online similarity learner; see OASIS."""

    C: float = Field(default=0.1, gt=0)
    n_steps: int = Field(default=300_000, gt=0)
    init: Literal["identity", "zero"] = "identity"
    variant: Literal["symmetric", "online-symmetric", "dissim", "psd"] | None = None
    psd_every: int | None = Field(default=None, gt=0)
    pairs_per_query: int = Field(default=1, gt=0)
    n_rankers: int = Field(default=1, gt=0)
    mix_every: int | None = Field(default=None, gt=0)
    lock_free: bool = False
    pass_steps: int = Field(default=10_000, gt=0)  # between two looks at the validation images
    validation_fraction: float | None = Field(default=0.2, gt=0, lt=1)
    patience: int | None = Field(default=5, gt=0)
    refit: bool = True  # once the best number of steps is known, learn from all training images
    click_cutoff: float = Field(default=0.0, ge=0)  # of clicks: how strongly images must be related
    check_negatives: bool = True


class AROMAConfig(_Section):
    """The online similarity learner with a covariance; see AROMA."""

    covariance: Literal["diagonal", "factored"] = "diagonal"
    r: float = 1.0
    n_steps: int = Field(default=300_000, gt=0)
    init: Literal["zero", "identity"] = "zero"
    pairs_per_query: int = Field(default=1, gt=0)
    pass_steps: int = Field(default=10_000, gt=0)  # between two looks at the validation images
    validation_fraction: float | None = Field(default=0.2, gt=0, lt=1)
    patience: int | None = Field(default=5, gt=0)
    refit: bool = True
    click_cutoff: float = Field(default=0.0, ge=0)  # of clicks: how strongly images must be related
    check_negatives: bool = True

    @field_validator("r")
    @classmethod
    def _within_single_precision(cls, r: float) -> float:
        if not 1e-30 <= r <= 1e30:
            raise ValueError(f"r must be positive, from 1e-30 to 1e30, not {r:g}")
        return r


class WSABIEConfig(_Section):
    """Images and labels in one space; see WSABIE."""

    n_components: int | list[int] = 100
    max_norm: float = Field(default=1.0, gt=0)
    learning_rate: float = Field(default=0.02, gt=0)
    decay_steps: int | None = Field(default=10_000, gt=0)
    loss: Literal["warp", "auc", "owpc"] = "warp"
    n_steps: int = Field(default=500_000, gt=0)
    pass_steps: int = Field(default=10_000, gt=0)  # between two looks at the validation images
    validation_fraction: float | None = Field(default=0.2, gt=0, lt=1)
    patience: int | None = Field(default=10, gt=0)
    refit: bool = True  # once the best number of steps is known, learn from all training images

    @field_validator("n_components")
    @classmethod
    def _sizes(cls, n_components: int | list[int]) -> int | list[int]:
        sizes = n_components if isinstance(n_components, list) else [n_components]
        if not sizes or min(sizes) < 1:
            raise ValueError(f"n_components is a positive number, or a list of some, not {n_components}")
        return n_components


class PAMIRConfig(_Section):
    """Labels ranked by one vector of weights each, learned by comparisons; see PAMIR."""

    C: float = Field(default=0.01, gt=0)
    n_steps: int = Field(default=1_000_000, gt=0)
    pass_steps: int = Field(default=20_000, gt=0)  # between two looks at the validation images
    validation_fraction: float | None = Field(default=0.2, gt=0, lt=1)
    patience: int | None = Field(default=10, gt=0)
    refit: bool = True


class OneVsRestConfig(_Section):
    """Labels ranked by a classifier each; see OneVsRestPA."""

    C: float = Field(default=0.03, gt=0)
    n_steps: int = Field(default=200_000, gt=0)
    pass_steps: int = Field(default=2_000, gt=0)  # between two looks at the validation images
    validation_fraction: float | None = Field(default=0.2, gt=0, lt=1)
    patience: int | None = Field(default=10, gt=0)
    refit: bool = True


class KNNConfig(_Section):
    """Labels of the most similar training images; see KNNAnnotator."""

    n_neighbors: int = Field(default=30, gt=0)
    weights: Literal["similarity", "uniform"] = "similarity"
    algorithm: Literal["exact", "tree"] = "exact"
    leaf_size: int = Field(default=1_000, gt=0)


class LEGOConfig(_Section):
    """The online metric learner; see LEGO."""

    eta: float = Field(default=0.02, gt=0)
    margin: float = Field(default=1.0, gt=0)  # in squared distances
    n_steps: int = Field(default=50_000, gt=0)
    pass_steps: int = Field(default=5_000, gt=0)  # between two looks at the validation images
    validation_fraction: float | None = Field(default=0.2, gt=0, lt=1)
    patience: int | None = Field(default=3, gt=0)
    refit: bool = True  # once the best number of steps is known, learn from all training images
    click_cutoff: float = Field(default=0.0, ge=0)  # of clicks: how strongly images must be related
    check_negatives: bool = True


class MCMLConfig(_Section):
    """The metric that collapses classes; see MCML."""

    trace_penalty: float = Field(default=0.003, ge=0)
    n_steps: int = Field(default=60, gt=0)  # iterations of L-BFGS
    tol: float = Field(default=1e-6, ge=0)
    pass_steps: int = Field(default=10, gt=0)  # between two looks at the validation images
    validation_fraction: float | None = Field(default=None, gt=0, lt=1)
    patience: int | None = Field(default=None, gt=0)
    refit: bool = True  # once the best number of steps is known, learn from all training images


class MuSLConfig(_Section):
    """A few metrics, each for a group of categories; see MuSL."""

    n_metrics: int = Field(default=5, gt=0)
    n_bits: int = Field(default=32, gt=0)
    alpha: float = Field(default=0.5, gt=0)
    midpoint: Literal["final", "running"] = "running"
    balanced: bool = True
    r: float = Field(default=500.0, gt=0)
    negatives_per_example: int = Field(default=1000, gt=0)
    grouping: Literal["joint", "kmeans", "random"] = "joint"
    retrain: bool = True
    n_starts: int = Field(default=1, gt=0)
    max_images: int | None = Field(default=5000, gt=1)  # of more training images, so many are drawn


class EvaluateConfig(_Section):
    """Who asks whom, and how far down the ranking is looked.

    ``test-test``: each test image is a query, all other test images are ranked. ``query-gallery``: each test image is
    a query, the training images are ranked. Whatever the protocol, where each image has one label, k-NN accuracy has
    test images classified by the training images; annotators rank labels for the test images.
    """

    protocol: Literal["test-test", "query-gallery"] = "test-test"
    max_k: int = Field(default=50, gt=0)  # length of the precision@k curve
    neighbours: int = Field(default=10, gt=0)  # results a query in neighbours.csv and in the report
    accuracy_neighbours: int = Field(default=5, gt=0)  # training images that vote for the class of a test image
    is_a: str | None = None  # CSV file with the columns label,parent: which labels are siblings


class IndexConfig(_Section):
    """How galleries are searched: exactly, or in two stages; see TwoStageIndex, and MilvusIndex.

    ``auto`` takes two stages where a query would take longer exactly than ``exact_milliseconds``.
    """

    kind: Literal["auto", "exact", "two-stage", "milvus"] = "auto"
    exact_milliseconds: float = Field(default=50.0, gt=0)
    n_candidates: int | None = Field(default=None, gt=0)  # images scored exactly at the end; null: 1,000 or 5,000
    uri: str | None = None  # of Milvus: http://host:19530, or a file that ends in .db; null: a file in the run

    @field_validator("uri")
    @classmethod
    def _address(cls, uri: str | None) -> str | None:
        if uri is None or re.fullmatch(r"(?!.*://).*[^/]\.db", uri):
            return uri
        with contextlib.suppress(ValueError):  # of a port that is none
            address = urlsplit(uri)
            if re.fullmatch(r"(https?|tcp)://[^/?#\s]+(/[^@\s]*)?", uri) and address.hostname and address.port != 0:
                return uri
        shown = without_password(uri)
        raise ValueError(f"uri is the address of a Milvus server (http://host:19530) or a file (.db), not {shown!r}")

    @model_validator(mode="after")
    def _of_milvus(self) -> IndexConfig:
        if self.uri is not None and self.kind != "milvus":
            raise ValueError("uri is used with kind: milvus only: --set index.kind=milvus")
        return self


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


class ClusterConfig(_Section):
    """A Dask cluster that does the work of `compute.n_jobs`; no setting here changes a result."""

    scheduler: str | None = None  # such as tcp://host:8786; null: this machine alone

    @field_validator("scheduler")
    @classmethod
    def _address(cls, scheduler: str | None) -> str | None:
        protocol, separator, rest = (scheduler or "").partition("://")
        if scheduler is not None and not (protocol and separator and rest):
            raise ValueError(f"scheduler is an address such as tcp://host:8786, or null, not {scheduler!r}")
        return scheduler


class Config(_Section):
    """Everything that a run can be told."""

    seed: int = Field(default=0, ge=0)
    collection: CollectionConfig = CollectionConfig()
    split: SplitConfig = SplitConfig()
    features: FeaturesConfig = FeaturesConfig()
    oasis: OASISConfig = OASISConfig()
    aroma: AROMAConfig = AROMAConfig()
    wsabie: WSABIEConfig = WSABIEConfig()
    pamir: PAMIRConfig = PAMIRConfig()
    ovr: OneVsRestConfig = OneVsRestConfig()
    knn: KNNConfig = KNNConfig()
    lego: LEGOConfig = LEGOConfig()
    mcml: MCMLConfig = MCMLConfig()
    musl: MuSLConfig = MuSLConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    index: IndexConfig = IndexConfig()
    compute: ComputeConfig = ComputeConfig()
    cluster: ClusterConfig = ClusterConfig()

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
    if file is not None:
        values = _read_yaml(file)
        for *names, key in _PATHS:  # a path in a file means beside that file, wherever it is used from
            section: Any = values
            for name in names:
                section = section.get(name) if isinstance(section, dict) else None
            if isinstance(section, dict) and _names_file(section.get(key)):
                section[key] = str((file.parent / section[key]).resolve())
    for setting in settings or []:
        _set(values, setting)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{_source(error, file, settings or [])}: {_explain(error)}") from None


def _source(error: ValidationError, file: Path | None, settings: list[str]) -> str:
    """Where the value of the first complaint came from: the last setting of its key or section, or else the file."""
    where = [str(part) for part in error.errors()[0]["loc"]]
    for setting in reversed(settings):
        key = setting.partition("=")[0].split(".")
        if all(a == b for a, b in zip(key, where, strict=False)):
            return f"--set {without_password(setting)}"
    return str(file) if file else "the configuration"


def _names_file(value: Any) -> bool:
    """Whether the value of one of `_PATHS` is a path, and no address or word."""
    return isinstance(value, str) and value not in ("auto", "none") and "://" not in value


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
    if (*sections, last) in _PATHS and _names_file(values[last]):
        values[last] = str(Path(values[last]).resolve())


def _explain(error: ValidationError) -> str:
    """Turn the first of pydantic's complaints into one line that names the key and the remedy."""
    complaint = error.errors()[0]
    # pydantic names the branch of a union as if it were a key
    unions = ("int", "float", "list[str]", "list[int]", "list[float]")
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
