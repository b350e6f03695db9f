"""Large files of a run, which the engine copies out of its containers."""

from __future__ import annotations

from pathlib import Path

from lab.errors import ClusterError
from lab.features.copy.archive import pack_tar
from lab.node.messages.agent import Made
from lab.run import ship
from lab.run.ship import Outputs
from tests.run.test_outputs import file, files


def test_what_an_engine_copies_has_to_be_the_file_that_the_node_reported(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(ship, "_DIRECT_BYTES", 1)
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "there").mkdir()
    asked = []

    def read(node: str, path: str):
        asked.append((node, path))
        if path.endswith("gone"):
            raise ClusterError("it is gone")
        return pack_tar(tmp_path / ("there" if path.endswith("folder") else "a"), "x")

    outputs = Outputs(tmp_path / "files")
    made = (file("a"), file("folder"), file("gone"), file("longer", size=4), file("shorter", size=2))
    outputs.handle_message("node0", Made("r", made, folder="/work"))
    assert outputs.choose() == {"node0": []}
    outputs.copy(read, lambda: None)
    outputs.close()
    assert sorted(asked) == [("node0", f"/work/{one.path}") for one in made]
    assert files(tmp_path / "files") == {"rank0/a": b"abc"}
    assert {one.partition(":")[0] for one in outputs.left_out} == {f"rank0/{one.path}" for one in made[1:]}
