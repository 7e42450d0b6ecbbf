# The public names of the room; __init__.py loads each from its file when it is first used.
from visterm.plugins.explanation.contributions import Contributions, Pair, explain, explain_matrix
from visterm.plugins.explanation.regions import RegionMatch, Regions, find_regions, no_regions

from .evaluation import (
    Comparison,
    Evaluation,
    compare,
    evaluate,
    evaluate_index,
    evaluate_query_gallery,
    evaluate_test_test,
    relevance_from_labels,
)
from .index import ExactIndex, SupportsSimilarity
from .labels import (
    knn_accuracy,
    knn_labels,
    label_precision_at,
    mean_recall,
    precision_recall_per_label,
    sibling_precision_at,
    siblings_from_parents,
)
from .metrics import (
    average_precision,
    chance_average_precision,
    chance_precision,
    map_at_r,
    ndcg_at,
    precision_at,
    r_precision,
    recall_at,
)
from .neighbours import NeighbourIndex, Neighbours, with_neighbours
from .ranking import Ranking
from .stored import StoredVectors
from .two_stage import TwoStageIndex

__all__ = [
    "Comparison",
    "Contributions",
    "Evaluation",
    "ExactIndex",
    "NeighbourIndex",
    "Neighbours",
    "Pair",
    "Ranking",
    "RegionMatch",
    "Regions",
    "StoredVectors",
    "SupportsSimilarity",
    "TwoStageIndex",
    "average_precision",
    "chance_average_precision",
    "chance_precision",
    "compare",
    "evaluate",
    "evaluate_index",
    "evaluate_query_gallery",
    "evaluate_test_test",
    "explain",
    "explain_matrix",
    "find_regions",
    "knn_accuracy",
    "knn_labels",
    "label_precision_at",
    "map_at_r",
    "mean_recall",
    "ndcg_at",
    "no_regions",
    "precision_at",
    "precision_recall_per_label",
    "r_precision",
    "recall_at",
    "relevance_from_labels",
    "sibling_precision_at",
    "siblings_from_parents",
    "with_neighbours",
]
