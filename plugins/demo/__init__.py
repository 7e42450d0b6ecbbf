"""The whole pipeline on bundled photos: ``visterm demo``."""
