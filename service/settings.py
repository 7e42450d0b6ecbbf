"""What a service may do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service, as the options of `visterm serve` set them.

    Attributes
    ----------
    upload_pixels : int
        Refuse larger uploads, before they are decoded. By default a photo of 24 megapixels passes.
    keep_metadata : bool
        Serve original files as they are; by default without metadata such as place and camera.
    overview : bool
        Draw the map of the collection in the background when images change; without, on request only.
    fetch : bool
        Fetch images from addresses that requests name.
    """

    upload_pixels: int = 25_000_000
    keep_metadata: bool = False
    overview: bool = False
    fetch: bool = False
