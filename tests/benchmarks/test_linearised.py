"""benchmarks/linearised.py and derivatives.py: that they run, and what they count."""

from benchmarks import derivatives
from benchmarks.linearised import main


def test_bytes_of_a_tangent(tmp_path, capsys):
    given = ["--small", "--points", "100", "--orders", "1", "--forms", "p-laplacian", "-o", str(tmp_path / "out.json")]
    found = main(given)["cases"]
    assert [record["shape"] for record in found] == ["hex", "tet"]
    assert all(record["kept"] == 6 and record["bytes"] < record["bytes of the residual"] for record in found)
    assert "at(u) / residual" in capsys.readouterr().out and main(["--show", str(tmp_path / "out.json")])


def test_refresh_of_multigrid(tmp_path, capsys):
    given = [
        "--multigrid",
        "--points",
        "300",
        "--orders",
        "2",
        "--forms",
        "neo-hooke",
        "-o",
        str(tmp_path / "out.json"),
    ]
    found = main(given)["cases"]
    assert all(0 < record["refresh"] < record["set-up"] and record["unknowns"] % 3 == 0 for record in found)
    assert "refresh / making" in capsys.readouterr().out


def test_errors_of_derivatives(tmp_path, capsys):
    given = ["--orders", "1", "--shapes", "tri", "-o", str(tmp_path / "out.json")]
    for own in derivatives.main(given)["cases"]:
        assert own["forward"] < 1e-9 and own["second"] < 1e-9 and own["adjoint"] < 1e-14 and own["numpy"] < 1e-12
    assert "| bratu | tri |" in capsys.readouterr().out and derivatives.main(["--show", str(tmp_path / "out.json")])
