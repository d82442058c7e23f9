"""Labels and names are aligned with the items, and real data sets give the known counts."""

from pathlib import Path

import numpy as np
import pytest

from fastcos import io
from fastcos.storage import FastcosFormatError

DATA = Path(__file__).parents[3] / "shared" / "data"
MOVIES = (
    "movieId,title,genres\n"
    "1,Toys,Comedy|Drama\n2,Heat,Crime\n3,Up,Comedy\n"
    "4,Noon,(no genres listed)\n5,Late,\n9,It,Horror\n"
)


@pytest.fixture
def movies(tmp_path):
    path = tmp_path / "movies.csv"
    path.write_text(MOVIES)
    return path


def data(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"real data is absent: {path.parent.name}/{path.name}")
    return path


def n_left_out(result):
    return result.n_several, result.n_none, result.n_other


def test_read_labels_counts_items_without_one_label(movies):
    labels = io.read_labels(movies, [1, 2, 3, 4, 5, 6], column="genres")
    assert labels.labels.tolist() == [-1, 1, 0, -1, -1, -1]
    assert labels.classes.tolist() == ["Comedy", "Crime"]
    assert labels.names.tolist() == ["Toys", "Heat", "Up", "Noon", "Late", "6"]
    assert n_left_out(labels) == (1, 3, 0)
    assert labels.n_unknown == 1
    assert (labels.labels < 0).sum() == sum(n_left_out(labels))


def test_read_labels_only_keeps_the_given_classes(movies):
    labels = io.read_labels(movies, ["9", "2", "3"], column="genres", only=["Crime", "Horror"])
    assert labels.labels.tolist() == [1, 0, -1]
    assert n_left_out(labels) == (0, 0, 1)
    for only in (["Crime", "Western"], "Crime|Western"):
        with pytest.raises(FastcosFormatError, match=r"only must list labels in column 'genres'"):
            io.read_labels(movies, [2, 3, 9], column="genres", only=only)


def test_read_labels_without_separator(movies):
    labels = io.read_labels(movies, [1, 2], column="genres", separator=None)
    assert labels.classes.tolist() == ["Comedy|Drama", "Crime"]


def test_read_labels_joins_the_rows_of_an_item(tmp_path):
    path = tmp_path / "tags.csv"
    path.write_text("item,tag,name\na,x,\nb,y,B\na,x,A\nb,x,C\nc,y,\n")
    labels = io.read_labels(path, ["a", "b", "c"], column="tag")
    assert labels.labels.tolist() == [0, -1, 1]
    assert n_left_out(labels) == (1, 0, 0)


def test_read_labels_refuses_unknown_items(movies):
    with pytest.raises(
        FastcosFormatError,
        match=r"must contain at least one of the items .* 6 ids, none .* is an item: '1', '2'",
    ) as caught:
        io.read_labels(movies, [100, 200], column="genres")
    assert "\n" not in str(caught.value)
    with pytest.raises(FastcosFormatError, match="must contain at least one"):
        io.read_labels(movies, ["01", "02"], column="genres")


def test_read_labels_refuses_wrong_columns_and_few_classes(movies):
    with pytest.raises(FastcosFormatError, match=r"column must name one column of .* got 'genre'"):
        io.read_labels(movies, [1, 2], column="genre")
    with pytest.raises(FastcosFormatError, match="item must name one column"):
        io.read_labels(movies, [1, 2], column="genres", item="id")
    with pytest.raises(FastcosFormatError, match=r"two different labels among .* got 1$"):
        io.read_labels(movies, [1, 2], column="genres")


def test_read_labels_counts_rows_without_an_id(movies):
    # the format of BLESS
    movies.write_text("movieId,genres\n1,a\n,b\n2,b\n")
    labels = io.read_labels(movies, [1, 2], column="genres")
    assert labels.labels.tolist() == [0, 1]
    assert labels.n_unknown == 1


@pytest.mark.slow
def test_movielens_has_2811_rated_films_of_one_genre():
    ratings = io.read_interactions(data("ml-latest-small/ratings.csv.zip"))
    assert ratings.X.shape == (610, 9724)
    assert ratings.X.nnz == 100_836
    assert ratings.X.dtype == np.float32
    assert ratings.user_ids.tolist() == list(range(1, 611))
    # 2,851 films have at most one genre. Of these films, 34 have no genre, and 6 have no rating.
    labels = io.read_labels(data("ml-latest-small/movies.csv"), ratings.item_ids, column="genres")
    assert (labels.labels >= 0).sum() == 2811
    assert n_left_out(labels) == (6879, 34, 0)
    assert labels.n_unknown == 18
    assert labels.names[0] == "Toy Story (1995)"


@pytest.mark.slow
def test_mtg_has_10544_items_of_one_colour():
    decks = io.read_interactions(data("mtg/mtg_csr.npz"))
    assert decks.X.shape == (385_215, 17_192)
    # The file stores 12,003,097 entries, 26 of which are zero.
    assert decks.X.nnz == 12_003_097 - 26
    assert decks.X.data.max() == 255
    table = data("mtg/cards.csv")
    labels = io.read_labels(table, decks.item_ids, column="color", only=list("WUBRG"))
    assert (labels.labels >= 0).sum() == 10_544
    assert labels.classes.tolist() == ["B", "G", "R", "U", "W"]
    assert labels.names[0] == "Island"


@pytest.mark.slow
def test_anime_tables_are_members_of_one_archive():
    path = data("anime/anime.zip")
    seen = io.read_interactions(path, member="anime_history.dat")
    assert seen.X.shape == (5000, 7390)
    assert seen.X.nnz == 520_609
    kinds = io.read_labels(path, seen.item_ids, column="type", member="anime_info.dat")
    assert kinds.classes.tolist() == ["Movie", "Music", "ONA", "OVA", "Special", "TV"]
    assert (kinds.labels >= 0).all()
    genres = io.read_labels(
        path, seen.item_ids, column="genre", separator=",", member="anime_info.dat"
    )
    assert genres.n_several > 6000
    assert not any("," in name for name in genres.classes)


@pytest.mark.slow
def test_online_retail_has_text_ids():
    bought = io.read_interactions(data("online-retail/online_retail_pairs.csv.gz"))
    assert bought.X.shape == (4339, 3665)
    assert bought.X.nnz == 266_802
    assert bought.item_ids.dtype.kind == "U"  # such as 84029E


@pytest.mark.slow
def test_completejourney_has_departments():
    bought = io.read_interactions(data("completejourney/completejourney_pairs.csv.gz"))
    assert bought.X.shape == (2377, 20_902)
    products = data("completejourney/completejourney_products.csv.gz")
    labels = io.read_labels(products, bought.item_ids, column="department")
    assert len(labels.classes) == 26
    assert labels.n_none == 5


def test_glove_words_come_with_their_vectors():
    vectors, words = io.read_vectors(data("glove50/glove50.npz"))
    assert vectors.shape == (8347, 50)
    assert words[:3].tolist() == ["that", "be", "this"]


def test_positions_never_meet_the_ids_of_a_catalogue(movies):
    # A model without ids has these row numbers. The files contain the id 9, although there is no
    # row 9, and they do not contain the id 0.
    numbers = np.arange(5)
    pairs = movies.with_name("pairs.txt")
    pairs.write_text("1\t2\t5\n2\t9\t1\n2\t3\t1\n")
    counts = movies.with_name("counts.csv")
    counts.write_text("movieId,count\n1,3\n9,1\n")
    for read in (
        lambda ids: io.read_labels(movies, ids, column="genres"),
        lambda ids: io.read_names(movies, ids),
        lambda ids: io.read_popularity(counts, ids),
        lambda ids: io.read_pairs(pairs, ids),
        lambda ids: io.common_rows("a.npy", ids, "b.npy", np.array([9, 2, 3])),
    ):
        with pytest.raises(FastcosFormatError, match=r"must name rows by their numbers, 0 to 4,"):
            read(numbers)
        read(numbers[[1, 0, 2, 3, 4]])  # Ids that differ from the row numbers are accepted.
    counts.write_text("movieId,count\n" + "".join(f"{one},1\n" for one in range(9)))
    # The file names four ids that have no row.
    assert io.read_popularity(counts, numbers).n_unknown == 4


@pytest.mark.parametrize("line", ["9\t2\t1", "2\t9\t1"])
def test_pairs_of_unknown_row_numbers_are_refused_in_either_column(tmp_path, line):
    path = tmp_path / "pairs.txt"
    path.write_text(f"1\t2\t5\n{line}\n2\t3\t1\n")
    with pytest.raises(FastcosFormatError, match=r"numbers, 0 to 4, if no ids .*, got '9'"):
        io.read_pairs(path, np.arange(5))


def test_read_pairs_keeps_the_pairs_of_known_items(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("Tiger\tcat\t7.35\ncat\tdog\t6\nunicorn\tcat\t3\ndog\ttiger\t1.5\n")
    pairs = io.read_pairs(path, ["cat", "tiger", "dog"])  # "Tiger" is also looked up in lower case
    assert pairs.pairs.tolist() == [[1, 0], [0, 2], [2, 1]]
    assert pairs.ratings.tolist() == [7.35, 6, 1.5]
    assert pairs.n_unknown == 1
    with pytest.raises(FastcosFormatError, match=r"two pairs of known items, got 1 of 4"):
        io.read_pairs(path, ["dog", "cat"])
    path.write_text("cat\tdog\ntiger\tcat\n")
    with pytest.raises(FastcosFormatError, match=r"three columns \(item, item, rating\), got 2"):
        io.read_pairs(path, ["dog", "cat", "tiger"])
