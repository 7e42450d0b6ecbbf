"""The configuration: one strict pydantic model per section.

An unknown key or a wrong type is an error that names the key, the value and where it came from.
"""

from __future__ import annotations

import contextlib
import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from visterm.features.presets import PRESETS

from .defaults import constructor_defaults

# What the library has; a setting that differs says why beside it.
_OASIS = constructor_defaults("learners", "oasis", "OASIS")
_AROMA = constructor_defaults("learners", "aroma", "AROMA")
_WSABIE = constructor_defaults("learners", "wsabie", "WSABIE")
_PAMIR = constructor_defaults("learners", "pamir", "PAMIR")
_WARP = constructor_defaults("learners", "warp", "LinearWARP")
_OVR = constructor_defaults("learners", "one_vs_rest", "OneVsRestPA")
_KNN = constructor_defaults("learners", "knn", "KNNAnnotator")
_HIER = constructor_defaults("learners", "hier", "HIER")
_LEGO = constructor_defaults("learners", "lego", "LEGO")
_MCML = constructor_defaults("learners", "mcml", "MCML")
_MUSL = constructor_defaults("learners", "musl", "MuSL")
_VISTERMS = constructor_defaults("features", "extractor", "VistermExtractor")
_ONNX = constructor_defaults("features", "onnx_embedder", "OnnxEmbedder")
_FOREST = constructor_defaults("features", "forest", "ForestCodebook")
# Why a default of the command differs from that of the class.
_STOPS_EARLY = "an upper bound: the command stops early on held-out images"
_BY_IMAGES = "an upper bound by the number of images: the command stops early on held-out images"
_STOPS_EARLY_AFTER = "validation checks without improvement; a call of fit has none unless asked"
_FEWER_CHECKS = "longer trainings need fewer validation checks per step"
_HELD_OUT = "the command holds out a fifth of the training images; fit learns from all that it is given"
_REFIT = "once the best number of steps is known, learn from all training images"
_CLICKS = "how strongly clicked images must be related; without clicks the command passes None"
_WHITEN = "the papers learn in the vectors as they are; whitened dense vectors are a better start"
_FOREST_STUDY = "the class has the paper's figure; this did best in the study of docs/musl.md"


def _differs(default: Any, why: str, **bounds: Any) -> Any:
    """Give a field a default other than the constructor's; docs/configuration.md shows both and the reason."""
    return Field(default=default, description=why, **bounds)


def without_password(text: str) -> str:
    """Return an address, or a setting with one, without name and password."""
    if "@" not in text:
        return text
    from visterm.retrieval.milvus import shown

    return shown(text)


def _check_cutoff(cutoff: float | str) -> float | str:
    share = re.fullmatch(r"top (\d+(?:\.\d+)?) ?%", cutoff) if isinstance(cutoff, str) else None
    if not (0 < float(share[1]) <= 100 if share else isinstance(cutoff, float | int) and cutoff >= 0):
        raise ValueError(f"click_cutoff is a number of at least 0, or a share such as top 1 %, not {cutoff}")
    return cutoff


_ClickCutoff = Annotated[float | str, AfterValidator(_check_cutoff)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class VectorsConfig(_Section):
    """Precomputed vectors in place of images; see read_vectors."""

    file: str | None = None  # .npy, .npz or .parquet
    ids: str | None = None  # .txt, .csv, .npy or .parquet, where the file has none
    unit: bool = True  # scale them to unit length
    vector_column: str = "vector"
    id_column: str = "id"
    label_column: str = "label"


class CollectionConfig(_Section):
    """Which images, and their labels.

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
    """Train and test images per class: a number of images, or a share.

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
    n_trees: int = Field(default=_FOREST["n_trees"], gt=0)  # these three are of the forest; see ForestCodebook
    n_candidates: int = Field(default=_FOREST["n_candidates"], gt=0)
    min_samples_leaf: int = Field(default=_FOREST["min_samples_leaf"], gt=0)


class WeightingConfig(_Section):
    """From counts of visterms to weights; see VistermWeighting."""

    tf: Literal["count", "sqrt"] = _VISTERMS["tf"]


class OnnxConfig(_Section):
    """An image model, run by ONNX Runtime; see OnnxEmbedder."""

    model: str | None = None
    size: int | list[int] | None = _ONNX["size"]  # height and width in pixels; null: as the model says
    resize: Literal["crop", "stretch", "pad"] = _ONNX["resize"]
    keep: float = Field(default=_ONNX["keep"], gt=0, le=1)  # with crop
    preprocess: Literal[tuple(PRESETS)] = _ONNX["preprocess"]  # type: ignore[valid-type]  # names of mean and scale
    mean: float | list[float] | None = _ONNX["mean"]  # (pixel - mean) * scale, of pixels from 0 to 255
    scale: float | list[float] | None = _ONNX["scale"]  # null: as preprocess says
    channels: Literal["rgb", "bgr"] = _ONNX["channels"]
    layer: str | None = _ONNX["layer"]  # null: the model's output
    batch: int = Field(default=_ONNX["batch"], gt=0)
    unit: bool = _ONNX["unit"]  # scale vectors to unit length


class FeaturesConfig(_Section):
    """From pixels to visterms, see VistermExtractor; or to vectors of a network, see deep_embedder and OnnxConfig."""

    kind: Literal["visterms", "deep", "onnx"] = "visterms"
    onnx: OnnxConfig = OnnxConfig()
    n_visterms: int = Field(default=_VISTERMS["n_visterms"], gt=1)
    codebook: CodebookConfig = CodebookConfig()
    n_colors: int = Field(default=_VISTERMS["n_colors"], gt=1, le=256)
    max_side: int | None = Field(default=_VISTERMS["max_side"], ge=64)  # larger images are scaled down
    block_size: int = Field(default=_VISTERMS["block_size"], ge=8)
    stride: int = Field(default=_VISTERMS["stride"], ge=1)
    scale: float = Field(default=_VISTERMS["scale"], gt=1)
    min_blocks: int = Field(default=_VISTERMS["min_blocks"], ge=1)
    cells: list[int] = list(_VISTERMS["cells"])  # [3]: 3 x 3 cells with visterms of their own; [1, 3]: two grids
    normalization: Literal["l1", "hellinger"] = _VISTERMS["normalization"]
    weighting: WeightingConfig = WeightingConfig()
    max_training_images: int = Field(default=2_000, gt=0)  # for palette and codebook; idf is of all

    def of_extractor(self) -> dict[str, Any]:
        """Return the settings of VistermExtractor."""
        own = self.model_dump(exclude={"kind", "onnx", "max_training_images"})
        sections = own.pop("codebook"), own.pop("weighting")
        codebook = sections[0].pop("kind")
        return own | sections[0] | sections[1] | {"codebook": codebook}

    @model_validator(mode="after")
    def _cells_fit(self) -> FeaturesConfig:
        if self.cells != [1]:
            from visterm.features.cells import check_cells

            check_cells(self.cells, self.n_visterms)
        return self

    @model_validator(mode="after")
    def _has_model(self) -> FeaturesConfig:
        if self.kind == "onnx" and self.onnx.model is None:
            raise ValueError("kind: onnx needs a model: --set features.onnx.model=model.onnx")
        if self.kind != "onnx" and self.onnx.model is not None:
            raise ValueError("onnx.model is used with kind: onnx only: --set features.kind=onnx")
        return self


class TrainConfig(_Section):
    """What similarities are for, and how much of what is learned counts beside how images look; see Blend.

    ``world`` is ``open`` (images of any class), ``seen`` (only classes that are trained on, as in the papers) or
    ``unseen`` (only others).
    """

    world: Literal["open", "seen", "unseen"] = "open"
    learned: float | None = Field(default=None, ge=0, le=1)  # null: chosen on held-out images; 1: as in the papers


class OASISConfig(_Section):
    """The online similarity learner; see OASIS."""

    C: float = Field(default=_OASIS["C"], gt=0)
    n_steps: int | None = _differs(None, _BY_IMAGES, gt=0)  # null: 4,000,000, or 1,000 per image if that is more
    init: Literal["identity", "zero"] = _OASIS["init"]
    whiten: bool | Literal["auto"] = _differs("auto", _WHITEN)
    variant: Literal["symmetric", "online-symmetric", "dissim", "psd"] | None = _OASIS["variant"]
    psd_every: int | None = Field(default=_OASIS["psd_every"], gt=0)
    pairs_per_query: int = Field(default=_OASIS["pairs_per_query"], gt=0)
    n_rankers: int = Field(default=_OASIS["n_rankers"], gt=0)
    mix_every: int | None = Field(default=_OASIS["mix_every"], gt=0)
    lock_free: bool = _OASIS["lock_free"]
    pass_steps: int = Field(default=_OASIS["pass_steps"], gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(5, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)
    click_cutoff: _ClickCutoff = _differs(0.0, _CLICKS)
    check_negatives: bool = _OASIS["check_negatives"]
    balance: Literal["image", "class"] = _OASIS["balance"]


class AROMAConfig(_Section):
    """The online similarity learner with a covariance; see AROMA."""

    covariance: Literal["diagonal", "factored"] = _AROMA["covariance"]
    r: float = _AROMA["r"]
    n_steps: int = _differs(300_000, _STOPS_EARLY, gt=0)
    init: Literal["zero", "identity"] | None = _differs(None, "identity where vectors are whitened, else zero")
    whiten: bool | Literal["auto"] = _differs("auto", _WHITEN)
    pairs_per_query: int | None = Field(default=_AROMA["pairs_per_query"], gt=0)
    pass_steps: int = _differs(10_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(5, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)
    click_cutoff: _ClickCutoff = _differs(0.0, _CLICKS)
    check_negatives: bool = _AROMA["check_negatives"]
    balance: Literal["image", "class"] = _AROMA["balance"]

    @field_validator("r")
    @classmethod
    def _within_single_precision(cls, r: float) -> float:
        if not 1e-30 <= r <= 1e30:
            raise ValueError(f"r must be positive, from 1e-30 to 1e30, not {r:g}")
        return r


def _positive_steps(decay_steps: int | str | None) -> int | str | None:
    if isinstance(decay_steps, int) and decay_steps < 1:
        raise ValueError(f"decay_steps is a positive number, auto or null, not {decay_steps}")
    return decay_steps


class WSABIEConfig(_Section):
    """Images and labels in one space; see WSABIE."""

    n_components: int | list[int] = _WSABIE["n_components"]
    max_norm: float = Field(default=_WSABIE["max_norm"], gt=0)
    learning_rate: float = Field(default=_WSABIE["learning_rate"], gt=0)
    decay_steps: int | Literal["auto"] | None = _WSABIE["decay_steps"]
    loss: Literal["warp", "auc", "owpc"] = _WSABIE["loss"]
    whiten: bool | Literal["auto"] = _differs("auto", _WHITEN)
    n_steps: int | None = _differs(None, _BY_IMAGES, gt=0)  # null: 500,000, or 200 per image if that is more
    pass_steps: int = _differs(10_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(10, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)

    _positive_decay = field_validator("decay_steps")(_positive_steps)

    @field_validator("n_components")
    @classmethod
    def _sizes(cls, n_components: int | list[int]) -> int | list[int]:
        sizes = n_components if isinstance(n_components, list) else [n_components]
        if not sizes or min(sizes) < 1:
            raise ValueError(f"n_components is a positive number, or a list of some, not {n_components}")
        return n_components


class LinearWARPConfig(_Section):
    """Labels ranked by one vector of weights each, learned by WSABIE's loss; see LinearWARP."""

    max_norm: float = Field(default=_WARP["max_norm"], gt=0)
    learning_rate: float = Field(default=_WARP["learning_rate"], gt=0)
    decay_steps: int | Literal["auto"] | None = _WARP["decay_steps"]
    n_steps: int | None = _differs(None, _BY_IMAGES, gt=0)  # null: 500,000, or 200 per image if that is more
    pass_steps: int = _differs(10_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(10, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)

    _positive_decay = field_validator("decay_steps")(_positive_steps)


class PAMIRConfig(_Section):
    """Labels ranked by one vector of weights each, learned by comparisons; see PAMIR."""

    C: float | None = Field(default=_PAMIR["C"], gt=0)  # null: 0.01 for visterms, 0.1 for dense vectors
    n_steps: int = _differs(1_000_000, _STOPS_EARLY, gt=0)
    pass_steps: int = _differs(20_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(10, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)


class OneVsRestConfig(_Section):
    """Labels ranked by a classifier each; see OneVsRestPA."""

    C: float = Field(default=_OVR["C"], gt=0)
    n_steps: int = _differs(200_000, _STOPS_EARLY, gt=0)
    pass_steps: int = _differs(2_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(10, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)


class HIERConfig(_Section):
    """Images compared by class probabilities and a hierarchy of the classes; see HIER."""

    is_a: str | None = _HIER["is_a"]  # CSV file with the columns label,parent; null: classes are like themselves only
    C: float = Field(default=_HIER["C"], gt=0)
    n_steps: int = _differs(200_000, _STOPS_EARLY, gt=0)
    pass_steps: int = _differs(2_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(10, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)


class KNNConfig(_Section):
    """Labels of the most similar training images; see KNNAnnotator."""

    n_neighbors: int = Field(default=_KNN["n_neighbors"], gt=0)
    weights: Literal["similarity", "uniform"] = _KNN["weights"]
    algorithm: Literal["exact", "tree"] = _KNN["algorithm"]
    leaf_size: int = Field(default=_KNN["leaf_size"], gt=0)


class LEGOConfig(_Section):
    """The online metric learner; see LEGO."""

    loss: Literal["triplet", "pairs"] = _LEGO["loss"]
    eta: float = Field(default=_LEGO["eta"], gt=0)
    margin: float = Field(default=_LEGO["margin"], gt=0)  # in squared distances, as near and far
    near: float = Field(default=_LEGO["near"], gt=0)
    far: float = Field(default=_LEGO["far"], gt=0)
    n_steps: int = _differs(50_000, _STOPS_EARLY, gt=0)
    pass_steps: int = _differs(5_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(3, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)
    click_cutoff: _ClickCutoff = _differs(0.0, _CLICKS)
    check_negatives: bool = _LEGO["check_negatives"]

    @model_validator(mode="after")
    def _near_is_nearer(self) -> LEGOConfig:
        if self.near >= self.far:
            raise ValueError(f"near must be smaller than far, not {self.near:g} and {self.far:g}")
        return self


class MCMLConfig(_Section):
    """The metric that collapses classes; see MCML."""

    trace_penalty: float = _differs(0.003, "0 is the paper's problem, which overfits; chosen on training images", ge=0)
    n_steps: int = _differs(60, "enough on Caltech-101; an iteration takes seconds", gt=0)
    tol: float = Field(default=_MCML["tol"], ge=0)
    pass_steps: int = _differs(10, "a check every ten iterations", gt=0)
    validation_fraction: float | None = Field(default=_MCML["validation_fraction"], gt=0, lt=1)
    patience: int | None = Field(default=_MCML["patience"], gt=0)
    refit: bool = _differs(True, _REFIT)


class MuSLConfig(_Section):
    """A few metrics, each for a group of categories; see MuSL."""

    n_metrics: int = Field(default=_MUSL["n_metrics"], gt=0)
    n_bits: int = Field(default=_MUSL["n_bits"], gt=0)
    alpha: float = _differs(0.5, _FOREST_STUDY, gt=0)
    midpoint: Literal["final", "running"] = _differs("running", _FOREST_STUDY)
    balanced: bool = _differs(True, _FOREST_STUDY)
    r: float = Field(default=_MUSL["r"], gt=0)
    negatives_per_example: int = Field(default=_MUSL["negatives_per_example"], gt=0)
    grouping: Literal["joint", "kmeans", "random"] = _MUSL["grouping"]
    retrain: bool = _MUSL["retrain"]
    n_starts: int = Field(default=_MUSL["n_starts"], gt=0)
    max_images: int | None = Field(default=_MUSL["max_images"], gt=1)  # a random sample of this many if there are more


class EvaluateConfig(_Section):
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
    checkpoint_seconds: float = Field(
        default=20.0, ge=0
    )  # between checkpoints; a killed training loses at most this much


class ClusterConfig(_Section):
    """A Dask cluster in place of `compute.n_jobs`; no setting here changes a result."""

    scheduler: str | None = None  # such as tcp://host:8786; null: this machine alone

    @field_validator("scheduler")
    @classmethod
    def _address(cls, scheduler: str | None) -> str | None:
        protocol, separator, rest = (scheduler or "").partition("://")
        if scheduler is not None and not (protocol and separator and rest):
            raise ValueError(f"scheduler is an address such as tcp://host:8786, or null, not {scheduler!r}")
        return scheduler


class Config(_Section):
    """All settings of a run."""

    seed: int = Field(default=0, ge=0)
    collection: CollectionConfig = CollectionConfig()
    split: SplitConfig = SplitConfig()
    features: FeaturesConfig = FeaturesConfig()
    train: TrainConfig = TrainConfig()
    oasis: OASISConfig = OASISConfig()
    aroma: AROMAConfig = AROMAConfig()
    wsabie: WSABIEConfig = WSABIEConfig()
    pamir: PAMIRConfig = PAMIRConfig()
    warp: LinearWARPConfig = LinearWARPConfig()
    ovr: OneVsRestConfig = OneVsRestConfig()
    hier: HIERConfig = HIERConfig()
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
