"""Pages of plug-ins lie in their folders as README.md; the site has each as a page of its own."""

import re
from pathlib import Path

from mkdocs.structure.files import File

PLUGINS = Path(__file__).parents[1] / "plugins"


def on_files(files, config):
    """Add the pages plugins/NAME.md."""
    for page in sorted(PLUGINS.glob("*/README.md")):
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"\]\(\.\./(\w+)/README\.md", r"](\1.md", text.replace("](../../docs/", "](../"))
        files.append(File.generated(config, f"plugins/{page.parent.name}.md", content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Lead links to a plug-in's README.md, which code hosts follow, to its page."""
    return re.sub(r"\]\(((?:\.\./)*)\.\./plugins/(\w+)/README\.md", r"](\1plugins/\2.md", markdown)
