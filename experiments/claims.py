"""The papers' claims, each once: where the paper has it, in some words, and its figure.

Templates judge them by name; a claim belongs to a row of coverage.py, which says on which page it is.
"""

from __future__ import annotations

from typing import NamedTuple

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
    size: tuple[float, ...] = ()
    # What the size is of, "times": what is ahead divided by the other; "points": the difference, in the units of the
    # page; or "value": a figure that the page hands over.
    unit: str = "times"
    comparable: bool = True  # False where it is about programs that are not at hand
    needs: str = ""  # what may settle a verdict that is not clear, in hours of one core from recorded times


PRECISION = "figure 6, table 4: precision of all systems"
TIMES = "table 5: training time of all systems"
SYMMETRIC, PSD = "figure 8: symmetric variants", "figure 9: positive semi-definite projections"
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
# The code asks for them; the page is of an earlier run. 115, 37 and 27 s a fold of factored AROMA, MCML and LMNN.
TEN_FOLDS = "ten folds of MCML, LMNN, ITML and factored AROMA, `make reproduce ONLY=retrieval`, 1 h"
TEN_POSTS, TEN_TRIALS = "ten repeats of newsgroups, 0.9 h", "ten trials of musl, 0.5 h"

CLAIMS = {
    "oasis-every-k": Claim("JMLR", PRECISION, "OASIS is best at every k"),
    "oasis-over-euclidean": Claim("JMLR", PRECISION, "OASIS is above the Euclidean distance"),
    "lego-over-euclidean": Claim("JMLR", PRECISION, "LEGO is above the Euclidean distance"),
    "oasis-over-mcml": Claim("JMLR", PRECISION, "OASIS is above MCML", needs=TEN_FOLDS),
    "oasis-over-lego": Claim("JMLR", PRECISION, "OASIS is above LEGO"),
    "mcml-over-lego": Claim("JMLR", PRECISION, "MCML is above LEGO", needs=TEN_FOLDS),
    "lego-over-lmnn": Claim("JMLR", PRECISION, "LEGO is above LMNN"),
    "lmnn-as-euclidean": Claim("JMLR", PRECISION, "LMNN is about as good as the Euclidean distance"),
    "oasis-over-rca": Claim("JMLR", LEFT_OUT, "RCA is below OASIS"),
    "oasis-saturates": Claim(
        "JMLR",
        "figure 5: mAP along the steps",
        "OASIS saturates early",
        "35K",
        chosen=False,
        size=(35_000,),
        unit="value",
    ),
    "oasis-falls": Claim(
        "JMLR", "figure 5: mAP along the steps", "OASIS, once saturated, falls very slowly", chosen=False
    ),
    "rankers": Claim("JMLR", "figure 7: averaged rankers", "Averaged rankers are above a single one", chosen=False),
    "symmetric-as-oasis": Claim("JMLR", SYMMETRIC, "Proj-OASIS is as precise as OASIS"),
    "symmetric-not-above": Claim("JMLR", SYMMETRIC, "Symmetric variants are slightly worse, or equal"),
    "online-near-oasis": Claim("JMLR", SYMMETRIC, "Online-Proj-OASIS comes near OASIS"),
    "rho": Claim(
        "NIPS",
        "section 4.3.1, figure 3 (a): symmetric variants",
        "W becomes almost symmetric",
        "0.94",
        chosen=False,
        size=(0.94,),
        unit="value",
    ),
    "metric-over-metrics": Claim(
        "NIPS", METRIC, "OASIS made a metric is above similarities learned as metrics", needs=TEN_FOLDS
    ),
    "lego-eta": Claim("JMLR", ETA, "LEGO varies less over eta than over the splits", chosen=False),
    "lmnn-overfits": Claim("JMLR", OVERFITS, "LMNN gains more on training images: it overfits", chosen=False),
    "dissim-time": Claim(
        "JMLR", DISSIM, "OASIS is twice as fast as Dissim-OASIS", "2 times", chosen=False, size=(2,), unit="value"
    ),
    "theorem-1": Claim("JMLR", THEOREM, "The mistakes of OASIS are bounded", chosen=False),
    "psd-after": Claim("JMLR", PSD, "At early stopping, projecting after learning is best", chosen=False),
    "psd-along": Claim("JMLR", PSD, "At 250,000 steps, projecting once, after learning, is best", chosen=False),
    "psd-rarely": Claim("JMLR", PSD, "Projecting every 50,000 steps beats every 5,000", chosen=False),
    "oasis-fastest": Claim("JMLR", TIMES, "OASIS trains fastest"),
    "mcml-time": Claim(
        "JMLR",
        TIMES,
        "MCML takes two orders of magnitude longer",
        "100 times",
        size=(100,),
        unit="value",
        comparable=False,
    ),
    "lmnn-time": Claim(
        "JMLR",
        TIMES,
        "LMNN takes an order of magnitude longer",
        "10 times",
        size=(10,),
        unit="value",
        comparable=False,
    ),
    "time-per-step": Claim(
        "JMLR",
        "figure 4: time against the number of images",
        "Time is linear in the images, at fixed steps per image",
        chosen=False,
    ),
    "time-linear": Claim(
        "JMLR",
        "figure 4: time against the number of images",
        "Time to early stopping is linear in the images",
        needs="five seeds of 32,000 images without a cap on triplets, 0.3 h",
    ),
    "aroma-lead": Claim(
        "AROMA", LEFT, "AROMA leads all others at the head of the list", "0.33 : 0.22", size=(1.5,), needs=TEN_FOLDS
    ),
    "aroma-over-euclidean": Claim("AROMA", LEFT, "AROMA is above the Euclidean distance"),
    "aroma-over-hier": Claim("AROMA", LEFT, "AROMA is above HIER at the head of the list"),
    "aroma-over-lmnn": Claim("AROMA", LEFT, "AROMA is above LMNN", needs=TEN_FOLDS),
    "aroma-over-itml": Claim(
        "AROMA", LEFT, "AROMA is above ITML", needs="ITML for more than five sweeps, ten folds, 0.5 h"
    ),
    "aroma-factored": Claim("AROMA", LEFT, "Factored AROMA is slightly above diagonal AROMA", needs=TEN_FOLDS),
    "aroma-converges": Claim(
        "AROMA",
        ALONG,
        "Diagonal is ahead first, factored converges faster",
        "200K-500K",
        chosen=False,
        size=(200_000, 500_000),
        unit="value",
    ),
    "diagonal-any-r": Claim(
        "AROMA",
        ALONG,
        "Diagonal AROMA hardly depends on r, over three decades",
        "< 5 %",
        chosen=False,
        size=(0, 5),
        unit="value",
    ),
    "factored-any-r": Claim(
        "AROMA",
        ALONG,
        "Factored AROMA hardly depends on r, over three decades",
        "< 5 %",
        chosen=False,
        size=(0, 5),
        unit="value",
        needs="r of 100 and 1,000, three folds, 0.1 h",
    ),
    "posts-over-oasis": Claim("AROMA", POSTS, "Posts: AROMA is far above OASIS", chosen=False, needs=TEN_POSTS),
    "posts-over-itml": Claim(
        "AROMA", POSTS, "Posts: AROMA is far above ITML", needs="ITML for more sweeps, and ten repeats, 1.5 h"
    ),
    "posts-along": Claim(
        "AROMA", POSTS, "Posts: AROMA is above OASIS for most of the steps", chosen=False, needs=TEN_POSTS
    ),
    "posts-covariance": Claim(
        "AROMA", POSTS, "Posts: the covariance helps, beside OASIS with its best C", chosen=False, needs=TEN_POSTS
    ),
    "posts-steps": Claim(
        "AROMA",
        POSTS,
        "Posts: OASIS needs ten times the steps",
        "10 times",
        chosen=False,
        size=(10, UNBOUNDED),
        unit="value",
    ),
    "posts-factored": Claim("AROMA", POSTS, "Posts: factored converges faster, diagonal catches up", chosen=False),
    "posts-any-r": Claim("AROMA", POSTS, "Posts: AROMA's gain holds for a large range of r", chosen=False),
    "posts-any-C": Claim("AROMA", POSTS, "Posts: OASIS is robust to the choice of C", chosen=False),
    "warp-as-owpc": Claim("WSABIE", LOSSES, "WARP's estimated rank does what OWPC's does", chosen=False),
    "warp-faster": Claim("WSABIE", OVER_TIME, "WARP learns faster than AUC"),
    "warp-over-auc": Claim(
        "WSABIE",
        LOSSES,
        "WARP is above AUC",
        "4.03 : 1.65, 1.03 : 0.19 %",
        size=(4.03 / 1.65, 1.03 / 0.19),
        needs="AUC for 25.6M steps, 0.1 h",
    ),
    "linear-warp-over-auc": Claim(
        "WSABIE",
        LOSSES,
        "Without embedding, too, WARP is above AUC",
        "4.25 : 3.14, 0.94 : 0.32 %",
        size=(4.25 / 3.14, 0.94 / 0.32),
        needs="PAMIR-IA for 25.6M steps, 0.1 h",
    ),
    "owpc-slow": Claim("WSABIE", OVER_TIME, "OWPC has hardly got anywhere when WARP is trained"),
    "wsabie-over-tree": Claim(
        "WSABIE",
        ALL_SYSTEMS,
        "WSABIE is above approximate k-NN",
        "4.03 : 1.55, 1.03 : 0.30 %",
        size=(4.03 / 1.55, 1.03 / 0.30),
    ),
    "wsabie-over-rest": Claim(
        "WSABIE",
        ALL_SYSTEMS,
        "WSABIE is above one-vs-rest",
        "4.03 : 2.27, 1.03 : 0.52 %",
        size=(4.03 / 2.27, 1.03 / 0.52),
    ),
    "wsabie-over-pamir": Claim(
        "WSABIE",
        ALL_SYSTEMS,
        "WSABIE is above PAMIR-IA",
        "4.03 : 3.14, 1.03 : 0.32 %",
        size=(4.03 / 3.14, 1.03 / 0.32),
        needs="PAMIR-IA for 25.6M steps, 0.1 h",
    ),
    "knn-over-wsabie": Claim(
        "WSABIE", ALL_SYSTEMS, "ImageNet: exact k-NN is above WSABIE", "4.5 : 4.03 %", size=(4.5 / 4.03,)
    ),
    "wsabie-over-knn": Claim(
        "WSABIE", ALL_SYSTEMS, "Web data: WSABIE is above exact k-NN", "1.03 : 0.30 %", size=(1.03 / 0.30,)
    ),
    "tree-loses": Claim(
        "WSABIE",
        LEAF,
        "Approximate k-NN loses most of exact k-NN",
        "1.55 : 4.5 %",
        size=(1.55 / 4.5,),
        unit="value",
    ),
    "wsabie-sibling": Claim(
        "WSABIE",
        "figure 1: precision and sibling precision at k",
        "WSABIE leads PAMIR-IA in sib@10",
        "5.18 : 4.39, 9.84 : 2.94 %",
        size=(5.18 / 4.39, 9.84 / 2.94),
    ),
    "linear-warp": Claim(
        "WSABIE", LOSSES, "ImageNet: linear WARP is above WSABIE", "4.25 : 4.03 %", size=(4.25 / 4.03,)
    ),
    "wsabie-over-linear": Claim(
        "WSABIE", LOSSES, "Web data: WSABIE is above linear WARP", "1.03 : 0.94 %", size=(1.03 / 0.94,)
    ),
    "wsabie-memory": Claim(
        "WSABIE",
        "table 6: time and memory",
        "WSABIE needs a hundredth of the memory",
        "1,200 : 12 MB",
        chosen=False,
        size=(100,),
        unit="value",
    ),
    "wsabie-queries": Claim(
        "WSABIE",
        "table 6: time and memory",
        "WSABIE answers faster than one-vs-rest",
        "17 : 5.6 h, 19 : 6.5 d",
        chosen=False,
        size=(19 / 6.5, 17 / 5.6),
        unit="value",
    ),
    "wsabie-size": Claim(
        "WSABIE",
        "table 4: sizes of the space, up to 500",
        "The size of the space matters little",
        "4.03 : 3.48 %",
        size=(4.03 / 3.48,),
        unit="value",
    ),
    "ensemble-sizes": Claim(
        "WSABIE",
        ENSEMBLES,
        "Three sizes together are far above one",
        "6.14 : 4.03 %",
        size=(6.14 / 4.03,),
        needs="the sizes and ensembles on 1,452 words, 1 h",
    ),
    "ensemble-equal": Claim(
        "WSABIE",
        ENSEMBLES,
        "Three models of equal size are above one",
        needs="the sizes and ensembles on 1,452 words, 1 h",
    ),
    "metrics-rise": Claim("MuSL", METRICS, "A metric per category is above one for all"),
    "metrics-few": Claim("MuSL", METRICS, "A few metrics come close to one per category"),
    "metrics-five": Claim(
        "MuSL", METRICS, "K = 5 is above one metric, with our changes", "10 points", size=(10,), unit="points"
    ),
    "metrics-printed": Claim(
        "MuSL",
        AS_PRINTED,
        "K = 5 is above one metric, as printed",
        "10 points",
        chosen=False,
        size=(10,),
        unit="points",
        needs="ten trials of MuSL as printed, 0.3 h",
    ),
    "joint-over-random": Claim(
        "MuSL", METRICS, "Joint grouping is above random grouping", "5 points", size=(5,), unit="points"
    ),
    "joint-over-kmeans": Claim(
        "MuSL",
        METRICS,
        "Joint grouping is above k-means grouping",
        "5 points",
        size=(5,),
        unit="points",
        needs=TEN_TRIALS,
    ),
    "retraining": Claim(
        "MuSL", METRICS, "Re-training raises accuracy", "2 points", size=(2,), unit="points", needs=TEN_TRIALS
    ),
    "caltech-metrics": Claim(
        "MuSL", CALTECH, "Caltech-20: a metric per category is above one", "14 points", size=(14,), unit="points"
    ),
    "caltech-joint": Claim("MuSL", CALTECH, "Caltech-20: joint grouping tends to be best"),
    "groups-over-kmeans": Claim("MuSL", GROUPS, "K = 3 finds the sources, k-means does not", needs=TEN_TRIALS),
    "groups-are-sources": Claim("MuSL", GROUPS, "The groups of K = 3 are the sources"),
    "stable": Claim(
        "MuSL", STABILITY, "Groupings are stable, those of k-means are not", "96 : 50 %", size=(96,), unit="value"
    ),
    "novel-metric": Claim("MuSL", NOVEL, "Novel categories get the metric of their source"),
    "novel-many": Claim("MuSL", NOVEL, "Too many metrics hurt novel categories", needs=TEN_TRIALS),
    "novel-over-one": Claim(
        "MuSL",
        NOVEL,
        "Novel categories: K = 3 is above one metric",
        "25 points",
        size=(25,),
        unit="points",
        needs=TEN_TRIALS,
    ),
    "novel-over-kmeans": Claim("MuSL", NOVEL, "Novel categories: joint is above k-means grouping", needs=TEN_TRIALS),
    "all-few": Claim("MuSL", NOVEL, "Known and novel: a few metrics are best", needs=TEN_TRIALS),
    "all-over-kmeans": Claim(
        "MuSL", NOVEL, "Known and novel: joint is above k-means", "5 points", size=(5,), unit="points", needs=TEN_TRIALS
    ),
}
