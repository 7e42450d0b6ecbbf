from visterm.pipeline import *  # noqa: F403 - all of its names

__version__: str
