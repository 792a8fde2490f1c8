"""Run mypy on the packages laid out as they are installed: shapes/ inside hpfem/, so that its uses are checked.

An editable install cannot show a type checker that hpfem.shapes is the folder shapes/; a folder of links can.
"""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import hpfem
from hpfem import shapes

ROOT = Path(__file__).resolve().parent.parent


def lay_out(folder: Path) -> None:
    """Make `folder`/hpfem, links to everything in hpfem/ and to shapes/, and links to meshes/ and benchmarks/."""
    package = folder / "hpfem"
    package.mkdir(parents=True, exist_ok=True)
    sources, folder_of_shapes = (Path(found.__file__).resolve().parent for found in (hpfem, shapes))
    wanted = {path.name: path for path in sources.iterdir()} | {"shapes": folder_of_shapes}
    for link in package.iterdir():
        if link.name not in wanted or not link.exists():
            link.unlink(missing_ok=True)
    links = {package / name: target for name, target in wanted.items()} | {
        folder / name: ROOT / name for name in ("meshes", "benchmarks")
    }
    for link, target in links.items():
        with suppress(FileExistsError):  # of an earlier run, or another process
            link.symlink_to(target)


def mypy(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mypy in `folder`, made by `lay_out`, with the project's configuration."""
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", *options, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    folder = ROOT / "build" / "type_check"
    lay_out(folder)
    result = mypy(folder, "-p", "hpfem", "-p", "meshes", "-p", "benchmarks")
    print(result.stdout + result.stderr, end="")
    sys.exit(result.returncode)
