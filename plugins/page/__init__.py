"""The answers to a search as one HTML page: ``visterm search --page``."""
