"""Files, order and people: the stages, the collection on disk, the command line and the report."""
