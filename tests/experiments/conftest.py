"""Tests of the papers' experiments: whole trainings, nearly all of them."""


def pytest_ignore_collect(config):
    """Leave the folder out without --slow: importing it takes seconds."""
    return None if config.option.slow else True
