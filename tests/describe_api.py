"""Print the OpenAPI description of the service, of which `make check` makes types for the page's code."""

import json
from pathlib import Path
from unittest.mock import patch

from visterm.pipeline.store.run import Run
from visterm.service import app

with patch.object(app, "ServiceParts"):  # the description needs no run
    print(json.dumps(app.create_app(Run(Path("runs/none"))).openapi()))
