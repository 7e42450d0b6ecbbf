"""Puts the bundled scripts and styles of the pages into the wheel, where npm has installed esbuild; see bundle.js.

README without links to files of the repository, which lead nowhere on a package index, is the description. All else is
in pyproject.toml. A wheel that is built without esbuild carries the page's modules alone, and the service serves these.
"""

import re
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PACKAGE = Path("visterm/service")  # in the wheel
WEB = Path("service/web")


class BuildWithBundle(build_py):
    """The files of the packages, and the bundle."""

    def run(self) -> None:
        """Copy the files, then make the bundle beside them; a checkout (an editable installation) serves modules."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / PACKAGE / "bundle"
        shutil.rmtree(target, ignore_errors=True)  # of an earlier build
        node = shutil.which("node")
        if node is not None and Path("node_modules/esbuild").is_dir():
            subprocess.run([node, "bundle.js", str(WEB), str(target)], check=True)


def description() -> str:
    """README without pictures and relative links."""
    text = Path("README.md").read_text(encoding="utf-8")
    return re.sub(r"\[([^]]*)\]\((?!https?://)[^)]*\)", r"\1", re.sub(r"^!\[.*\n+", "", text, flags=re.MULTILINE))


setup(
    cmdclass={"build_py": BuildWithBundle},
    long_description=description(),
    long_description_content_type="text/markdown",
)
