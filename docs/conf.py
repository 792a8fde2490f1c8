"""The site: `make docs` builds it into docs/build/html, without the network."""

import re
import sys
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import hpfem

project = "hpfem"
author = "The hpfem developers"
release = version = hpfem.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["build"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

html_theme = "pydata_sphinx_theme"
html_title = "hpfem"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_math_renderer = "mathml"
html_theme_options = {
    "logo": {"text": "hpfem"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
_PAGES = "index start apply compare plot gmsh formats limits speed cluster reproducing compared references changes"
html_sidebars = {name: [] for name in _PAGES.split()}
copyright = "The hpfem developers, MIT licence"

add_module_names = False
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autosummary_generate = True
autosummary_generate_overwrite = True
numpydoc_show_class_members = False
templates_path = ["templates"]


def inline(self, node):
    """A formula in a line, as MathML: browsers draw it themselves, so that no script is fetched."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def display(self, node):
    """A formula of its own."""
    self.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def link_keys(app, name, source):
    """Make links to the references of the keys of works, as [KS]."""
    target = "../" * name.count("/") + "references.md"
    source[0] = re.sub(r"(?<![\[\w])\[([A-Z]\w+)\](?![\[(])", rf"[[\1]]({target})", source[0])


def setup(app):
    """Register how formulas and keys of works are written."""
    app.connect("source-read", link_keys)
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
