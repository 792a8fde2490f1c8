"""[Eichstaedt]'s places of tables and layouts of data for quads, as one kernel with switches."""
