"""Routes: learning again from changed labels."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import Response

from . import schemas
from .handlers import RequestHandlers
from .responses import JsonResponse


def add_train_routes(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the routes of trainings in the background."""
    general, updates = handlers.general_pool, handlers.update_pool
    retraining = handlers.retraining

    def changed(work: str) -> dict:
        handlers.run_folder.check()
        getattr(retraining, work)()
        return retraining.state()

    @app.get("/api/train", response_model=schemas.TrainState, tags=["labels"])
    async def train_state() -> Response:
        """Say whether labels have changed since the learners were trained, and how far a training is."""
        return JsonResponse(await general.run(retraining.state))

    @app.post("/api/train", response_model=schemas.TrainState, tags=["labels"])
    async def train() -> Response:
        """Start to train the learners that have not learned the labels of now, in the background.

        A new model is used unless held-out images are ranked worse by it.
        """
        return JsonResponse(await general.run(changed, "start"))

    @app.delete("/api/train", response_model=schemas.TrainState, tags=["labels"])
    async def cancel() -> Response:
        """Cancel the training; all models stay as they are."""
        return JsonResponse(await general.run(changed, "cancel"))

    @app.post("/api/train/undo", response_model=schemas.TrainState, tags=["labels"])
    async def undo() -> Response:
        """Bring back the models that the last training replaced; searches use them when the response is sent."""
        return JsonResponse(await updates.run(changed, "undo"))
