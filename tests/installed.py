"""The wheel, built, installed into a fresh environment and tried outside the checkout.

    python tests/installed.py tests [PYTEST ARGUMENTS]
    python tests/installed.py tutorial

The first runs the tests, the second the pages of the site that newcomers follow, with the extras that they name.
"""

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("docs/start.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "tutorial").glob("*.md")))
# Extras to install, and what is run.
WAYS = {
    # What test_package.py tries is the checkout, and how wheels are made of it.
    "tests": ("test,docs", ("-m", "pytest", "-n", "2", "--ignore=tests/test_package.py")),
    "tutorial": ("view,checkpoint", ("-m", "tests.pages", "--check", *PAGES)),
}


def lay_out(folder: Path) -> None:
    """Copy what belongs to the repository into `folder`, but for the packages themselves."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().rstrip("\0").split("\0"):
        if not name.startswith(("hpfem/", "shapes/")) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def main(way: str, *arguments: str) -> int:
    """Build, install and run.

    Returns
    -------
    int
        The exit code.
    """
    extras, command = WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder) / "work")
        venv.create(Path(folder) / "venv", with_pip=True)
        python = Path(folder) / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, "install", "build"], check=True)
        # The wheel is made of the source distribution, so that both are tried.
        subprocess.run([python, "-m", "build", "--outdir", f"{folder}/dist", ROOT], check=True, capture_output=True)
        [wheel] = Path(folder, "dist").glob("*.whl")
        subprocess.run([*pip, "install", f"{wheel}[{extras}]"], check=True)
        return subprocess.run([python, *command, *arguments], cwd=f"{folder}/work", check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
