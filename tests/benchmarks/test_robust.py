"""benchmarks/robust.py: that it runs, and what it counts."""

import json

import pytest

from benchmarks import robust


@pytest.mark.parametrize("tables", [["changes"], pytest.param([*robust.TABLES], marks=pytest.mark.long)], ids=len)
def test_small_tables(tables, tmp_path, capsys):
    path = tmp_path / "found.json"
    found = robust.main(["--small", "-o", str(path), *tables])
    printed = capsys.readouterr().out
    assert json.loads(path.read_text()) == json.loads(json.dumps(found)) and set(found["tables"]) == set(tables)
    for content in found["tables"].values():
        assert content["title"] in printed
        for record in content["cases"]:
            assert "failed" not in record and record["count"] <= 30, record
    assert robust.main(["--show", str(path)]) == json.loads(path.read_text())
    with pytest.raises(SystemExit):
        robust.main(["nonsense"])
