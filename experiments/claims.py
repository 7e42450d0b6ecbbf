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
    """A claim of a paper.

    Parameters
    ----------
    paper : str
        A key of `PAPERS`.
    item : str
        The row of coverage.py that it belongs to.
    words : str
        What the paper claims, in about ten words.
    figure : str
        The paper's figure, if it gives one.
    chosen : bool
        Whether its systems have settings that validation chose: the verdict is open where these lie at the edge of
        those tried. False: settings are the paper's, or all of a range.
    """

    paper: str
    item: str
    words: str
    figure: str = ""
    chosen: bool = True


PRECISION = "figure 6, table 4: precision of all systems"
TIMES = "table 5: training time of all systems"
SYMMETRIC, PSD = "figure 8: symmetric variants", "figure 9: positive semi-definite projections"
LEAD = "section 5.1: the lead over OASIS, 0.33 against 0.22"
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

CLAIMS = {
    "oasis-every-k": Claim("JMLR", PRECISION, "OASIS is best at every k"),
    "oasis-over-euclidean": Claim("JMLR", PRECISION, "OASIS is above the Euclidean distance"),
    "lego-over-euclidean": Claim("JMLR", PRECISION, "LEGO is above the Euclidean distance"),
    "oasis-over-mcml": Claim("JMLR", PRECISION, "OASIS is above MCML"),
    "oasis-over-lego": Claim("JMLR", PRECISION, "OASIS is above LEGO"),
    "mcml-over-lego": Claim("JMLR", PRECISION, "MCML is above LEGO"),
    "lego-over-lmnn": Claim("JMLR", PRECISION, "LEGO is above LMNN"),
    "lmnn-as-euclidean": Claim("JMLR", PRECISION, "LMNN is about as good as the Euclidean distance"),
    "oasis-saturates": Claim(
        "JMLR", "figure 5: mAP along the steps", "OASIS saturates early, then falls slowly", "35K", chosen=False
    ),
    "rankers": Claim("JMLR", "figure 7: averaged rankers", "Averaged rankers are above a single one", chosen=False),
    "symmetric-as-oasis": Claim("JMLR", SYMMETRIC, "Proj-OASIS is as precise as OASIS"),
    "symmetric-not-above": Claim("JMLR", SYMMETRIC, "Symmetric variants are slightly worse, or equal"),
    "online-near-oasis": Claim("JMLR", SYMMETRIC, "Online-Proj-OASIS comes near OASIS"),
    "rho": Claim(
        "NIPS", "section 4.3.1, figure 3 (a): symmetric variants", "W becomes almost symmetric", "0.94", chosen=False
    ),
    "lego-eta": Claim("JMLR", ETA, "LEGO varies less over eta than over the splits", chosen=False),
    "lmnn-overfits": Claim("JMLR", OVERFITS, "LMNN gains more on training images: it overfits", chosen=False),
    "dissim-time": Claim("JMLR", DISSIM, "OASIS is twice as fast as Dissim-OASIS", "2 times", chosen=False),
    "theorem-1": Claim("JMLR", THEOREM, "The mistakes of OASIS are bounded", chosen=False),
    "psd-after": Claim("JMLR", PSD, "Projecting after learning beats doing so meanwhile"),
    "psd-rarely": Claim("JMLR", PSD, "Projecting every 50,000 steps beats every 5,000"),
    "oasis-fastest": Claim("JMLR", TIMES, "OASIS trains fastest"),
    "mcml-time": Claim("JMLR", TIMES, "MCML takes two orders of magnitude longer", "100 times"),
    "lmnn-time": Claim("JMLR", TIMES, "LMNN takes an order of magnitude longer", "10 times"),
    "time-per-step": Claim(
        "JMLR",
        "figure 4: time against the number of images",
        "Time is linear in the images, at fixed steps per image",
        chosen=False,
    ),
    "time-linear": Claim(
        "JMLR", "figure 4: time against the number of images", "Time to early stopping is linear in the images"
    ),
    "aroma-lead": Claim("AROMA", LEFT, "AROMA leads all others at the head of the list", "0.33 : 0.22"),
    "aroma-over-euclidean": Claim("AROMA", LEFT, "AROMA is above the Euclidean distance"),
    "aroma-over-hier": Claim("AROMA", LEFT, "AROMA is above HIER at the head of the list"),
    "aroma-factored": Claim("AROMA", LEFT, "Factored AROMA is slightly above diagonal AROMA"),
    "aroma-converges": Claim(
        "AROMA", ALONG, "Diagonal is ahead first, factored converges faster", "200K-500K", chosen=False
    ),
    "aroma-any-r": Claim("AROMA", ALONG, "Precision hardly depends on r, over three decades", "< 5 %", chosen=False),
    "posts-over-oasis": Claim("AROMA", POSTS, "Posts: AROMA is far above OASIS", chosen=False),
    "posts-over-itml": Claim("AROMA", POSTS, "Posts: AROMA is far above ITML"),
    "posts-along": Claim("AROMA", POSTS, "Posts: AROMA is above OASIS for most of the steps", chosen=False),
    "posts-covariance": Claim("AROMA", POSTS, "Posts: the covariance is what helps", chosen=False),
    "posts-steps": Claim("AROMA", POSTS, "Posts: OASIS needs ten times the steps", "10 times", chosen=False),
    "posts-factored": Claim("AROMA", POSTS, "Posts: factored converges faster, diagonal catches up", chosen=False),
    "posts-any-r": Claim("AROMA", POSTS, "Posts: AROMA's gain holds for a large range of r", chosen=False),
    "posts-any-C": Claim("AROMA", POSTS, "Posts: OASIS is robust to the choice of C", chosen=False),
    "warp-as-owpc": Claim("WSABIE", LOSSES, "WARP's estimated rank does what OWPC's does", chosen=False),
    "warp-faster": Claim("WSABIE", OVER_TIME, "WARP learns faster than AUC"),
    "warp-over-auc": Claim("WSABIE", LOSSES, "WARP is above AUC", "4.03 : 1.65 %"),
    "owpc-slow": Claim("WSABIE", OVER_TIME, "OWPC has hardly got anywhere when WARP is trained"),
    "wsabie-over-tree": Claim("WSABIE", ALL_SYSTEMS, "WSABIE is above approximate k-NN", "4.03 : 1.55 %"),
    "wsabie-over-rest": Claim("WSABIE", ALL_SYSTEMS, "WSABIE is above one-vs-rest", "4.03 : 2.27 %"),
    "wsabie-over-pamir": Claim("WSABIE", ALL_SYSTEMS, "WSABIE is above PAMIR-IA", "4.03 : 3.14 %"),
    "knn-over-wsabie": Claim("WSABIE", ALL_SYSTEMS, "Exact k-NN is above WSABIE", "4.5 : 4.03 %"),
    "tree-loses": Claim("WSABIE", ALL_SYSTEMS, "Approximate k-NN loses most of exact k-NN", "1.55 : 4.5 %"),
    "wsabie-sibling": Claim(
        "WSABIE", "figure 1: precision and sibling precision at k", "WSABIE leads PAMIR-IA in sib@10", "5.18 : 4.39 %"
    ),
    "linear-warp": Claim("WSABIE", LOSSES, "Linear WARP is above WSABIE", "4.25 : 4.03 %"),
    "wsabie-memory": Claim(
        "WSABIE", "table 6: time and memory", "WSABIE needs a hundredth of the memory", "12 : 1,200 MB", chosen=False
    ),
    "wsabie-queries": Claim(
        "WSABIE", "table 6: time and memory", "WSABIE answers faster than one-vs-rest", chosen=False
    ),
    "wsabie-size": Claim(
        "WSABIE", "table 4: sizes of the space, up to 500", "The size of the space matters little", "3.48-4.03 %"
    ),
    "ensemble-sizes": Claim("WSABIE", ENSEMBLES, "Three sizes together are far above one", "6.14 : 4.03 %"),
    "ensemble-equal": Claim("WSABIE", ENSEMBLES, "Three models of equal size are above one"),
    "metrics-rise": Claim("MuSL", METRICS, "A metric per category is above one for all"),
    "metrics-few": Claim("MuSL", METRICS, "A few metrics come close to one per category"),
    "metrics-five": Claim("MuSL", METRICS, "K = 5 is above one metric", "10 points"),
    "joint-over-random": Claim("MuSL", METRICS, "Joint grouping is above random grouping", "5 points"),
    "joint-over-kmeans": Claim("MuSL", METRICS, "Joint grouping is above k-means grouping", "5 points"),
    "retraining": Claim("MuSL", METRICS, "Re-training raises accuracy", "2 points"),
    "caltech-metrics": Claim("MuSL", CALTECH, "Caltech-20: a metric per category is above one", "14 points"),
    "caltech-joint": Claim("MuSL", CALTECH, "Caltech-20: joint grouping tends to be best"),
    "groups-over-kmeans": Claim("MuSL", GROUPS, "K = 3 finds the sources, k-means does not"),
    "groups-are-sources": Claim("MuSL", GROUPS, "The groups of K = 3 are the sources"),
    "stable": Claim("MuSL", STABILITY, "Groupings are stable, those of k-means are not", "96 : 50 %"),
    "novel-metric": Claim("MuSL", NOVEL, "Novel categories get the metric of their source"),
    "novel-many": Claim("MuSL", NOVEL, "Too many metrics hurt novel categories"),
    "novel-over-one": Claim("MuSL", NOVEL, "Novel categories: K = 3 is above one metric", "25 points"),
    "novel-over-kmeans": Claim("MuSL", NOVEL, "Novel categories: joint is above k-means grouping"),
    "all-few": Claim("MuSL", NOVEL, "Known and novel: a few metrics are best"),
    "all-over-kmeans": Claim("MuSL", NOVEL, "Known and novel: joint is above k-means", "5 points"),
}
