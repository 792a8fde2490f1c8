"""Pages whose code is run: the README, the guide and the site.

    python -m tests.pages docs/start.md docs/tutorial/*.md

runs the Python blocks of a page of the site, one after the other as one program. What a block prints is written into
the text block behind it, and the pictures that it makes into docs/pictures/.
"""

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures"
# A block of code, and what it prints if the page says so.
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<said>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def blocks(text, language):
    """Code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def printed(code, name, namespace=None):
    """Run a block in the current folder.

    Returns
    -------
    str
        What it prints.
    """
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, name, "exec"), {"__name__": "__main__"} if namespace is None else namespace)
    return out.getvalue()


@contextlib.contextmanager
def workplace(folder):
    """Work in a folder in which the repository's meshes are."""
    before = Path.cwd()
    (Path(folder) / "meshes").symlink_to(ROOT / "meshes")
    os.chdir(folder)
    try:
        yield Path(folder)
    finally:
        os.chdir(before)


def same(says, does):
    """Whether two texts are the same, but for the last digits of their numbers and one step in counts up to 100.

    Returns
    -------
    bool
    """
    ours, theirs = (NUMBER.sub("#", " ".join(text.split())) for text in (says, does))
    pairs = zip(*(NUMBER.findall(text) for text in (says, does)))
    return ours == theirs and all(_near(*pair) for pair in pairs)


def _near(says, does):
    a, b = (float(text.replace(",", "")) for text in (says, does))
    if says == does or max(abs(a), abs(b)) < 1e-9:
        return True
    whole = re.fullmatch(r"[-+]?\d+", says) is not None
    return abs(a - b) <= (2 if whole and abs(a) <= 100 else 0.02 * abs(a) if "e" in says else 2e-3 * abs(a))


def rewrite(path):
    """Write into a page what its blocks print."""
    namespace = {"__name__": "__main__"}

    def answered(match):
        out = printed(match["code"], path.name, namespace)
        return f"```python\n{match['code']}```\n" + (f"\n```text\n{out.rstrip()}\n```\n" if out else "")

    page = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, workplace(folder):
        page = BLOCK.sub(answered, page)
        PICTURES.mkdir(exist_ok=True)
        for picture in Path(folder).glob("*.png"):
            shutil.copy(picture, PICTURES)
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(Path(name).resolve())
