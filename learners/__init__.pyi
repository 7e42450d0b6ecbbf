# The public names of the room; __init__.py loads each from its file when it is first used.
from visterm.plugins.annotators.hier import HIER
from visterm.plugins.annotators.knn import KNNAnnotator
from visterm.plugins.annotators.one_vs_rest import OneVsRestPA
from visterm.plugins.annotators.pamir import PAMIR
from visterm.plugins.annotators.warp import LinearWARP
from visterm.plugins.baselines.label_ridge import LabelRidge
from visterm.plugins.baselines.lego import LEGO
from visterm.plugins.baselines.mcml import MCML
from visterm.plugins.baselines.rca import RCA
from visterm.plugins.baselines.xing import Xing
from visterm.plugins.export.onnx_maps import to_onnx
from visterm.plugins.scikit.neighbors import Embedding, SimilarityNeighbors

from .aroma import AROMA
from .base import SimilarityLearner
from .blend import Blend
from .cosine import Cosine
from .musl import MuSL
from .oasis import OASIS
from .saved import LEARNERS, load_learner, load_similarity
from .similarity import Similarity
from .teachers import Teachers
from .triplets import TripletSampler
from .wsabie import WSABIE

__all__ = [
    "AROMA",
    "Blend",
    "Cosine",
    "Embedding",
    "HIER",
    "KNNAnnotator",
    "LEARNERS",
    "LEGO",
    "LabelRidge",
    "LinearWARP",
    "MCML",
    "MuSL",
    "OASIS",
    "OneVsRestPA",
    "PAMIR",
    "RCA",
    "Similarity",
    "SimilarityLearner",
    "SimilarityNeighbors",
    "Teachers",
    "TripletSampler",
    "WSABIE",
    "Xing",
    "load_learner",
    "load_similarity",
    "to_onnx",
]
