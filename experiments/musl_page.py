"""MuSL: findings and tables of its page, around the drawings of musl_plots.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.musl_data import N_HELD_OUT, N_SHOWN, N_TEST, N_TRAIN
from benchmarks.statistics import clearly_above, difference, plus_minus

from .grids import open_text
from .musl_plots import Found, page_caltech, page_curves, page_evolution, page_groups, page_metrics, page_of_caltech
from .musl_trials import (
    FEW_TRIALS,
    GRID,
    GRID_TRIALS,
    N_TRIALS,
    NEIGHBORS,
    OTHERS,
    STARTS,
    SYSTEMS,
    TUNED,
    corrected_stability,
    jobs_beyond,
    jobs_chosen,
    match,
    stability,
)
from .pages import Finding, Page, Table


def page_found(results: list[dict[str, Any]], settings: dict[str, dict[str, Any]], voters: int) -> Found:
    """Results of the trials of each (system, K) with its settings, by key; accuracies with `voters` neighbours."""
    found: Found = {}
    for result in results:
        system, k = result["system"], result["n_metrics"]
        plain = not result.get("validate") and not result.get("part")
        if plain and result["settings"] == settings[system]:
            own = found.setdefault((system, k), {})
            for key in ("accuracy", "novel", "all", "own", "within"):
                own.setdefault(key, []).append(result[key][NEIGHBORS.index(voters)])
            for key in ("grouping", "sources", "astray"):
                own.setdefault(key, []).append(result[key])
            own.setdefault("accuracies", []).append(result["accuracy"])
            own.setdefault("sourced", []).append(match(result["grouping"], result["sources"]))
    return found


def page_pair(first: Sequence[float], second: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Two lists by trial, cut to the trials that both have."""
    n = min(len(first), len(second))
    return first[:n], second[:n]


def page_gain(first: Sequence[float], second: Sequence[float]) -> str:
    return f"{difference(*page_pair(first, second), 1)} points"


def page_mean(first: Sequence[float], second: Sequence[float]) -> float:
    return float(np.mean(np.subtract(*page_pair(first, second))))


def page_reaches(first: Sequence[float], second: Sequence[float], points: float) -> bool:
    """Whether the first is clearly above the second, and their mean difference reaches `points`."""
    pair = page_pair(first, second)
    mean = float(np.mean(np.subtract(*pair)))
    return page_clearly(*pair) and round(mean, 9) >= points  # accuracies are quarters of a point; their mean is rounded


def page_clearly(first: Sequence[float], second: Sequence[float]) -> bool:
    return clearly_above(first, second, N_TEST / N_TRAIN)


def page_edges(results: list[dict[str, Any]], chosen: dict[str, dict[str, Any]], voters: int) -> dict[str, str]:
    """Why a verdict over joint grouping and each of the systems is open; empty if it is not."""
    at: dict[str, list[str]] = {}
    for system in TUNED:
        at[system] = ["alpha"] * (jobs_beyond(results, system, chosen[system]) is not None)
        at[system] += ["number of voters"] * (voters == NEIGHBORS[-1])
    return {
        rival: open_text({system: [{"edges": at[system]}] for system in dict.fromkeys(("joint", rival))})
        for rival in TUNED
    }


def page(results: list[dict[str, Any]]) -> Page:
    chosen, voters = jobs_chosen(results)
    found = page_found(results, chosen, voters)
    same = page_found(results, dict.fromkeys(SYSTEMS, chosen["joint"]), voters)
    one, five, means, random = (found[place]["accuracy"] for place in TUNED.items())
    alike = same.get(("one metric", 1), {}).get("accuracy", one)
    edges = page_edges(results, chosen, voters)
    most = page_metrics(found, "joint")[-1]
    every = found["joint", most]["accuracy"]
    findings = [
        Finding(
            "Accuracy rises with the number of metrics K: one a category is better than one for all (figure 5 B).",
            f"K = {most}: {page_gain(every, one)} over one metric (yes: above 5).",
            page_mean(every, one) > 5,
            edges=edges["one metric"],
            must=True,
            kind="threshold",
        ),
        Finding(
            "A small number of metrics comes close to one a category.",
            f"K = 5: {page_gain(five, one)} over one metric; K = {most}: {page_gain(every, five)} over K = 5 (yes: "
            "less than that).",
            page_mean(every, five) < page_mean(five, one),
            edges=edges["one metric"],
            why=f"Accuracy of known categories still rises at K = {most}.",
            kind="threshold",
        ),
        Finding(
            "K = 5 is 10 points above one metric.",
            f"{page_gain(five, one)}{page_alike(same, 'one metric', 1)}. (It agrees if it is so with all settings "
            "named: those of one metric are worth points, and few draws choose them.)",
            page_reaches(five, one, 10) and page_reaches(five, alike, 10),
            edges=edges["one metric"],
        ),
        Finding(
            "Joint grouping is better than random grouping (K = 5).",
            f"{page_gain(five, random)}{page_alike(same, 'random', 5)} (yes: above 2).",
            page_mean(five, random) > 2,
            edges=edges["random"],
            must=True,
            kind="threshold",
        ),
        Finding(
            "Joint grouping is almost 5 points better than k-means grouping (K = 5).",
            f"{page_gain(five, means)}{page_alike(same, 'k-means', 5)}.",
            page_reaches(five, means, 5),
            edges=edges["k-means"],
            why=f"k-means grouping is {page_gain(means, random)} over random grouping here; in the paper joint "
            "grouping is almost 5 points above both.",
        ),
    ]
    if once := found.get(("joint, not re-trained", 5)):
        findings.append(
            Finding(
                "Re-training raises accuracy by a couple of points (K = 5).",
                f"{page_gain(five, once['accuracy'])}.",
                page_reaches(five, once["accuracy"], 2),
                edges=edges["joint"],
            )
        )
    others = page_others(results, voters)
    findings += page_caltech_findings(results, voters, edges["one metric"])
    findings += page_sources(found, others, edges)
    findings += page_novel(found, edges)
    return Page(
        title="MuSL: several metrics, and who shares them",
        source="Babenko, Branson, Belongie, *Similarity Metrics for Categorization: from Monolithic to Category "
        "Specific*, ICCV 2009, sections 3.2 to 3.4, figures 3 to 8.",
        protocol=f"`merged-20`: {most} categories of three sources (Caltech-101, Oxford flowers, and textures of DTD, "
        "which stand in for the paper's UIUC textures: photos of things, not of surfaces); `merged-novel`: 9 "
        f"more of the same sources (the paper: 10). {len(five)} trials (the paper: 20; more take longer, and "
        "test with the same photos again), fewer where a table says so, each with "
        f"{N_TRAIN} images a category to learn from and {N_TEST} to test, drawn for that trial. A forest of 2,000 "
        f"visterms is grown on the {N_TRAIN}; an image is the share of its blocks at each node. T = 32 stumps a "
        "metric, 1,000 negative pairs an image; best of 5 starts: 300, so that starts differ, and of them the "
        f"likeliest. Accuracy is the mean of the diagonal of the confusion matrix, {voters} nearest training images "
        "voting.\n\n"
        "`midpoint`, `alpha` and `balanced` were chosen for each of one metric, joint, k-means and random grouping by "
        f"itself, and the number of voters, {voters} of {', '.join(map(str, NEIGHBORS))}, for all, on images that no "
        f"trial tests with: {N_SHOWN + N_HELD_OUT} a category, {N_SHOWN} of them to learn from and to grow the forest, "
        f"{N_HELD_OUT} held out, drawn {GRID_TRIALS} times (last table). Trials draw their test images from the "
        "others, and share images: of flowers and textures few are left, so that tests over trials are still too "
        "sure.\n\n"
        "± is the standard error of the mean. Differences are taken trial by trial, of the trials that both have. One "
        "is above the other where a t test says so, and by so many points if the mean is. Other rules stand beside the "
        "figures.",
        findings=findings,
        parts=[
            page_curves(
                found,
                "musl-accuracy",
                "Accuracy against the number of metrics (the paper's figure 5 B)",
                {"accuracy": f"{most} categories"},
            ),
            *page_caltech(results, voters),
            *page_tables(found, voters),
            *page_evolution(results),
            *page_groups(results, chosen),
            *page_more_groups(results, chosen),
            *page_other_groups(others, found["joint", 3], chosen["joint"]),
            *page_same(same, chosen["joint"], voters),
            page_curves(
                found,
                "musl-novel",
                "Accuracy with categories that were never seen (the paper's figure 8)",
                {"novel": "9 novel categories", "all": f"{most} known and 9 novel"},
            ),
            *page_grid(results, chosen, voters),
        ],
    )


def page_caltech_findings(results: list[dict[str, Any]], voters: int, edges: str) -> list[Finding]:
    """Section 3.3; none of a quick run."""
    found = page_of_caltech(results, voters)
    if not found:
        return []
    one, every = found["one metric", 1], found["joint", 20]
    ks = [k for system, k in found if system == "random"]
    leads = {k: {s: (found["joint", k], found[s, k]) for s in ("random", "k-means")} for k in ks}

    def texts(system: str) -> str:
        return "; ".join(f"K = {k}: {page_gain(*pairs[system])}" for k, pairs in leads.items())

    return [
        Finding(
            "On Caltech-20 one metric a category is 14 points above one for all (figure 5 A).",
            f"{page_gain(every, one)}.",
            page_reaches(every, one, 14),
            edges=edges,
            why=f"The settings are those chosen on merged-20, and {FEW_TRIALS} trials are few for the test.",
        ),
        Finding(
            "On Caltech-20 joint grouping tends to be best (figure 5 A; here: in the mean at each K).",
            f"Above random grouping: {texts('random')}; above k-means grouping: {texts('k-means')}.",
            all(page_mean(*pair) > 0 for pairs in leads.values() for pair in pairs.values()),
            edges=edges,
            kind="threshold",
        ),
    ]


def page_more_groups(results: list[dict[str, Any]], settings: dict[str, dict[str, Any]]) -> list[Table]:
    """Figure 6 with more metrics, where trials have them: the categories of each group of the first trial."""
    rows = []
    for k in (5, 7):
        for result in results:
            if (
                "grouping" in result
                and (result["trial"], result["system"], result["n_metrics"]) == (0, "joint", k)
                and result["settings"] == settings["joint"]
            ):
                members: dict[int, list[str]] = {}
                for group, name in zip(result["grouping"], result["categories"], strict=True):
                    members.setdefault(group, []).append(name)
                rows += [[k, ", ".join(names)] for names in members.values()]
    return [Table("The groups of MuSL with K = 5 and 7 in that trial (figure 6)", ["K", "categories"], rows)]


def page_others(results: list[dict[str, Any]], voters: int) -> dict[str, dict[str, list[Any]]]:
    """Results of K = 3 with joint grouping and each of OTHERS, by name; none if they were not run."""
    found = {
        page_settings(settings): page_found(results, dict.fromkeys(SYSTEMS, settings), voters).get(("joint", 3))
        for settings in OTHERS
    }
    return {name: values for name, values in found.items() if values}


def page_close(values: dict[str, list[Any]]) -> str:
    """Trials in which all categories but at most two are with their source."""
    n = len(values["sources"][0])
    return f"{sum(agreed >= n - 2 for agreed in values['sourced'])} of {len(values['sourced'])}"


def page_other_groups(
    others: dict[str, dict[str, list[Any]]], chosen: dict[str, list[Any]], settings: dict[str, Any]
) -> list[Table]:
    if not others:
        return []
    rows = [
        [
            name,
            page_close(values),
            f"{np.mean(values['sourced']):.1f}",
            f"{stability(values['grouping']):.0f} %",
            plus_minus(values["astray"], 1),
            plus_minus(values["accuracy"], 1),
            plus_minus(values["novel"], 1),
        ]
        for name, values in {page_settings(settings): chosen, **others}.items()
    ]
    return [
        Table(
            "Joint grouping with K = 3 and other settings, the chosen ones first: trials in which all categories but "
            "at most two are with their source, the mean number of those that are, the share of categories on which "
            "the groupings of two trials agree, novel categories that are given another metric than their source's, "
            "and accuracy in %, of known and of novel categories",
            ["midpoint, alpha", "trials", "with their source", "groupings agree", "astray", "accuracy", "novel"],
            rows,
        )
    ]


def page_sources(found: Found, others: dict[str, dict[str, list[Any]]], edges: dict[str, str]) -> list[Finding]:
    """Does K = 3 find the three sources, and again in every trial?"""
    joint, means, starts = (found.get((system, 3)) for system in ("joint", "k-means", STARTS))
    n, n_trials = len(joint["sources"][0]), len(joint["sources"])
    close = sum(agreed >= n - 2 for agreed in joint["sourced"])
    chance = [page_chance(groups, sources) for groups, sources in zip(joint["grouping"], joint["sources"], strict=True)]
    best = f", {sum(agreed >= n - 2 for agreed in starts['sourced'])} with the best of 5 starts" if starts else ""
    ours, theirs = corrected_stability(joint["grouping"]), corrected_stability(means["grouping"])
    stable = f"; {corrected_stability(starts['grouping']):.0f} % with the best of 5 starts" if starts else ""
    why = elsewhere = ""
    if others:
        elsewhere = " A table below has what other settings find."
        name, nearest = max(others.items(), key=lambda other: np.mean(other[1]["sourced"]))
        why = (
            f"Other settings do not find them either: with {name}, the best of {len(others)}, it is so in "
            f"{page_close(nearest)} trials, at an accuracy of {plus_minus(nearest['accuracy'], 1)} % in place of "
            f"{plus_minus(joint['accuracy'], 1)} %."
        )
    return [
        Finding(
            "K = 3 finds the three sources, which k-means grouping does not.",
            f"Of {n} categories {np.mean(joint['sourced']):.1f} are with their source, by k-means "
            f"{np.mean(means['sourced']):.1f} (yes: 2 more).",
            page_mean(joint["sourced"], means["sourced"]) > 2,
            edges=edges["k-means"],
            must=n_trials >= N_TRIALS,  # trials differ by as much: a few cannot decide it
            kind="threshold",
        ),
        Finding(
            "Groups by MuSL are nearer to the sources than groups of the same sizes at random (K = 3).",
            f"{np.mean(joint['sourced']):.1f} of {n} categories are with their source, at random "
            f"{np.mean(chance):.1f} (yes: 2 more).",
            page_mean(joint["sourced"], chance) > 2,
            must=True,
            of_paper=False,
        ),
        Finding(
            "The groups of K = 3 are the sources.",
            f"All but at most two categories are with their source in {close} of {n_trials} trials{best} (yes: in 80 % "
            "of the trials with one start, as the paper has).",
            close >= 0.8 * n_trials,
            edges=edges["joint"],
            why=why,
            kind="threshold",
        ),
        Finding(
            "Groupings by MuSL are stable from trial to trial, 96 %, those by k-means are not, 50 % (K = 3).",
            f"{ours:.0f} %, k-means: {theirs:.0f} %{stable}, corrected for chance as by Lange et al., the paper's "
            f"measure; shares of categories on which two trials agree: {stability(joint['grouping']):.0f} and "
            f"{stability(means['grouping']):.0f} % (yes: with one start at least 90 %, and 20 more than k-means).",
            ours >= 90 and ours > theirs + 20,
            edges=edges["k-means"],
            why=elsewhere.strip(),
            kind="threshold",
        ),
        Finding(
            "Novel categories are given the metric of their source (K = 3).",
            f"But for {plus_minus(joint['astray'], 1)} of 9, the metric of a source being that of most of its known "
            "categories (yes: fewer than one).",
            np.mean(joint["astray"]) < 1,
            edges=edges["joint"],
            why=elsewhere.strip(),
            kind="threshold",
        ),
    ]


def page_chance(grouping: Sequence[int], sources: Sequence[int]) -> float:
    """Mean number of categories that random groupings of the same sizes have with their source."""
    rng = np.random.default_rng(0)
    return float(np.mean([match(rng.permutation(grouping), sources) for _ in range(20)]))


def page_novel(found: Found, edges: dict[str, str]) -> list[Finding]:
    def of(system: str, k: int, key: str) -> list[float]:
        return found[system, k][key]

    most = page_metrics(found, "joint")[-1]
    one, few, many = (of(system, k, "novel") for system, k in (("one metric", 1), ("joint", 3), ("joint", most)))
    one_all, few_all, many_all = (
        of(system, k, "all") for system, k in (("one metric", 1), ("joint", 5), ("joint", most))
    )
    shared = [k for k in page_metrics(found, "k-means") if k in page_metrics(found, "joint")]
    rivals = {k: [of(system, k, "novel") for system in ("joint", "k-means")] for k in shared}
    means_all = of("k-means", 5, "all")
    return [
        Finding(
            "Too many metrics hurt categories that were never seen.",
            f"K = {most}: {page_gain(many, few)} over K = 3.",
            page_clearly(*page_pair(few, many)),
            edges=edges["joint"],
        ),
        Finding(
            "On novel categories K = 3 is almost 25 points above one metric.",
            f"{page_gain(few, one)}.",
            page_reaches(few, one, 25),
            edges=edges["one metric"],
            why="Tried as reasons, K = 3 over one metric: test images asked only about the novel categories of their "
            f"own source, {page_gain(of('joint', 3, 'within'), of('one metric', 1, 'within'))}; each novel category "
            "given the metric that most known ones of its source have, "
            f"{page_gain(of('joint', 3, 'own'), one)}.",
        ),
        Finding(
            "On novel categories joint grouping is better than k-means grouping.",
            "; ".join(f"K = {k}: {page_gain(*pair)}" for k, pair in rivals.items())
            + " (yes: at each K, clearly at 5).",
            all(page_mean(*pair) > 0 for pair in rivals.values()) and page_clearly(*rivals[5]),
            edges=edges["k-means"],
        ),
        Finding(
            "With known and novel categories together a few metrics are better than one, and than too many.",
            f"K = 5: {page_gain(few_all, one_all)} over one metric, {page_gain(few_all, many_all)} over K = {most}.",
            page_clearly(*page_pair(few_all, one_all)) and page_clearly(*page_pair(few_all, many_all)),
            edges=edges["one metric"],
            why=f"What many metrics gain on the known categories is more than what they lose on the 9 novel ones, "
            f"{page_gain(many, few)} for K = {most} over K = 3 among these alone.",
        ),
        Finding(
            "With known and novel categories together joint grouping is about 5 points above k-means grouping.",
            f"K = 5: {page_gain(few_all, means_all)}.",
            page_reaches(few_all, means_all, 5),
            edges=edges["k-means"],
        ),
    ]


def page_tables(found: Found, voters: int) -> list[Table]:
    rows, agreed = [], []
    for system in SYSTEMS:
        for k in page_metrics(found, system):
            values = found[system, k]
            groupings = values["grouping"]
            some = 1 < k < len(groupings[0]) and len(groupings) > 1
            stable = f"{stability(groupings):.0f} % ({corrected_stability(groupings):.0f} %)" if some else ""
            columns = [*np.transpose(values["accuracies"]), values["novel"], values["all"]]
            rows.append([system, k, *(plus_minus(column, 1) for column in columns), stable, len(groupings)])
            if k == 3:
                agreed.append([system, ", ".join(map(str, values["sourced"]))])
    neighbours = [f"{k} neighbour{'s' if k > 1 else ''}" for k in NEIGHBORS]
    return [
        Table(
            f"Accuracy in %; novel, and known with novel, with {voters} neighbours; the mean share of categories on "
            "which the groupings of two trials agree, and in brackets how far above chance, as of Lange et al. 2004",
            ["grouping", "K", *neighbours, "novel", "known and novel", "groupings agree", "trials"],
            rows,
        ),
        Table(
            "Of 20 categories, grouped with their source by K = 3, trial by trial", ["grouping", "categories"], agreed
        ),
    ]


def page_alike(same: Found, system: str, k: int) -> str:
    """Lead of joint grouping over a system with the same settings, as text; empty if that was not run."""
    if (system, k) not in same:
        return ""
    gain = page_gain(same["joint", 5]["accuracy"], same[system, k]["accuracy"])
    return f" ({gain} where all have the settings of joint grouping)"


def page_same(found: Found, settings: dict[str, Any], voters: int) -> list[Table]:
    """Results of the systems with the settings of joint grouping; none unless all were run with them."""
    if not all(place in found for place in TUNED.items()):
        return []
    joint = found["joint", 5]["accuracy"]
    rows = []
    for place in TUNED.items():
        accuracy = found[place]["accuracy"]
        rows.append(
            [*place, plus_minus(accuracy, 1), difference(*page_pair(joint, accuracy), 1) if place[0] != "joint" else ""]
        )
    return [
        Table(
            f"All with the settings chosen for joint grouping, {page_settings(settings)}: accuracy in %, "
            f"{voters} neighbours, and by how much joint grouping is above",
            ["grouping", "K", "accuracy", "joint above"],
            rows,
        )
    ]


def page_settings(settings: dict[str, Any]) -> str:
    return f"{settings['midpoint']}, {settings['alpha']}{', balanced' if settings['balanced'] else ''}"


def page_grid(results: list[dict[str, Any]], chosen: dict[str, dict[str, Any]], voters: int) -> list[str | Table]:
    held_out: dict[tuple[str, str], list[float]] = {}
    tried: dict[str, dict[str, Any]] = {}
    for result in results:
        if result.get("validate"):
            name = page_settings(result["settings"])
            tried[name] = result["settings"]
            held_out.setdefault((name, result["system"]), []).append(result["accuracy"][NEIGHBORS.index(voters)])
    rows = []
    for name, settings in sorted(tried.items(), key=lambda item: [str(v) for v in item[1].values()]):
        cells = []
        for system in TUNED:
            cell = plus_minus(held_out[name, system], 1) if (name, system) in held_out else ""
            if chosen[system] == settings:
                edge = jobs_beyond(results, system, settings) is not None
                cell = f"**{cell}**{' (edge)' * edge}"
            cells.append(cell)
        rows.append([name, *cells])
    n_trials = max(map(len, held_out.values()))
    paper = page_settings(GRID[0])
    parts: list[str | Table] = []
    if paper in tried:  # not in a quick run
        one, five = (np.mean(held_out[paper, system]) for system in ("one metric", "joint"))
        parts.append(
            f"With what the paper says, T / 2 and alpha = 0.1, one metric has {one:.1f} % in the next table and five "
            f"metrics {five:.1f} %; docs/learners.md tells why."
        )
    return [
        *parts,
        Table(
            f"Settings: accuracy in % on {N_HELD_OUT} images a category that no trial tests with, learned from "
            f"{N_SHOWN} others of these, which grow the forest too; {n_trials} draw{'s' if n_trials > 1 else ''}; "
            "K = 5 but for one metric. Bold: chosen; edge: no smaller or no larger alpha was tried beside it",
            ["midpoint, alpha", *TUNED],
            rows,
        ),
    ]
