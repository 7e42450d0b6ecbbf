"""The subjects of the API: one file each with its routes, the functions that handle them, and their answers."""

from __future__ import annotations

# Imported when an application is made; the description of the API has their order. Rooms above this one add theirs to
# `pipeline.plugins.SUBJECTS`.
SUBJECTS = (
    "service.subjects.search:SearchSubject",
    "service.subjects.images:ImageSubject",
    "service.subjects.browse:BrowseSubject",
    "service.subjects.map:MapSubject",
    "service.subjects.labels:LabelSubject",
    "service.subjects.training:TrainingSubject",
    "service.subjects.adding:AddingSubject",
    "service.subjects.run:RunSubject",
    "service.subjects.figures:FigureSubject",
    "service.subjects.marks:MarkSubject",
)
