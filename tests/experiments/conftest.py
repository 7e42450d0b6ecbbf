"""Tests of the papers' experiments: whole trainings, nearly all of them."""

from importlib.util import find_spec

import pytest


def pytest_ignore_collect(config):
    """Skip the folder without --slow, as importing it takes seconds, and where the experiments are not installed."""
    return None if config.option.slow and find_spec("experiments") else True


def with_edges(result):
    """The result as it would be if every setting that was chosen lay at the edge of those tried."""
    if isinstance(result, list):
        return [with_edges(one) for one in result]
    if not isinstance(result, dict):
        return result
    return {key: ["n_steps"] if key == "edges" else with_edges(one) for key, one in result.items()}


@pytest.fixture
def unflagged():
    """Function (experiment, results): claims that are decided though every setting chosen lies at the edge."""
    from experiments.claims import CLAIMS
    from experiments.pages import render

    def run(experiment, results):
        findings = render(experiment, with_edges(results)).findings
        return {one.name for one in findings if one.name and CLAIMS[one.name].chosen and one.verdict != "open"}

    return run


@pytest.fixture
def not_holding():
    """Function (experiment, results): claims whose verdict over these results is not "holds"."""
    from experiments.pages import render

    def run(experiment, results):
        return {one.name: one.verdict for one in render(experiment, results).findings if one.verdict != "holds"}

    return run
