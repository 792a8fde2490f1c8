"""Objects that a notebook shows as their text, line by line as it is printed."""

from __future__ import annotations

from html import escape


class Printed:
    """A base of objects that are shown as they are printed."""

    def _repr_html_(self) -> str:
        """The text for a notebook."""
        return f"<pre>{escape(str(self))}</pre>"
