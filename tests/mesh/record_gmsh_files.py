"""Write small files with gmsh itself into data/ beside this file, one for each thing its formats can say.

The model: a unit cube extruded from a square whose left half is quads and whose right half is triangles, so hexes and
prisms; a cube of one pyramid on each side; all straight. Boxes of cells of all shapes, which gmsh cuts into partitions.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import gmsh

from hpfem.mesh import from_gmsh
from tests.mesh.examples import PARTITIONED, partitioned
from tests.mesh.recorded_model import RecordedModel

FOLDER = Path(__file__).with_name("data")


def cube(order: int) -> None:
    """Hexes (region "left") and prisms ("right"), both in "all"; boundaries "bottom", "top"; top and bottom paired."""
    gmsh.clear()
    gmsh.model.add("cube")
    geo = gmsh.model.geo
    p = [geo.addPoint(x, y, 0) for x in (0, 0.5, 1) for y in (0, 1)]
    across = [geo.addLine(p[2 * i], p[2 * i + 1]) for i in range(3)]
    along = [geo.addLine(p[i], p[i + 2]) for i in range(4)]
    halves = []
    for i in (0, 1):
        loop = geo.addCurveLoop([along[2 * i], across[i + 1], -along[2 * i + 1], -across[i]])
        halves.append(geo.addPlaneSurface([loop]))
    for curve in across + along:
        geo.mesh.setTransfiniteCurve(curve, 2)
    for surface in halves:
        geo.mesh.setTransfiniteSurface(surface)
    geo.mesh.setRecombine(2, halves[0])
    tops, volumes = [], []
    for surface in halves:
        extruded = geo.extrude([(2, surface)], 0, 0, 1, [3], recombine=True)
        tops.append(extruded[0][1])
        volumes.append(extruded[1][1])
    geo.synchronize()
    groups = {(3, "left"): volumes[:1], (3, "right"): volumes[1:], (3, "all"): volumes}
    groups |= {(2, "bottom"): halves, (2, "top"): tops}
    for (dim, name), tags in groups.items():
        gmsh.model.setPhysicalName(dim, gmsh.model.addPhysicalGroup(dim, tags), name)
    move = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1]
    gmsh.model.mesh.setPeriodic(2, tops, halves, move)
    gmsh.model.mesh.generate(3)
    gmsh.model.mesh.setOrder(order)


def pyramids(order: int) -> None:
    """Six pyramids around the middle of the unit cube."""
    gmsh.clear()
    gmsh.model.add("pyramids")
    corners = [(x, y, z) for z in (0, 1) for y in (0, 1) for x in (0, 1)]
    entity = gmsh.model.addDiscreteEntity(3)
    points = [c for corner in corners for c in corner] + [0.5] * 3
    gmsh.model.mesh.addNodes(3, entity, list(range(1, 10)), points)
    bases = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    nodes = [n + 1 for base in bases for n in (*base, 8)]
    gmsh.model.mesh.addElements(3, entity, [7], [list(range(11, 17))], [nodes])
    gmsh.model.mesh.setOrder(order)


def cut(name: str) -> None:
    """Have gmsh cut a box of ours, and write one file of all partitions and one of each."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "whole.msh")
        partitioned(name).write(path)
        gmsh.open(str(path))
    *_, count, binary = PARTITIONED[name]
    gmsh.model.mesh.partition(count)
    save(f"{name}_single", Binary=binary)
    save(f"{name}_split", Binary=binary, PartitionSplitMeshFiles=1)


def save(name: str, **options: float) -> None:
    """Write the model with these options of gmsh's group Mesh."""
    defaults = {"MshFileVersion": 4.1, "Binary": 0, "SaveAll": 0, "SaveParametric": 0, "PartitionSplitMeshFiles": 0}
    for option, value in (defaults | options).items():
        gmsh.option.setNumber(f"Mesh.{option}", value)
    gmsh.write(str(FOLDER / f"{name}.msh"))


def record(name: str) -> None:
    """What the model answers where it is read without a file."""
    model = RecordedModel(name, gmsh.model)
    from_gmsh(model)
    model.save()


def main() -> None:
    """Write all files."""
    gmsh.initialize(interruptible=False)
    gmsh.option.setNumber("General.Terminal", 0)
    FOLDER.mkdir(exist_ok=True)
    cube(1)
    save("cube_41_text")
    save("cube_22_text", MshFileVersion=2.2)
    save("cube_40", MshFileVersion=4.0)
    save("cube_1", MshFileVersion=1)
    save("cube_41_all", SaveAll=1)
    save("cube_41_parametric", SaveAll=1, SaveParametric=1)
    cube(2)
    save("cube_41_binary_order2", Binary=1)
    save("cube_22_binary_order2", MshFileVersion=2.2, Binary=1)
    record("model_cube_order2")
    cube(3)
    save("cube_41_binary_order3", Binary=1, SaveAll=1)
    gmsh.option.setNumber("Mesh.SecondOrderIncomplete", 1)
    cube(2)
    save("cube_serendipity")
    gmsh.model.mesh.partition(2)
    save("cube_serendipity_partitioned")
    gmsh.option.setNumber("Mesh.SecondOrderIncomplete", 0)
    cube(1)
    gmsh.model.mesh.partition(2)
    save("cube_41_partitioned")
    save("cube_41_partitioned_binary", Binary=1)
    save("cube_22_partitioned", MshFileVersion=2.2)
    pyramids(3)
    save("pyramids_41_text_order3", SaveAll=1)
    record("model_pyramids_order3")
    pyramids(4)
    save("pyramids_41_binary_order4", Binary=1, SaveAll=1)
    save("pyramids_22_binary_order4", MshFileVersion=2.2, Binary=1, SaveAll=1)
    for name in PARTITIONED:
        cut(name)
    gmsh.finalize()


if __name__ == "__main__":
    main()
