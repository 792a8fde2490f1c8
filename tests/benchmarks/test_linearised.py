"""benchmarks/linearised.py: that it runs, and what it counts."""

from benchmarks.linearised import main


def test_bytes_of_a_tangent(tmp_path, capsys):
    given = ["--small", "--points", "100", "--orders", "1", "--forms", "p-laplacian", "-o", str(tmp_path / "out.json")]
    found = main(given)["cases"]
    assert [record["shape"] for record in found] == ["hex", "tet"]
    assert all(record["kept"] == 6 and record["bytes"] < record["bytes of the residual"] for record in found)
    assert "at(u) / residual" in capsys.readouterr().out and main(["--show", str(tmp_path / "out.json")])
