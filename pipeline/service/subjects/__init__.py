"""The subjects of the API: one file each with its routes, the functions that handle them, and their answers."""

from __future__ import annotations

# By name, imported when an application is made; a room above this one adds its own. The description of the API has
# their order.
SUBJECTS = [
    "visterm.pipeline.service.subjects.images:ImageSubject",
    "visterm.pipeline.service.subjects.browse:BrowseSubject",
    "visterm.pipeline.service.subjects.map:MapSubject",
    "visterm.pipeline.service.subjects.labels:LabelSubject",
    "visterm.pipeline.service.subjects.training:TrainingSubject",
    "visterm.pipeline.service.subjects.adding:AddingSubject",
    "visterm.pipeline.service.subjects.run:RunSubject",
    "visterm.pipeline.service.subjects.figures:FigureSubject",
    "visterm.pipeline.service.subjects.marks:MarkSubject",
    "visterm.pipeline.service.subjects.judge:JudgeSubject",
]
