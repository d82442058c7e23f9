"""Report second names of things that have one, each with the term of the field.

python .ci/words.py [PATH ...]: the Python and Markdown files that git tracks, or those under PATH.
Exit 1 where a word is found. Parts of snake_case and CamelCase names are words too.
"""

import re
import subprocess
import sys
from pathlib import Path

# one entry a line: the words or phrases, and what to write instead
TERMS = {
    "rival rivals": "competitor, baseline",
    "equal_rows": "duplicates",
    "card": "report",
    "short_row short_rows lengthened lengthen lengthens": "underflow-safe scaling",
    "query_chunk query_chunks": "batches of queries",
    "reused_memory": "buffer pool",
    "row_part row_parts": "partial sums, deterministic blocked reduction",
    "tall_product tall_products": "tall-skinny product",
    "column_facts": "column statistics",
    "census": "kNN graph",
    "standings": "leaderboard",
    "contest contests": "comparison, runner",
    "entrant entrants": "candidate",
    "unknowing knowing_nothing": "baseline, chance level",
    "unfree": "invariant baseline",
    "line_rank line_ranks": "row argsort",
    "list_vote list_votes": "kNN voting",
    "normal_law": "normal CDF",
    "witness witnesses": "counterexample",
}
USE = {words: use for key, use in TERMS.items() for words in key.split()}
# a space, an underscore, a hyphen or a line break (of a comment, too) joins a phrase
WORD = re.compile(
    r"(?<![A-Za-z])(?:"
    + "|".join(word.replace("_", r"[\s_#-]+") for word in sorted(USE, key=len, reverse=True))
    + r")(?![A-Za-z])",
    re.IGNORECASE,
)
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# other meanings: a name of columns in what people have, an argument of sentence-transformers
ALLOWED = re.compile(r"\"card\"|query_chunk_size")
SKIPPED = {"CHANGELOG.md", ".ci/words.py"}


def tracked(paths):
    """Python and Markdown files under the given paths, symbolic links left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *paths], capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = Path(name)
        if path.suffix in {".py", ".md"} and path.is_file() and name not in SKIPPED:
            yield path


def found(text):
    """Line number and phrase of each hit."""
    text = ALLOWED.sub(lambda hit: " " * len(hit[0]), text)
    # line breaks stay where they are: "RowParts" becomes "Row_Parts"
    text = CAMEL.sub("_", text)
    for hit in WORD.finditer(text):
        yield text.count("\n", 0, hit.start()) + 1, re.sub(r"[\s_#-]+", "_", hit[0].lower())


def main(paths):
    """Print each hit as FILE:LINE: word -> term; return how many there are."""
    hits = 0
    for path in tracked(paths):
        in_name = [(1, word) for _, word in found(path.as_posix())]
        for line, word in [*in_name, *found(path.read_text("utf8"))]:
            hits += 1
            print(f"{path}:{line}: {word.replace('_', ' ')} -> {USE[word]}")
    return hits


if __name__ == "__main__":
    if total := main(sys.argv[1:]):
        print(f"{total} second names", file=sys.stderr)
        sys.exit(1)
