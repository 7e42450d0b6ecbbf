"""The command ``visterm``, as ``python -m visterm``."""

from visterm.pipeline.cli.start import main

main()
