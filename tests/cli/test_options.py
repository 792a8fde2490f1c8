"""Orders, sizes, names and output files as they are typed."""

import contextlib

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hpfem.cli.options import (
    MAX_ORDER,
    output_file,
    output_folder,
    parse_dofs,
    parse_names,
    parse_order,
    parse_orders,
    parse_positive,
    parse_quadrature,
)
from hpfem.errors import ArgumentError


@pytest.mark.parametrize(
    ("text", "orders"),
    [("4", (4,)), ("2:8", (2, 3, 4, 5, 6, 7, 8)), ("1,3,5", (1, 3, 5)), ("1:3, 6", (1, 2, 3, 6)), ("2,2", (2,))],
)
def test_orders(text, orders):
    assert parse_orders(text) == orders


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "a", "2:", ":2", "3:2", "1:2:3", "1.5", "1,,2", "٣", f"{MAX_ORDER + 1}", "1" * 50]
)
def test_bad_orders(text):
    with pytest.raises(ArgumentError, match="orders"):
        parse_orders(text)


def test_orders_of_shapes():
    assert parse_order("4") == 4
    assert parse_order("hex=3, tet=4") == {"hex": 3, "tet": 4}
    for text in ("2:3", "hex=3,hex=4", "hex=", "=3", "hex=1:2", "hex=3,4"):
        with pytest.raises(ArgumentError):
            parse_order(text)


def test_sizes():
    assert parse_dofs("1e5") == (1e5,)
    assert parse_dofs("1e6,1e4") == (1e4, 1e6)
    assert parse_dofs("1e3:1e5") == (1e3, 3e3, 1e4, 3e4, 1e5)
    assert parse_dofs("2000:4000") == (2000.0, 3e3, 4000.0)
    for text in ("", "0", "nan", "inf", "1e12", "1e5:1e4", "a", "1:2:3"):
        with pytest.raises(ArgumentError, match="sizes"):
            parse_dofs(text)


def test_quadrature():
    assert [parse_quadrature(t) for t in ("default", "gauss", "collocated", "2", "-1")] == [
        None,
        "gauss",
        "collocated",
        2,
        -1,
    ]
    for text in ("", "best", "1.5", "99", "--1", "-"):
        with pytest.raises(ArgumentError, match="valid: default, collapsed, simplex, gauss, collocated"):
            parse_quadrature(text)


def test_names_and_counts():
    assert parse_names("hex, tet,hex") == ("hex", "tet")
    with pytest.raises(ArgumentError):
        parse_names(" , ")
    assert parse_positive("12") == 12
    for text in ("0", "-3", "x", "1e9", "99999999999"):
        with pytest.raises(ArgumentError):
            parse_positive(text)


@given(st.text(max_size=20))
def test_anything_is_read_or_refused(text):
    for parse in (parse_orders, parse_order, parse_dofs, parse_quadrature, parse_names, parse_positive):
        with contextlib.suppress(ArgumentError):
            assert parse(text) != ()


def test_output_is_checked_before_work(tmp_path):
    assert output_file(str(tmp_path / "a.json"), ".json") == tmp_path / "a.json"
    assert output_folder(str(tmp_path / "new" / "er")).is_dir()
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.json").mkdir()
    for path in ("a.txt", "absent/a.json", "file/a.json", "folder.json"):
        with pytest.raises(ArgumentError):
            output_file(str(tmp_path / path), ".json")
    with pytest.raises(ArgumentError, match="cannot make the folder"):
        output_folder(str(tmp_path / "file" / "folder"))


def test_an_empty_name_is_not_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match="the name of the folder is empty"):
        output_folder("")
    assert output_folder(".").samefile(tmp_path)
