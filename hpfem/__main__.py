"""`python -m hpfem` is the command `hpfem`."""

from hpfem.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
