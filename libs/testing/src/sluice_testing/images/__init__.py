"""Container images in tests: built by buildah without a daemon, run by runc."""

from sluice_testing.images.builder import Builder, Image, can_build
from sluice_testing.images.container import Container

__all__ = ["Builder", "Container", "Image", "can_build"]
