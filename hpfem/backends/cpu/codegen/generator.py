"""The sum-factorised kernel of a form, for all shapes, written from the mode tree.

One element per lane, fibers in registers, everything of a group of elements in one scratch buffer:

    leaves  --B_d..B_2-->  rows of eta_1 functions  --points-->  rows  --B_2^T..B_d^T-->  leaves

The way to the rows and back is in `tree`, the middle in `points`; here are the borders and the forms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .border import Layout, write_reader, write_writer
from .ir import ARGUMENTS, Index, groups_ahead
from .points import PointPasses


class Generator(PointPasses):
    """Writer of one kernel; see `TreePasses` for its parameters."""

    # --- borders --------------------------------------------------------------------------------------------------

    def modes_layout(self) -> Layout:
        """How the modes of an element lie inside."""
        return Layout(self.p.n_modes)

    def points_layout(self, plane: int) -> Layout:
        """How the points of an element lie inside."""
        if plane == self.rest[0]:
            return Layout(self.p.n_points)
        return Layout(self.rest[0], self.counts[0], plane)

    def write_borders(self) -> None:
        """Write the functions that transpose users' arrays."""
        b, form = self.b, self.form
        identity = bool(np.array_equal(self.first, np.arange(len(self.first))))
        slots = None if identity or self.p.tabulation.basis.transform is not None else b.index_table(self.first)
        if form.from_modes:
            write_reader(b, "read_modes", self.modes_layout(), slots)
        else:
            write_reader(b, "read_values", self.points_layout(self.plane))
        if form.to_modes:
            write_writer(b, "write_modes", self.modes_layout(), slots)
        else:
            write_writer(b, "write_values", self.points_layout(self.plane))
        if self.field_inputs():
            write_reader(b, "read_field", self.points_layout(self.rest[0]))

    def call_border(self, name: str, outside: str, inside: str) -> None:
        """Call a function of `write_borders` on the present group."""
        self.b.emit(f"call void @{name}(ptr {outside}, ptr {inside}, i64 {self.group.value}, i64 %last)")

    def component(self, base: str, c: Any, numbers: int) -> str:
        """Pointer to component c of a user's array: (run-time first component, multiplier, constant)."""
        b = self.b
        first, times, more = c
        index = b.new(f"mul nsw i64 {first.value}, {times}") if isinstance(first, Index) else str(first * times)
        index = b.new(f"add nsw i64 {index}, {more}")
        index = b.new(f"mul nsw i64 {index}, %elements")
        index = b.new(f"mul nsw i64 {index}, {numbers}")
        return b.new(f"getelementptr {b.real}, ptr {base}, i64 {index}")

    def read_modes(self, c: Any, into: int) -> None:
        """Modes of a component to its leaves."""
        source = self.component("%in", c, self.p.n_modes)
        transform = self.p.tabulation.basis.transform
        leaves = self.leaves(into)
        if transform is not None:
            nodal = self.area("nodal", size=self.p.n_modes)
            self.call_border("read_modes", source, nodal)
            self.dense(transform[self.tree.leaf_to_mode], nodal, leaves)
            return
        self.call_border("read_modes", source, leaves)
        self.share(leaves, scatter=False)

    def write_modes(self, c: Any, from_: int) -> None:
        """Leaves of a component to its modes."""
        target = self.component("%out", c, self.p.n_modes)
        transform = self.p.tabulation.basis.transform
        leaves = self.leaves(from_)
        if transform is not None:
            nodal = self.area("nodal", size=self.p.n_modes)
            self.dense(transform[self.tree.leaf_to_mode].T, leaves, nodal)
            self.call_border("write_modes", target, nodal)
            return
        self.share(leaves, scatter=True)
        self.call_border("write_modes", target, leaves)

    def start_fields(self) -> None:
        """Fields of the group to vectors."""
        for i, (name, c) in enumerate(self.field_inputs()):
            (entry,) = self.b.at("%fields", (i, 1), unit="ptr")
            source = self.b.new(f"load ptr, ptr {entry}")
            self.call_border("read_field", source, self.area("field", name, c, size=self.p.n_points))

    # --- forms ----------------------------------------------------------------------------------------------------

    def climb(self, c: int, value: bool, gradient: bool) -> None:
        """From leaves to level 1."""
        for k in range(self.dim - 1, 0, -1):
            self.evaluate(k, c, self.chains(k, value, gradient))

    def descend(self, c: int, value: bool, gradient: bool) -> None:
        """From level 1 to leaves."""
        for k in range(1, self.dim):
            self.test(k, c, self.chains(k, value, gradient))

    def apply(self, c: Index) -> None:
        """Components that go together, through the points."""
        form, taken, given = self.form, self.p.coupled, self.p.given
        columns = not self.by_rows and form.to_modes
        along = self.dim > 1
        for i in range(taken):
            self.take(c, i, columns and form.trial_gradient)
        if columns:
            self.column_pass()
        else:
            for i in range(taken):
                if form.from_modes:
                    self.to_points(i, form.trial_gradient and along)
                elif form.trial_gradient and along:
                    self.differentiate_points(i)
            if form.gradients:
                self.plane_pass(form.trial_gradient, self.weak_row if form.to_modes else self.derivative_row)
            for i in range(given if form.to_modes else 0):
                self.from_points(i, form.test_gradient and along)
        for i in range(given):
            if form.to_modes:
                self.descend(i, not columns or form.test_value, columns and form.test_gradient)
                self.write_modes((c, given, i), i)
            else:
                target = self.component("%out", (c, given, i), self.p.n_points)
                values = self.area("x", i, size=self.n_points) if form.trial_gradient else self.values(i)
                self.call_border("write_values", target, values)

    def take(self, c: Index, i: int, gradient: bool) -> None:
        """Component i of those that go together: modes to level 1, or values at the points."""
        component = (c, self.p.coupled, i)
        if self.form.from_modes:
            self.read_modes(component, i)
            self.climb(i, True, gradient)
        else:
            self.call_border("read_values", self.component("%in", component, self.p.n_points), self.values(i))

    def write(self) -> str:
        """The module, with the function `run`."""
        b = self.b
        self.write_borders()
        with b.function("run", ARGUMENTS, internal=False):
            head = len(b.lines)
            for i, name in enumerate(self.parameter_inputs()):
                (pointer,) = b.at("%parameters", (i, 1), unit=b.real)
                self.parameters[name] = b.broadcast(b.new(f"load {b.real}, ptr {pointer}"))
            b.emit("%last = sub nsw i64 %elements, 1")
            with b.loop("%g1", "%g0", trips=1) as self.group:
                self.factors.start_group("%geometry", self.group)
                if self.prefetch:
                    nbytes = (self.factors.per_group + self.p.n_input) * b.nbytes
                    following = Index(self.group.value, groups_ahead(nbytes))
                    geometry = b.at("%geometry", (following, self.factors.per_group))
                    b.start_prefetch(geometry + b.at("%in", (following, self.p.n_input)))
                self.coordinates = b.at("%points", (self.group, self.p.n_points * self.space_dim))
                self.start_fields()
                with b.loop("%components", trips=1) as c:
                    self.apply(c)
            areas = [
                f"  {self._pointers[name]} = getelementptr {b.vector}, ptr %scratch, i64 {offset}"
                for name, offset in self._places.items()
            ]
            if self.prefetch:
                areas += b.finish_prefetch([n * b.nbytes for n in (self.factors.per_group, self.p.n_input)])
            b.lines[head:head] = areas
        return b.module()
