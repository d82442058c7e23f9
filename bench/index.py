"""SimilarityIndex: fitted, searched, changed, saved and memory-mapped."""

import tempfile
from pathlib import Path

import numpy as np

import fastcos
from bench import answers, inputs


class Index(answers.Situation):
    """An index of 1,000 rows, which fit into the cache, and one of 50,000, which do not."""

    params = [[1_000, 50_000]]
    param_names = ["items"]

    @answers.once
    def setup(self, items):
        self.rows, self.queries = inputs.gaussian(items, 64), inputs.gaussian(256, 64, seed=1)
        self.some = self.rows[:100].copy()
        self.numbers = np.arange(100)
        self.index = fastcos.SimilarityIndex().fit(self.rows)
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "index")
        self.index.save(self.path)
        found = self.time_search_256().indices
        wrong = answers.wrong_rows(found, self.queries, self.rows)
        mapped = self.time_load().search(self.queries, 10).indices
        one_by_one = [self.index.search(query[None], 10).indices[0] for query in self.queries[:10]]
        wrong += (mapped != found).sum() + (np.array(one_by_one) != found[:10]).sum()
        self.wrong = answers.at_most(0, wrong)

    def time_fit(self, *_):
        return fastcos.SimilarityIndex().fit(self.rows)

    def time_search_1(self, *_):
        return self.index.search(self.queries[:1], 10)

    def time_search_256(self, *_):
        return self.index.search(self.queries, 10)

    def time_replace_100(self, *_):
        self.index.replace(self.numbers, self.some)

    def time_save(self, *_):
        self.index.save(self.path)

    def time_load(self, *_):
        return fastcos.SimilarityIndex.load(self.path)

    def track_wrong_rows(self, *_):
        return self.wrong

    track_wrong_rows.unit = f"of {answers.CHECKED_ROWS} rows"

    def track_bytes_per_item(self, *_):
        return self.index.bytes_per_item_

    track_bytes_per_item.unit = "bytes"
