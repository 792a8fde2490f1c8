"""What Python tells the kernels at compile time: declared once, with its meaning, and used."""

import re
from string import Template

import pytest

from hpfem.backends.cuda.codegen.prelude import HERE, fill, header

DECLARED = tuple(f"{name}/parameters.h" for name in ("codegen", "sumfac_top", "dense", "fused"))
CODE = "\n".join(path.read_text() for path in HERE.rglob("*.h") if path.name != "parameters.h")


FILLED = ("dense/lane_parameters.h", *(f"{name}/{name}.h" for name in ("sumfac", "stdmat", "kronecker")))


@pytest.mark.parametrize("name", [*DECLARED, *FILLED])
def test_a_constant_without_a_value_or_a_declaration_is_refused(name):
    values = dict.fromkeys(Template(header(name)).get_identifiers(), 1)
    assert "$" not in fill(name, values)
    first, *_ = values
    with pytest.raises(KeyError, match=first):
        fill(name, {key: value for key, value in values.items() if key != first})
    with pytest.raises(KeyError, match="UNHEARD_OF"):
        fill(name, values | {"UNHEARD_OF": 1})


@pytest.mark.parametrize("name", DECLARED)
def test_every_constant_is_used_and_says_what_it_is(name):
    lines = header(name).splitlines()
    for number, line in enumerate(lines):
        declaration = re.match(r"(?:constexpr \w+|HPFEM_TABLE short) (\w+)(?:\[\])? = {?\$(\w+)}?;(.*)", line)
        if declaration is None:
            continue
        constant, value, comment = declaration.groups()
        assert constant == value
        rest = "\n".join([CODE, *lines[:number], *lines[number + 1 :]])
        assert re.search(rf"\b{constant}\b", rest), f"nothing reads {constant}"
        above = lines[max(number - 4, 0) : number]
        assert "//" in comment or any("//" in other for other in above), f"{constant} is not explained"
