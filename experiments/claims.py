"""The papers' claims, each once: where the paper has it, in some words, and its figure.

Templates judge them by name; a claim belongs to a row of coverage.py, which says on which page it is.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

PAPERS = {
    "JMLR": "G. Chechik, V. Sharma, U. Shalit, S. Bengio: *Large Scale Online Learning of Image Similarity through "
    "Ranking*, JMLR 11, 2010",
    "NIPS": "G. Chechik, V. Sharma, U. Shalit, S. Bengio: *An Online Algorithm for Large Scale Image Similarity "
    "Learning*, NIPS 22, 2009",
    "AROMA": "K. Crammer, G. Chechik: *Adaptive Regularization for Weight Matrices*, ICML 2012",
    "WSABIE": "J. Weston, S. Bengio, N. Usunier: *Large Scale Image Annotation: Learning to Rank with Joint Word-Image "
    "Embeddings*, ECML 2010",
    "MuSL": "B. Babenko, S. Branson, S. Belongie: *Similarity Metrics for Categorization: from Monolithic to Category "
    "Specific*, ICCV 2009",
}


class Claim(NamedTuple):
    """A claim of a paper."""

    paper: str  # a key of `PAPERS`
    item: str  # the row of coverage.py that it belongs to
    words: str  # what the paper claims, in about ten words
    figure: str = ""  # the paper's figure, if it gives one
    # Whether its systems have settings that validation chose: the verdict is open where these lie at the edge of those
    # tried. False: settings are the paper's, or all of a range.
    chosen: bool = True
    # The paper's size; several of data sets, or both ends of a range, which is infinite where it is a bound.
    size: Sizes = ()
    # What the size is of, "times": what is ahead divided by the other; "points": the difference, in the units of the
    # page; or "value": a figure that the page hands over.
    unit: str = "times"
    comparable: bool = True  # False where it is about programs that are not at hand
    needs: str = ""  # what may settle a verdict that is not clear, in hours of one core from recorded times


PRECISION = "figure 6, table 4: precision of all systems"
TIMES = "table 5: training time of all systems"
SYMMETRIC, PSD = "figure 8: symmetric variants", "figure 9: positive semi-definite projections"
STEPS, SCALING = "figure 5: mAP along the steps", "figure 4: time against the number of images"
COSTS = "table 6: time and memory"
LEFT, ALONG = "figure 3, left: precision of all systems", "figure 3, middle and right: along the steps, and by r"
POSTS = "figure 4: 20 Newsgroups"
ALL_SYSTEMS = "tables 1 and 2: the data sets, and all systems on them"
LOSSES = "table 5: WARP against AUC, with and without embedding"
OVER_TIME, ENSEMBLES = (
    "figure 2: precision along training time",
    "table 7: ensembles, of several sizes and of equal ones",
)
CALTECH, METRICS = "figure 5A: Caltech-20", "figure 5B: accuracy by the number of metrics"
NOVEL, STABILITY, GROUPS = "figure 8: novel categories", "section 3.3: stability", "figures 6 and 7: the groups"
ETA, OVERFITS = "section 5.3.2: LEGO's eta", "section 5.3.3: LMNN on training images"
DISSIM, THEOREM = "section 6.1: the time of Dissim-OASIS", "theorem 1: a bound of mistakes"

LEAF, AS_PRINTED = "section 6.4: the leaf of approximate k-NN", "section 3.1: the algorithm as printed"
METRIC, LEFT_OUT = "abstract: metrics made of similarities", "RCA, Xing's method (tried, not reported)"
UNBOUNDED = float("inf")
TEN_FOLDS = "ten folds of LEGO and WSABIE in place of five, 0.3 h at most"
TEN_POSTS, TEN_TRIALS = "ten repeats of newsgroups, 0.9 h", "ten trials of musl, 0.5 h"


Sizes = tuple[float, ...]


def _claim(*text: str, value: Sizes = (), points: Sizes = (), size: Sizes = (), **more: Any) -> Claim:
    """A claim whose size, where the paper gives one, is a `value`, so many `points`, or so many times (`size`)."""
    unit = "value" if value else "points" if points else "times"
    return Claim(*text, size=value or points or size, unit=unit, **more)


jmlr, nips, aroma, wsabie, musl = (partial(_claim, paper) for paper in PAPERS)


CLAIMS = {
    "oasis-every-k": jmlr(PRECISION, "OASIS is best at every k"),
    "oasis-over-euclidean": jmlr(PRECISION, "OASIS is above the Euclidean distance"),
    "lego-over-euclidean": jmlr(PRECISION, "LEGO is above the Euclidean distance"),
    "oasis-over-mcml": jmlr(PRECISION, "OASIS is above MCML"),
    "oasis-over-lego": jmlr(PRECISION, "OASIS is above LEGO"),
    "mcml-over-lego": jmlr(PRECISION, "MCML is above LEGO", needs=TEN_FOLDS),
    "lego-over-lmnn": jmlr(PRECISION, "LEGO is above LMNN"),
    "lmnn-as-euclidean": jmlr(PRECISION, "LMNN is about as good as the Euclidean distance"),
    "oasis-over-rca": jmlr(LEFT_OUT, "RCA is below OASIS"),
    "oasis-saturates": jmlr(STEPS, "OASIS saturates early", "35K", value=(35_000,), chosen=False),
    "oasis-falls": jmlr(STEPS, "OASIS, once saturated, falls very slowly", chosen=False),
    "rankers": jmlr("figure 7: averaged rankers", "Averaged rankers are above a single one", chosen=False),
    "symmetric-as-oasis": jmlr(SYMMETRIC, "Proj-OASIS is as precise as OASIS"),
    "symmetric-not-above": jmlr(SYMMETRIC, "Symmetric variants are slightly worse, or equal"),
    "online-near-oasis": jmlr(SYMMETRIC, "Online-Proj-OASIS comes near OASIS"),
    "rho": nips(
        "section 4.3.1, figure 3 (a): symmetric variants",
        "W becomes almost symmetric",
        "0.94",
        value=(0.94,),
        chosen=False,
    ),
    "metric-over-metrics": nips(METRIC, "OASIS made a metric is above similarities learned as metrics"),
    "lego-eta": jmlr(ETA, "LEGO varies less over eta than over the splits", chosen=False),
    "lmnn-overfits": jmlr(OVERFITS, "LMNN gains more on training images: it overfits", chosen=False),
    "dissim-time": jmlr(DISSIM, "OASIS is twice as fast as Dissim-OASIS", "2 times", value=(2,), chosen=False),
    "theorem-1": jmlr(THEOREM, "The mistakes of OASIS are bounded", chosen=False),
    "psd-after": jmlr(PSD, "At early stopping, projecting after learning is best", chosen=False),
    "psd-along": jmlr(PSD, "At 250,000 steps, projecting once, after learning, is best", chosen=False),
    "psd-rarely": jmlr(PSD, "Projecting every 50,000 steps beats every 5,000", chosen=False),
    "oasis-fastest": jmlr(TIMES, "OASIS trains fastest"),
    "mcml-time": jmlr(TIMES, "MCML takes two orders of magnitude longer", "100 times", value=(100,), comparable=False),
    "lmnn-time": jmlr(TIMES, "LMNN takes an order of magnitude longer", "10 times", value=(10,), comparable=False),
    "time-per-step": jmlr(SCALING, "Time is linear in the images, at fixed steps per image", chosen=False),
    "time-linear": jmlr(
        SCALING,
        "Time to early stopping is linear in the images",
        needs="five seeds of 32,000 images without a cap on triplets, 0.3 h",
    ),
    "aroma-lead": aroma(
        LEFT, "AROMA leads all others at the head of the list", "0.33 : 0.22", size=(1.5,), needs=TEN_FOLDS
    ),
    "aroma-over-euclidean": aroma(LEFT, "AROMA is above the Euclidean distance"),
    "aroma-over-hier": aroma(LEFT, "AROMA is above HIER at the head of the list"),
    "aroma-over-lmnn": aroma(LEFT, "AROMA is above LMNN"),
    "aroma-over-itml": aroma(LEFT, "AROMA is above ITML", needs="ITML for more than five sweeps, ten folds, 0.5 h"),
    "aroma-factored": aroma(
        LEFT, "Factored AROMA is slightly above diagonal AROMA", needs="thirty folds of factored AROMA, 0.7 h"
    ),
    "aroma-converges": aroma(
        ALONG, "Diagonal is ahead first, factored converges faster", "200K-500K", value=(200_000, 500_000), chosen=False
    ),
    "diagonal-any-r": aroma(
        ALONG, "Diagonal AROMA hardly depends on r, over three decades", "< 5 %", value=(0, 5), chosen=False
    ),
    "factored-any-r": aroma(
        ALONG,
        "Factored AROMA hardly depends on r, over three decades",
        "< 5 %",
        value=(0, 5),
        chosen=False,
    ),
    "posts-over-oasis": aroma(POSTS, "Posts: AROMA is far above OASIS", chosen=False, needs=TEN_POSTS),
    "posts-over-itml": aroma(
        POSTS, "Posts: AROMA is far above ITML", needs="ITML for more sweeps, and ten repeats, 1.5 h"
    ),
    "posts-along": aroma(POSTS, "Posts: AROMA is above OASIS for most of the steps", chosen=False, needs=TEN_POSTS),
    "posts-covariance": aroma(
        POSTS, "Posts: the covariance helps, beside OASIS with its best C", chosen=False, needs=TEN_POSTS
    ),
    "posts-steps": aroma(
        POSTS, "Posts: OASIS needs ten times the steps", "10 times", value=(10, UNBOUNDED), chosen=False
    ),
    "posts-factored": aroma(POSTS, "Posts: factored converges faster, diagonal catches up", chosen=False),
    "posts-any-r": aroma(POSTS, "Posts: AROMA's gain holds for a large range of r", chosen=False),
    "posts-any-C": aroma(POSTS, "Posts: OASIS is robust to the choice of C", chosen=False),
    "warp-as-owpc": wsabie(LOSSES, "WARP's estimated rank does what OWPC's does", chosen=False),
    "warp-faster": wsabie(OVER_TIME, "WARP learns faster than AUC"),
    "warp-over-auc": wsabie(
        LOSSES,
        "WARP is above AUC",
        "4.03 : 1.65, 1.03 : 0.19 %",
        size=(4.03 / 1.65, 1.03 / 0.19),
        needs="AUC for 102.4M steps, 0.4 h",
    ),
    "linear-warp-over-auc": wsabie(
        LOSSES,
        "Without embedding, too, WARP is above AUC",
        "4.25 : 3.14, 0.94 : 0.32 %",
        size=(4.25 / 3.14, 0.94 / 0.32),
        needs="PAMIR-IA for 102.4M steps, 0.4 h",
    ),
    "owpc-slow": wsabie(OVER_TIME, "OWPC has hardly got anywhere when WARP is trained"),
    "wsabie-over-tree": wsabie(
        ALL_SYSTEMS, "WSABIE is above approximate k-NN", "4.03 : 1.55, 1.03 : 0.30 %", size=(4.03 / 1.55, 1.03 / 0.30)
    ),
    "wsabie-over-rest": wsabie(
        ALL_SYSTEMS, "WSABIE is above one-vs-rest", "4.03 : 2.27, 1.03 : 0.52 %", size=(4.03 / 2.27, 1.03 / 0.52)
    ),
    "wsabie-over-pamir": wsabie(
        ALL_SYSTEMS,
        "WSABIE is above PAMIR-IA",
        "4.03 : 3.14, 1.03 : 0.32 %",
        size=(4.03 / 3.14, 1.03 / 0.32),
        needs="PAMIR-IA for 102.4M steps, 0.4 h",
    ),
    "knn-over-wsabie": wsabie(ALL_SYSTEMS, "ImageNet: exact k-NN is above WSABIE", "4.5 : 4.03 %", size=(4.5 / 4.03,)),
    "wsabie-over-knn": wsabie(
        ALL_SYSTEMS, "Web data: WSABIE is above exact k-NN", "1.03 : 0.30 %", size=(1.03 / 0.30,)
    ),
    "tree-loses": wsabie(LEAF, "Approximate k-NN loses most of exact k-NN", "1.55 : 4.5 %", value=(1.55 / 4.5,)),
    "wsabie-sibling": wsabie(
        "figure 1: precision and sibling precision at k",
        "WSABIE leads PAMIR-IA in sib@10",
        "5.18 : 4.39, 9.84 : 2.94 %",
        size=(5.18 / 4.39, 9.84 / 2.94),
    ),
    "linear-warp": wsabie(LOSSES, "ImageNet: linear WARP is above WSABIE", "4.25 : 4.03 %", size=(4.25 / 4.03,)),
    "wsabie-over-linear": wsabie(LOSSES, "Web data: WSABIE is above linear WARP", "1.03 : 0.94 %", size=(1.03 / 0.94,)),
    "wsabie-memory": wsabie(
        COSTS, "WSABIE needs a hundredth of the memory", "1,200 : 12 MB", value=(100,), chosen=False
    ),
    "wsabie-queries": wsabie(
        COSTS,
        "WSABIE answers faster than one-vs-rest",
        "17 : 5.6 h, 19 : 6.5 d",
        value=(19 / 6.5, 17 / 5.6),
        chosen=False,
    ),
    "wsabie-size": wsabie(
        "table 4: sizes of the space, up to 500",
        "The size of the space matters little",
        "4.03 : 3.48 %",
        value=(4.03 / 3.48,),
    ),
    "ensemble-sizes": wsabie(
        ENSEMBLES,
        "Three sizes together are far above one",
        "6.14 : 4.03 %",
        size=(6.14 / 4.03,),
        needs="the sizes and ensembles on 1,452 words, 1 h",
    ),
    "ensemble-equal": wsabie(
        ENSEMBLES, "Three models of equal size are above one", needs="the sizes and ensembles on 1,452 words, 1 h"
    ),
    "metrics-rise": musl(METRICS, "A metric per category is above one for all"),
    "metrics-few": musl(METRICS, "A few metrics come close to one per category"),
    "metrics-five": musl(METRICS, "K = 5 is above one metric, with our changes", "10 points", points=(10,)),
    "metrics-printed": musl(
        AS_PRINTED,
        "K = 5 is above one metric, as printed",
        "10 points",
        points=(10,),
        chosen=False,
        needs="ten trials of MuSL as printed, 0.3 h",
    ),
    "joint-over-random": musl(METRICS, "Joint grouping is above random grouping", "5 points", points=(5,)),
    "joint-over-kmeans": musl(
        METRICS, "Joint grouping is above k-means grouping", "5 points", points=(5,), needs=TEN_TRIALS
    ),
    "retraining": musl(METRICS, "Re-training raises accuracy", "2 points", points=(2,), needs=TEN_TRIALS),
    "caltech-metrics": musl(CALTECH, "Caltech-20: a metric per category is above one", "14 points", points=(14,)),
    "caltech-joint": musl(CALTECH, "Caltech-20: joint grouping tends to be best"),
    "groups-over-kmeans": musl(GROUPS, "K = 3 finds the sources, k-means does not", needs=TEN_TRIALS),
    "groups-are-sources": musl(GROUPS, "The groups of K = 3 are the sources"),
    "stable": musl(STABILITY, "Groupings are stable, those of k-means are not", "96 : 50 %", value=(96,)),
    "novel-metric": musl(NOVEL, "Novel categories get the metric of their source"),
    "novel-many": musl(NOVEL, "Too many metrics hurt novel categories", needs=TEN_TRIALS),
    "novel-over-one": musl(
        NOVEL, "Novel categories: K = 3 is above one metric", "25 points", points=(25,), needs=TEN_TRIALS
    ),
    "novel-over-kmeans": musl(NOVEL, "Novel categories: joint is above k-means grouping", needs=TEN_TRIALS),
    "all-few": musl(NOVEL, "Known and novel: a few metrics are best", needs=TEN_TRIALS),
    "all-over-kmeans": musl(
        NOVEL, "Known and novel: joint is above k-means", "5 points", points=(5,), needs=TEN_TRIALS
    ),
}
