"""Pages whose code is run: the README, the guide and the site.

    python -m tests.pages docs/start.md docs/tutorial/*.md
    python -m tests.pages --check docs/start.md docs/tutorial/*.md

runs the Python blocks of a page of the site, one after the other as one program. What a block prints is written into
the text block behind it, and the pictures that it makes into docs/pictures/. With --check nothing is written: the
program fails where a block prints something else than the page says. Commands of hpfem in an `sh` block are run if a
text block stands behind it.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

from PIL import Image

from hpfem.cli import main

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures"
# A block of code, and what it prints if the page says so.
BLOCK = re.compile(
    r"^```(?P<how>python|sh)\n(?P<code>(?:(?!```).*\n)*)```\n(?:\n```text\n(?P<said>(?:(?!```).*\n)*)```\n)?",
    re.MULTILINE,
)
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


def answer(match, name, namespace):
    """What a block prints; None for commands of which the page does not say that."""
    if match["how"] == "python":
        return printed(match["code"], name, namespace)
    if match["said"] is None:
        return None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for line in match["code"].splitlines():
            words = shlex.split(line, comments=True)
            assert words[0] == "hpfem" and main(words[1:]) == 0, line
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


@contextlib.contextmanager
def workplace(folder):
    """Work in a folder in which the repository's meshes are."""
    before = Path.cwd()
    (Path(folder) / "meshes").symlink_to(ROOT / "meshes")
    os.chdir(folder)
    sys.path.insert(0, str(ROOT / "examples"))  # programs that a page says to save beside one's own
    try:
        yield Path(folder)
    finally:
        sys.path.remove(str(ROOT / "examples"))
        os.chdir(before)


def same(says, does):
    """Whether two texts are the same, but for the last digits of their numbers, a few iterations, and seconds.

    Returns
    -------
    bool
    """
    words, found = ([re.sub(" +", " ", part) for part in NUMBER.split(" ".join(text.split()))] for text in (says, does))
    pairs = zip(NUMBER.findall(says), NUMBER.findall(does), words[1:])
    return words == found and all(_near(a, b, word) for a, b, word in pairs)


def _near(says, does, word):
    a, b = (float(text.replace(",", "")) for text in (says, does))
    if re.match(r" s\b", word):
        return True
    if word.startswith(" iterations"):
        return abs(a - b) <= max(2, a / 20)
    return abs(a - b) <= max((5e-2 if "e" in says else 2e-5) * abs(a), 1e-9)


def check(path, folder):
    """Run the blocks of a page in a folder and compare what they print with what the page says.

    Raises
    ------
    AssertionError
        Where that differs.
    """
    namespace = {"__name__": "__main__"}
    with workplace(folder):
        for number, match in enumerate(BLOCK.finditer(path.read_text(encoding="utf-8")), 1):
            does = answer(match, path.name, namespace)
            assert does is None or same(match["said"] or "", does), f"block {number} of {path.name} prints\n{does}"


def rewrite(path):
    """Write into a page what its blocks print."""
    namespace = {"__name__": "__main__"}

    def answered(match):
        out = answer(match, path.name, namespace)
        return f"```{match['how']}\n{match['code']}```\n" + (f"\n```text\n{out.rstrip()}\n```\n" if out else "")

    page = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, workplace(folder):
        page = BLOCK.sub(answered, page)
        PICTURES.mkdir(exist_ok=True)
        for picture in Path(folder).glob("*.png"):
            image = Image.open(picture).convert("RGB")
            image.thumbnail((800, 800))
            image.quantize(256).save(PICTURES / picture.name, optimize=True)
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if name == "--check":
            continue
        if "--check" not in sys.argv:
            rewrite(Path(name).resolve())
            continue
        with tempfile.TemporaryDirectory() as folder:
            check(Path(name).resolve(), folder)
        print(f"{name} prints what it says", flush=True)
