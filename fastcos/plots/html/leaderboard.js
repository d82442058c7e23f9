/* The leaderboard of fastcos compare, in which a reader sorts and filters rows, opens a row and
   chooses an item.

   data      leaderboard.py writes the table and, for each row, the values by which it is sorted.
             For some example items, it also writes the ten nearest items by each row, and the ranks
             (bytes) of the scores between the example items.
   page      refresh() sorts the rows, and shows #detail below the open row: a heat map, and the
             neighbours of an item by this row and by the plain cosine. The address of the page
             stores the state.

   Tests and the console access the state as window.leaderboard. */
"use strict";
(() => {
  const { data, byId, numbers, paint, chooseRows, nameOf, make, showList } = window.fastcos;
  const ROWS = data.rows, ITEMS = data.items, DETAIL = byId("detail");
  const LINES = ROWS.map((_, i) => byId(`row-${i}`).closest("tr"));
  const HEADS = [...byId("board-head").querySelectorAll("[data-column]")];
  const state = { sort: "score", up: false, all: false, filter: "", open: -1, item: 0 };

  function shown() {
    const pattern = state.filter.toLowerCase(), sign = state.up ? 1 : -1;
    return [...ROWS.keys()]
      .filter((i) => state.all || ROWS[i].best || i === state.open)
      .filter((i) => ROWS[i].name.toLowerCase().includes(pattern))
      .sort((i, j) => {
        const [x, y] = [i, j].map((number) => ROWS[number].columns[state.sort]);
        return sign * (typeof x === "string" ? x.localeCompare(y) : x - y) || i - j;
      });
  }

  function refresh() {
    const order = state.up ? "ascending" : "descending", rows = shown();
    for (const head of HEADS)
      head.setAttribute("aria-sort", head.dataset.column === state.sort ? order : "none");
    const focused = document.activeElement;
    byId("board").replaceChildren(
      ...rows.flatMap((i) => (i === state.open ? [LINES[i], DETAIL] : [LINES[i]])));
    focused.focus({ preventScroll: true }); // rows that are moved lose the focus
    for (const i of rows) byId(`row-${i}`).setAttribute("aria-expanded", String(i === state.open));
    if (rows.includes(state.open)) showDetail();
    byId("count").textContent = `${rows.length} of ${ROWS.length} candidates`;
    byId("all").checked = state.all;
    const parts = { sort: state.sort, up: Number(state.up), all: Number(state.all) };
    if (state.open >= 0) Object.assign(parts, { open: state.open, item: state.item });
    history.replaceState(null, "", `#${new URLSearchParams(parts)}`);
  }

  /* Show the heat map of the open row and the neighbours of the chosen item; the sign ✓ marks
     neighbours with the label of the chosen item. */
  function showDetail() {
    const row = ROWS[state.open], plain = ROWS[data.baseline], side = ITEMS.length;
    byId("opened").hidden = !row.map;
    byId("unopened").hidden = Boolean(row.map);
    if (!row.map) return;
    const bytes = numbers(row.map, Uint8Array);
    paint(byId("heat"), side, (place) => bytes[place], data.boundaries, state.item);
    byId("heat").setAttribute("aria-label",
      `Heat map of scores between ${side} items by ${row.name}`);
    byId("item").value = state.item;
    const own = data.labels ? data.labels[ITEMS[state.item]] : -1;
    const mark = (item) => make("td", { class: "certified" },
      own >= 0 && data.labels[item] === own ? "✓ same label" : "");
    const action = (item) => ITEMS.includes(item) && (() => choose(ITEMS.indexOf(item)));
    const list = ({ lists, values }) =>
      lists[state.item].map((item, rank) => [item, values[state.item][rank]]);
    showList("by-row", list(row), action, mark);
    showList("by-plain", list(plain), action, mark);
    const same = row.lists[state.item].filter((item) => plain.lists[state.item].includes(item));
    byId("same").textContent = `(${same.length} of ${plain.lists[state.item].length} are the same)`;
    byId("plain").hidden = row === plain;
  }

  function change(changes) {
    Object.assign(state, changes);
    refresh();
  }

  const choose = (item) => change({ item });
  const toggle = (i) => change({ open: state.open === i ? -1 : i });

  function readAddress() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const whole = (key, below, usual) => {
      const value = Math.floor(parseFloat(parts.get(key)));
      return value >= 0 && value < below ? value : usual;
    };
    if (Object.hasOwn(ROWS[0].columns, parts.get("sort"))) state.sort = parts.get("sort");
    state.up = whole("up", 2, 0) === 1;
    state.all = whole("all", 2, 0) === 1;
    state.open = whole("open", ROWS.length, -1);
    state.item = whole("item", ITEMS.length, state.item);
  }

  for (const head of HEADS)
    head.querySelector("button").addEventListener("click", () => {
      const sort = head.dataset.column;
      change({ sort, up: state.sort === sort ? !state.up : sort === "measure" });
    });
  for (const i of ROWS.keys()) byId(`row-${i}`).addEventListener("click", () => toggle(i));
  byId("all").addEventListener("change", (event) => change({ all: event.target.checked }));
  byId("filter").addEventListener("input", (event) => change({ filter: event.target.value.trim() }));
  byId("item").append(...ITEMS.map((item, place) => make("option", { value: place }, nameOf(item))));
  byId("item").addEventListener("change", (event) => choose(Number(event.target.value)));
  chooseRows(byId("heat"), ITEMS.length, () => state.item, choose);
  addEventListener("hashchange", () => { readAddress(); refresh(); });
  readAddress();
  refresh();
  window.leaderboard = { state, refresh, toggle, choose, shown: () => shown().map((i) => ROWS[i]) };
})();
