"""Interactions: simulated as in section 4 of the paper, or read from a file."""

import itertools
import tempfile
from pathlib import Path

import numpy as np

import fastcos
from bench import answers
from bench.products import interactions


class Simulation(answers.Situation):
    """simulate_interactions in the size of the paper, and smaller."""

    SIZES = {"2,000 x 200": (2_000, 200), "20,000 x 1,000": (20_000, 1_000)}
    params = [list(SIZES)]
    param_names = ["users x items"]

    @answers.once
    def setup(self, size):
        self.size = self.SIZES[size]
        X = self.time_simulate().X
        X.sum_duplicates()
        wrong = (X.data != 1).sum() + abs(X.shape[0] - self.size[0])
        self.wrong = answers.at_most(0, int(wrong))
        self.nnz = X.nnz

    def time_simulate(self, *_):
        return fastcos.simulate_interactions(*self.size, random_state=0)

    def track_wrong_entries(self, *_):
        return self.wrong

    track_wrong_entries.unit = "interactions"

    def track_interactions(self, *_):
        return self.nnz

    track_interactions.unit = "interactions"


class Reading(answers.Situation):
    """A csv of 40,000 interactions."""

    @answers.once
    def setup(self):
        X = interactions("2,000 x 500").tocoo()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "interactions.csv")
        rows = np.stack([X.row, X.col, X.data], axis=1).astype(int)
        np.savetxt(self.path, rows, "%d", ",", header="user,item,value", comments="")
        self.fresh = (Path(self.folder.name, str(i)) for i in itertools.count())
        read, shards = self.time_read().X, self.time_ingest()
        wrong = abs(float(read.sum() - X.data.sum())) + abs(shards.nnz - read.nnz)
        self.wrong = answers.at_most(0, wrong)

    def time_read(self):
        return fastcos.read_interactions(self.path)

    def time_ingest(self):
        return fastcos.io.ingest_interactions(self.path, next(self.fresh))

    def track_wrong_entries(self):
        return self.wrong

    track_wrong_entries.unit = "interactions"
