"""The HTTP service and its page over one run."""
