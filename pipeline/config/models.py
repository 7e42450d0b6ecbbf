"""The configuration: one strict pydantic model per section.

An unknown key or a wrong type is an error that names the key, the value and where it came from.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, field_validator, model_validator

from visterm.features.presets import POOLS, PRESETS, RESIZES
from visterm.pipeline.console import without_password

from .learners import TABLE, Row, settings_of
from .plain import NOT_OF_VISTERMS, TAGS, counts_visterms, has_tables, tags_of

Settings = dict[str, Any]  # values by the names of settings; a section has its own by name


class Section(BaseModel):
    """A section takes the settings that it names, and no others; empty, as in ``oasis:``, it has the defaults."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, values: Any) -> Any:
        return {} if values is None else values


class VectorsConfig(Section):
    """Precomputed vectors in place of images; see read_vectors."""

    file: str | None = None  # .npy, .npz, .safetensors, .parquet, .arrow, a pattern or folder of them, or a data set
    ids: str | None = None  # the same, .txt or .csv, where the file has none
    unit: bool = True  # scale them to unit length
    vector_column: str = "vector"
    id_column: str = "id"
    label_column: str = "label"


class CollectionConfig(Section):
    """Which images, and their labels.

    ``labels`` is ``auto`` (from the folders, where there are folders), ``none``, ``keywords`` or ``people`` (from tags
    of the files and their sidecars, or a list of both), or tables of images: their paths, or a pattern such as
    ``photos/*/metadata.csv``; see docs/images.md. ``clicks`` is the path of a CSV file with the columns
    query,path,count. ``triplets`` is that of a CSV file with the columns query,relevant,irrelevant, which OASIS and
    AROMA learn from in place of labels. ``exclude`` has patterns of files and folders to skip: of a name
    (``*_thumb.jpg``) or, with a slash, of the path from the directory of the images (``2019/*/scans``). Upper and lower
    case are alike.
    """

    classes: list[str] | None = None  # take these class folders only; null: all of them
    exclude: list[str] = []
    labels: str | list[str] = "auto"
    label_level: int | None = None  # of folders: 1 is the top one, -1 the deepest; null: the first that is no date
    name_column: str | None = None  # of tables; null: path or file_name, or else a name like these
    label_column: str | None = None  # null: label or labels, or else a name like these; none: the folders give labels
    label_separator: str = "auto"  # of several labels in a cell; auto: | and ;
    skip_bad_rows: bool = False  # count rows that make no sense, instead of refusing the table
    clicks: str | None = None
    triplets: str | None = None
    max_pixels: int = Field(default=100_000_000, gt=0, le=10**12)  # larger images are skipped before they are decoded
    vectors: VectorsConfig = VectorsConfig()

    @property
    def has_tables(self) -> bool:
        """Whether labels and fields come from tables."""
        return has_tables(self.labels)

    @model_validator(mode="after")
    def _one_supervision(self) -> CollectionConfig:
        if self.vectors.file is not None and self.classes is not None:
            raise ValueError("classes chooses folders of images, and vectors.file has none: leave one of them out")
        if self.vectors.file is None and self.vectors.ids is not None:
            raise ValueError("vectors.ids names the vectors of vectors.file, which is missing")
        tags = tags_of(self.labels)
        if tags and isinstance(self.labels, list) and (others := sorted({*self.labels} - {*TAGS})):
            raise ValueError(f"labels are {' and '.join(tags)}, or come from tables such as {others[0]}, not both")
        if self.clicks is not None and (self.has_tables or tags):
            raise ValueError("give labels or clicks, not both")
        if self.label_level == 0:
            raise ValueError("label_level counts folders from 1, the top one, or from -1, the deepest, not from 0")
        if not self.label_separator:
            raise ValueError("label_separator is auto, none, or the text between labels")
        if self.clicks is not None and self.triplets is not None:
            raise ValueError("give triplets or clicks to learn from, not both")
        return self


class SplitConfig(Section):
    """Train and test images per class: a number of images, or a share. Or, by class, of whole classes.

    Folders named train, test and validation below the root take precedence. ``by: auto`` draws images of each class,
    but whole classes where shares are asked for and most images are of classes of two or three, of which neither side
    would have a pair: test images are then of other classes than those that are trained on.
    """

    train: int | float = Field(default=0.6, gt=0)
    test: int | float = Field(default=0.4, ge=0)
    seed: int = Field(default=0, ge=0)  # the fold
    by: Literal["auto", "image", "class"] = "auto"

    @model_validator(mode="after")
    def _shares(self) -> SplitConfig:
        for name in ("train", "test"):
            value = getattr(self, name)
            if isinstance(value, float) and value > 1:
                raise ValueError(f"{name} is a number of images (40) or a share (0.6), not {value}")
        if isinstance(self.train, float) and isinstance(self.test, float) and self.train + self.test > 1:
            raise ValueError(f"train and test are shares of the same images and add up to {self.train + self.test:g}")
        return self


class CodebookConfig(Section):
    """Codebook that turns blocks into visterms: k-means centres, or the nodes of a forest, which learns from labels."""

    kind: Literal["kmeans", "forest"] = "kmeans"
    n_trees: int = Field(default=10, gt=0)  # these three are of the forest; see ForestCodebook
    n_candidates: int = Field(default=20, gt=0)
    min_samples_leaf: int = Field(default=5, gt=0)


class WeightingConfig(Section):
    """From counts of visterms to weights; see VistermWeighting."""

    tf: Literal["count", "sqrt"] = "count"


class DeepConfig(Section):
    """The network of deep vectors, and how an image is fitted to it; see deep_embedder."""

    resize: Literal[RESIZES] = "trim"  # type: ignore[valid-type]  # computed, which mypy cannot read
    keep: float = Field(default=0.935, gt=0, le=1)  # with trim and crop
    precision: Literal["int8", "float32"] = "int8"  # of the network, not of stored vectors


class OnnxConfig(Section):
    """An image model, run by ONNX Runtime; see OnnxEmbedder."""

    model: str | None = None
    size: int | list[int] | None = None  # height and width in pixels; null: as the model says
    resize: Literal[RESIZES] = "crop"  # type: ignore[valid-type]  # computed, which mypy cannot read
    keep: float = Field(default=1.0, gt=0, le=1)  # with crop and trim
    preprocess: Literal[tuple(PRESETS)] = "0..1"  # type: ignore[valid-type]  # computed, which mypy cannot read
    mean: float | list[float] | None = None  # (pixel - mean) * scale, of pixels from 0 to 255
    scale: float | list[float] | None = None  # null: as preprocess says
    channels: Literal["rgb", "bgr"] = "rgb"
    layer: str | None = None  # null: the model's output
    pool: Literal[POOLS] | None = None  # type: ignore[valid-type]  # of tokens; computed, which mypy cannot read
    batch: int = Field(default=1, gt=0)
    unit: bool = True  # scale vectors to unit length


class FeaturesConfig(Section):
    """From pixels to visterms, see VistermExtractor; or to vectors of a network, see deep_embedder and OnnxConfig."""

    kind: Literal["visterms", "deep", "onnx"] = "visterms"
    text_model: str | None = None  # an ONNX model of texts in the space of the images' vectors; see TextEmbedder
    text_tokenizer: str | None = None  # null: tokenizer.json beside the text model, or in the folder above
    text_layer: str | None = None  # null: the text model's output
    precision: Literal["float16", "float32"] = "float16"  # in which dense vectors are stored, imported ones too
    deep: DeepConfig = DeepConfig()
    onnx: OnnxConfig = OnnxConfig()
    n_visterms: int = Field(default=10_000, gt=1)
    codebook: CodebookConfig = CodebookConfig()
    n_colors: int = Field(default=20, gt=1, le=256)
    max_side: int | None = Field(default=500, ge=64)  # larger images are scaled down
    enlarge_to: int | None = Field(default=192, ge=1)  # smaller images are enlarged to this longest side
    block_size: int = Field(default=64, ge=8)
    stride: int = Field(default=32, ge=1)
    scale: float = Field(default=1.25, gt=1)
    min_blocks: int = Field(default=10, ge=1)
    cells: list[int] = [1]  # [3]: 3 x 3 cells with visterms of their own; [1, 3]: two grids
    normalization: Literal["l1", "hellinger"] = "hellinger"
    weighting: WeightingConfig = WeightingConfig()
    max_training_images: int = Field(default=2_000, gt=0)  # for palette and codebook; idf is of all

    def of_extractor(self) -> Settings:
        """Return the settings of VistermExtractor."""
        settings = self.model_dump(exclude={*NOT_OF_VISTERMS, "max_training_images"})
        sections = settings.pop("codebook"), settings.pop("weighting")
        codebook = sections[0].pop("kind")
        return settings | sections[0] | sections[1] | {"codebook": codebook}

    @model_validator(mode="after")
    def _cells_fit(self) -> FeaturesConfig:
        if self.cells != [1]:
            from visterm.features.cells import check_cells

            check_cells(self.cells, self.n_visterms)
        return self

    @model_validator(mode="after")
    def _has_model(self) -> FeaturesConfig:
        for name in ("text_tokenizer", "text_layer"):
            if self.text_model is None and getattr(self, name) is not None:
                raise ValueError(f"{name} is of a text model: --set features.text_model=text.onnx")
        if self.kind == "onnx" and self.onnx.model is None:
            raise ValueError("kind: onnx needs a model: --set features.onnx.model=model.onnx")
        if self.kind != "onnx" and self.onnx.model is not None:
            raise ValueError("onnx.model is used with kind: onnx only: --set features.kind=onnx")
        return self


class TrainConfig(Section):
    """Purpose of similarities, and the weight of the learner against cosine; see Blend.

    ``world`` is ``open`` (images of any class), ``seen`` (only classes that are trained on, as in the papers) or
    ``unseen`` (only others).
    """

    world: Literal["open", "seen", "unseen"] = "open"
    # null: chosen on held-out images; 1: as in the papers
    learned_weight: float | None = Field(default=None, ge=0, le=1)


class EvaluateConfig(Section):
    """Evaluation protocol and ranking depth.

    ``test-test``: each test image is a query, all other test images are ranked. ``query-gallery``: each test image is
    a query, the training images are ranked. ``open``: as ``test-test``, and then again with learners that are trained
    on half of the classes, for several splits of the classes. Whatever the protocol, where each image has one label,
    k-NN accuracy has test images classified by the training images; annotators rank labels for the test images.
    """

    protocol: Literal["test-test", "query-gallery", "open"] = "test-test"
    class_splits: int = Field(default=5, gt=0)  # of the protocol open
    max_k: int = Field(default=50, gt=0)  # length of the precision@k curve
    neighbours: int = Field(default=10, gt=0)  # results per query in neighbours.csv and in the report
    accuracy_neighbours: int = Field(default=5, gt=0)  # training images that vote for the class of a test image
    is_a: str | None = None  # CSV file with the columns label,parent: which labels are siblings


class IndexConfig(Section):
    """How galleries are searched: exactly, or in two stages; see TwoStageIndex, and MilvusIndex.

    ``auto`` takes two stages where a query would take longer exactly than ``exact_milliseconds``.
    """

    kind: Literal["auto", "exact", "two-stage", "milvus"] = "auto"
    exact_milliseconds: float = Field(default=50.0, gt=0)
    n_candidates: int | None = Field(default=None, gt=0)  # images scored exactly at the end; null: 1,000, dense 128
    milvus: Literal["autoindex", "hnsw", "ivf", "flat"] = "autoindex"  # Milvus's own index of the vectors
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
        for name, is_set in (("uri", self.uri is not None), ("milvus", self.milvus != "autoindex")):
            if is_set and self.kind != "milvus":
                raise ValueError(f"{name} is used with kind: milvus only: --set index.kind=milvus")
        return self


class SearchConfig(Section):
    """How results are ranked."""

    neighbours: Literal["auto", "none"] = "auto"  # also by the photos that a query and a result are both near to


class ComputeConfig(Section):
    """Parallel work; no setting here changes a result."""

    n_jobs: int = -1  # processes; -1: one per core, -2: all but one

    @field_validator("n_jobs")
    @classmethod
    def _not_zero(cls, n_jobs: int) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs is a number of processes, or -1 for one per core, not 0")
        return n_jobs

    backend: Literal["loky", "threading"] = "loky"
    segment_size: int = Field(default=256, gt=0)  # images per unit of work and of resuming
    # between checkpoints; a killed training loses at most this much
    checkpoint_seconds: float = Field(default=20.0, ge=0)


class ClusterConfig(Section):
    """A Dask cluster in place of `compute.n_jobs`; no setting here changes a result."""

    scheduler: str | None = None  # such as tcp://host:8786; null: this machine alone

    @field_validator("scheduler")
    @classmethod
    def _address(cls, scheduler: str | None) -> str | None:
        protocol, separator, rest = (scheduler or "").partition("://")
        if scheduler is not None and not (protocol and separator and rest):
            raise ValueError(f"scheduler is an address such as tcp://host:8786, or null, not {scheduler!r}")
        return scheduler


def _section_of(row: Row) -> type[Section]:
    """Return the section of a learner."""
    fields: dict[str, Any] = {}
    for name, (kind, setting) in settings_of(row).items():
        field = Field(default=setting.default, description=setting.why, **setting.bounds)
        fields[name] = (kind if setting.check is None else Annotated[kind, AfterValidator(setting.check)], field)
    of_all = getattr(row.settings, "check", None)
    validators: dict[str, Any] = {} if of_all is None else {"check": model_validator(mode="after")(of_all)}
    return create_model(
        row.settings.__name__, __base__=Section, __doc__=row.settings.__doc__, __validators__=validators, **fields
    )


# Sections stand in config.yaml in the order in which learners came to be; new ones follow.
_EARLIEST = ("oasis", "aroma", "wsabie", "pamir", "warp", "ovr", "hier", "knn", "lego", "mcml", "musl")
_SECTIONS = {name: _section_of(TABLE[name]) for name in dict.fromkeys((*_EARLIEST, *TABLE))}


class _Before(Section):
    seed: int = Field(default=0, ge=0)
    collection: CollectionConfig = CollectionConfig()
    split: SplitConfig = SplitConfig()
    features: FeaturesConfig = FeaturesConfig()
    train: TrainConfig = TrainConfig()


if TYPE_CHECKING:
    _WithLearners = _Before
else:  # a section for each row of the table
    _WithLearners = create_model(
        "_WithLearners", __base__=_Before, **{name: (section, section()) for name, section in _SECTIONS.items()}
    )


class Config(_WithLearners):
    """All settings of a run."""

    evaluate: EvaluateConfig = EvaluateConfig()
    index: IndexConfig = IndexConfig()
    search: SearchConfig = SearchConfig()
    compute: ComputeConfig = ComputeConfig()
    cluster: ClusterConfig = ClusterConfig()

    @property
    def counts_visterms(self) -> bool:
        """As of `visterm.pipeline.config.plain.counts_visterms`."""
        return counts_visterms(self)

    def to_yaml(self) -> str:
        """The whole configuration, every default written out."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True)
