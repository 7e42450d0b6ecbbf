"""The subjects of the API: one file each with its routes, the functions that handle them, and their answers."""

from __future__ import annotations

# By name, imported when an application is made; a room above this one adds its own. The description of the API has
# their order.
SUBJECTS = [
    "visterm.service.subjects.images:ImageSubject",
    "visterm.service.subjects.browse:BrowseSubject",
    "visterm.service.subjects.map:MapSubject",
    "visterm.service.subjects.labels:LabelSubject",
    "visterm.service.subjects.training:TrainingSubject",
    "visterm.service.subjects.adding:AddingSubject",
    "visterm.service.subjects.run:RunSubject",
    "visterm.service.subjects.figures:FigureSubject",
    "visterm.service.subjects.marks:MarkSubject",
    "visterm.service.subjects.judge:JudgeSubject",
]
