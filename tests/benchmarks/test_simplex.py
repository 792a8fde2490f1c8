"""benchmarks/simplex.py: small problems by both rules."""

from benchmarks.simplex import RULES, main


def test_small_problems(tmp_path, capsys):
    content = main(["rates", "errors", "--small", "--orders", "2", "-o", str(tmp_path / "found.json")])
    rates, errors = (content["tables"][name]["cases"] for name in ("rates", "errors"))
    assert {(one["row"], one["column"]) for one in rates} == {
        (f"{shape}, P=2", column) for shape in ("tri", "tet") for column in ("affine", "curved")
    }
    assert all(min(one["rate"].values()) > 0 and one["gain"] > 0 for one in rates)
    assert all(abs(one["error"][RULES[1]] / one["error"][RULES[0]] - 1) < 1e-3 for one in errors)
    said = capsys.readouterr().out
    main(["--show", str(tmp_path / "found.json")])
    assert capsys.readouterr().out == said
