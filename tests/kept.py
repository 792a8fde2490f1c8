"""What compilers make for the tests: kept in the checkout, for all processes of the tests and for their next run."""

import hashlib
from pathlib import Path

from hpfem.support.cache import Cache, whole_elf

CODE = Cache(Path(__file__).resolve().parent.parent / "build" / "tests", ".code", code=True, limit=1 << 30)


def kept(parts, make):
    """Object code of parts, texts that say all that it depends on: from the folder, or made now by one process.

    Parameters
    ----------
    parts : list of str
    make : callable
        Makes the code, without arguments.

    Returns
    -------
    bytes
    """
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    with CODE.alone(name):
        code = CODE.read(name)
        if code is None or not whole_elf(code):
            code = make()
            CODE.keep(name, code)
            CODE.grown()
        return code
