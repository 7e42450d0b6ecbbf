"""Choose vectors, a learner and its settings, by measuring them on photos at hand."""
