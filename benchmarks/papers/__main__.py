"""`python benchmarks/papers ID... | list | all`: what `hpfem reproduce` does, with the hpfem of this checkout."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from hpfem.cli import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))
