"""Settings of a service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service, as the options of `visterm serve` set them."""

    upload_pixels: int = 25_000_000  # larger uploads are refused before they are decoded; 24 megapixels pass
    keep_metadata: bool = False  # serve original files as they are, not without metadata such as place and camera
    overview: bool = False  # draw the map in the background when images change, not on request only
    watch: bool = False  # add images that appear in the directory of images
    cors_origins: tuple[str, ...] = ()  # of other sites whose pages may use the API
    fetch: bool = False  # fetch images from addresses that requests name
