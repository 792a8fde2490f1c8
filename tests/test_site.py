"""The site is true: its code prints what the pages say, it builds without a warning, and its links lead somewhere."""

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import hpfem as hp
from hpfem.view.solid import missing_opengl
from meshes.generate import import_gmsh
from tests.pages import DOCS, PICTURES, ROOT, blocks, check, same

PAGES = {str(path.relative_to(DOCS)): path for path in sorted(DOCS.rglob("*.md"))}
WITH_CODE = [name for name, path in PAGES.items() if blocks(path.read_text(encoding="utf-8"), "python")]


@pytest.mark.parametrize("name", WITH_CODE)
def test_pages_print_what_they_say(name, tmp_path):
    page = PAGES[name].read_text(encoding="utf-8")
    if ".to_pyvista(" in page or "# in 3-D" in page:
        pytest.importorskip("pyvista", reason="pyvista is absent")
        if missing_opengl():
            pytest.skip("OpenGL is absent")
    if "import gmsh" in page and import_gmsh() is None:
        pytest.skip("gmsh is absent")
    check(PAGES[name], tmp_path)
    shown = set(re.findall(r"pictures/([\w.]+)\)", page))
    assert {path.name for path in tmp_path.glob("*.png")} <= shown and all((PICTURES / file).exists() for file in shown)


def test_numbers_are_compared_to_the_digits_that_matter():
    assert same("error 1.23e-07 after 12  iterations", "error 1.24e-07 after 13 iterations")
    assert same("1,000 cells, 0.0", "1,000 cells, 1e-17")
    assert not same("error 1.23e-07", "error 2.23e-07")
    assert not same("12 iterations", "15 iterations") and not same("1,000 cells", "1,010 cells")
    assert not same("volume 0.5", "area 0.5")


def test_every_public_name_is_documented():
    listed = re.findall(r"^   (\w+)$", PAGES["api.md"].read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted([*listed, "ALONE", "BACKENDS"]) == sorted(hp.__all__)


def test_references_exist():
    known = set(
        re.findall(r"^\| (\[\w+\]) \|", (ROOT / "REFERENCES.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    for name, path in PAGES.items():
        cited = set(
            re.findall(r"(?<!\[)\[[A-Z]\w+\](?![\w(])", re.sub(r"```.*?```|`.*?`", "", path.read_text(), flags=re.S))
        )
        assert cited <= known, name


def test_snippets_stand_alone():
    """A reader who has installed hpfem has no folder examples/."""
    for name, path in PAGES.items():
        for code in blocks(path.read_text(encoding="utf-8"), "python"):
            assert "examples" not in code, name


def test_the_header_is_one_line_in_a_window_of_1000_pixels():
    """It has the first titles of the table of contents; 8 pixels a letter, 16 between titles, 400 for the rest."""
    contents = PAGES["index.md"].read_text(encoding="utf-8")
    listed = re.search(r":hidden:\n\n(.*?)```", contents, flags=re.DOTALL)[1].split("\n")
    count = int(re.search(r'header_links_before_dropdown": (\d+)', (DOCS / "conf.py").read_text(encoding="utf-8"))[1])
    widths = []
    for line in listed[:count]:
        given = re.fullmatch(r"(.*) <.*>", line)
        title = given[1] if given else re.search(r"^# (.*)", PAGES[f"{line}.md"].read_text(encoding="utf-8"))[1]
        widths.append(8 * len(title) + 16)
    assert sum(widths) <= 600 and len(listed) > count


def test_drawings_are_made(tmp_path):
    spec = importlib.util.spec_from_file_location("drawings", DOCS / "theory" / "drawings.py")
    drawings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawings)
    drawings.main(tmp_path)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {path.name for path in PICTURES.glob("theory_*")}
    assert made <= {Path(name).name for page in PAGES.values() for name in re.findall(r"\]\((.*?)\)", page.read_text())}


class Links(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, page):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.links += [value for key, value in attrs if key in ("href", "src") and value]
        self.anchors |= {value for key, value in attrs if key in ("id", "name")}


@pytest.mark.skipif(importlib.util.find_spec("pydata_sphinx_theme") is None, reason="extra docs is absent")
def test_the_site_builds_and_its_links_lead_somewhere(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", str(tmp_path / "trees")]
    done = subprocess.run([*command, str(DOCS), str(tmp_path / "html")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    found = [path for path in (tmp_path / "html").rglob("*.html") if "_static" not in path.parts]
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in found}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme in ("http", "https", "data", "mailto"), (path.name, link)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), (path.name, link)
            assert target not in pages or unquote(parts.fragment) in pages[target].anchors, (path.name, link)
