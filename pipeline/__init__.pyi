from visterm.plugins.explanation.explanation import explain_pair as explain_pair
from visterm.teaching.feedback import FeedbackTrainer as FeedbackTrainer
from visterm.teaching.harmful import find_harmful as find_harmful
from visterm.teaching.labels import LabelEditor as LabelEditor
from visterm.teaching.overview import find_duplicates as find_duplicates
from visterm.teaching.overview import make_overview as make_overview
from visterm.teaching.wrong_labels import find_wrong_labels as find_wrong_labels
from visterm.teaching.wrong_labels import judge_labels as judge_labels

from .search.request import SearchRequest as SearchRequest
from .search.searcher import Searcher as Searcher
from .store.opened import open_run as open_run

__all__ = [
    "FeedbackTrainer",
    "LabelEditor",
    "SearchRequest",
    "Searcher",
    "explain_pair",
    "find_duplicates",
    "find_harmful",
    "find_wrong_labels",
    "judge_labels",
    "make_overview",
    "open_run",
]
