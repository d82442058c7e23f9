"""Results, described once: as records, as tables, as text and as a page.

``record`` turns the fields of a result into plain values, for JSON. ``table`` is the repr of a
result as text and as HTML. ``markup`` and ``page`` write self-contained HTML pages.
"""
