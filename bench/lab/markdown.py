"""Markdown tables, printed row by row."""

RULES = {"l": "---", "r": "---:"}


def table(columns, header, rows):
    """Yield the lines of a table; `columns` gives "l" (left) or "r" (right) for each column."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join(RULES[column] for column in columns)}|"
    for row in rows:
        yield f"| {' | '.join(map(text_of, row))} |"


def text_of(cell):
    """Return a cell as text: a float has three significant digits, and None is empty."""
    if isinstance(cell, float):
        return f"{float(f'{cell:.3g}'):,g}"
    return "" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell)


def print_table(columns, header, rows):
    """Print a table, each row as soon as it is measured."""
    for line in table(columns, header, rows):
        print(line, flush=True)
