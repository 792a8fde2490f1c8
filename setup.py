"""The package list: everything under hpfem/, and shapes/ as hpfem.shapes. All other metadata is in pyproject.toml."""

from setuptools import find_packages, setup

shapes = ["hpfem.shapes", *(f"hpfem.shapes.{name}" for name in find_packages("shapes"))]
setup(packages=[*find_packages(include=["hpfem", "hpfem.*"]), *shapes])
