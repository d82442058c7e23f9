/* The leaderboard of fastcos compare: sort and filter its rows, open one, choose an item.

   data      leaderboard.py writes rows by descending score, with intervals; of some example
             items the ten nearest by each row, and the ranks of the scores between them (bytes)
   page      head() and body() of the table; detail() of the open row; the address keeps the state

   Tests and the console reach the state through window.leaderboard. */
"use strict";
(() => {
  const { data, byId, three, numbers, paint, chooseRows, nameOf, numberAt, make, button,
    neighbourRow } = window.fastcos;
  const ROWS = data.rows, ITEMS = data.items;
  const COLUMNS = [
    { key: "measure", text: "measure", of: (row) => row.measure },
    { key: "score", text: data.score, of: (row) => row.score[0] },
    { key: "gain", text: "gain", of: (row) => row.gain[0] },
    ...data.others.map((text, i) => ({ key: `other${i}`, text, of: (row) => row.others[i] })),
  ];
  const state = { sort: "score", up: false, all: false, filter: "", open: -1, item: 0 };
  let least = 0, most = 1; // ends of the axis of the intervals
  const place = (value) => 4 + (192 * (value - least)) / (most - least || 1);

  function drawn(name, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  /* The interval of a score, with the chance level and the best score behind it. */
  function interval(row) {
    const [value, low, high] = row.score;
    const svg = drawn("svg", { viewBox: "0 0 200 20", class: `interval${row.ties ? " ties" : ""}`,
      role: "img", "aria-label": `${three(value)}, 95 % interval ${three(low)} to ${three(high)}` });
    const line = (x, kind) => svg.append(drawn("line", { x1: x, x2: x, y1: 0, y2: 20, class: kind }));
    if (data.chance !== null) line(place(data.chance), "chance");
    line(place(ROWS[0].score[0]), "best");
    svg.append(drawn("line", { x1: place(low), x2: place(high), y1: 10, y2: 10, class: "range" }),
      drawn("circle", { cx: place(value), cy: 10, r: 4 }));
    return svg;
  }

  function head() {
    byId("board-head").replaceChildren(...[...COLUMNS.slice(0, 1), null, ...COLUMNS.slice(1)].map((column) => {
      const cell = make("th", column ? "" : "95 % interval");
      cell.scope = "col";
      if (!column) return cell;
      const chosen = state.sort === column.key;
      cell.setAttribute("aria-sort", chosen ? (state.up ? "ascending" : "descending") : "none");
      cell.append(button(`${column.text}${chosen ? (state.up ? " ▴" : " ▾") : ""}`, "sort", () => {
        state.up = chosen ? !state.up : column.key === "measure";
        state.sort = column.key;
        refresh();
        byId("board-head").querySelector(`[aria-sort$="ending"] button`).focus();
      }));
      return cell;
    }));
  }

  function shown() {
    const { of } = COLUMNS.find(({ key }) => key === state.sort), sign = state.up ? 1 : -1;
    return [...ROWS.keys()]
      .filter((i) => state.all || ROWS[i].best || i === state.open)
      .filter((i) => `${ROWS[i].measure} ${ROWS[i].under}`.toLowerCase().includes(state.filter.toLowerCase()))
      .sort((i, j) => {
        const [x, y] = [of(ROWS[i]), of(ROWS[j])];
        return sign * (typeof x === "string" ? x.localeCompare(y) : x - y) || i - j;
      });
  }

  function body() {
    const rows = shown(), chance = data.chance === null ? [] : [data.chance];
    least = Math.min(...rows.map((i) => ROWS[i].score[1]), ...chance);
    most = Math.max(...rows.map((i) => ROWS[i].score[2]), ...chance);
    byId("board").replaceChildren(...rows.flatMap((i) => {
      const row = ROWS[i], line = make("tr"), name = make("th"), open = state.open === i;
      const opener = button(row.measure, "name", () => toggle(i));
      opener.setAttribute("aria-expanded", String(open));
      opener.id = `row-${i}`;
      name.scope = "row";
      name.append(make("span", open ? "▾ " : "▸ ", "quiet"), opener);
      if (row.under) name.append(make("span", row.under === "no model" ? " with no model" : ` under ${row.under}`, "quiet"));
      const marks = [[i === data.recommended, "recommended", "badge main"], [i === data.baseline, "plain cosine", "badge"],
        [row.ties && i !== data.recommended, "≈ best", "badge ties"]];
      marks.forEach(([holds, words, kind]) => holds && name.append(" ", make("span", words, kind)));
      const drawing = make("td");
      drawing.append(interval(row));
      const [gain, low, high] = row.gain;
      line.append(name, drawing, make("td", three(row.score[0])),
        make("td", i === data.baseline ? "-" : `${three(gain)} [${three(low)}, ${three(high)}]`),
        ...row.others.map((value) => make("td", three(value))));
      return open ? [line, detail(i)] : [line];
    }));
    byId("count").textContent = `${rows.length} of ${ROWS.length} candidates`;
  }

  /* Neighbours of the chosen item by a row; ✓ for its own label. */
  function list(i, title) {
    const row = ROWS[i], block = make("div"), table = make("table"), body_ = make("tbody");
    const own = data.labels ? data.labels[ITEMS[state.item]] : -1;
    body_.append(...row.lists[state.item].map((j, rank) => {
      const at = ITEMS.indexOf(j);
      const name = at < 0 ? nameOf(j) : button(nameOf(j), "name", () => choose(at));
      const same = own >= 0 && data.labels[j] === own;
      return neighbourRow(rank + 1, name, three(row.values[state.item][rank]),
        make("td", same ? "✓ same label" : "", "certified"));
    }));
    table.append(body_);
    block.append(make("h3", title), table);
    return block;
  }

  /* Heat map and neighbours of the open row. */
  function detail(i) {
    const row = ROWS[i], line = make("tr", "", "detail"), cell = make("td");
    cell.colSpan = COLUMNS.length + 1;
    line.append(cell);
    if (!row.map) {
      cell.append(make("p", data.items.length
        ? "It compares users, so that items have no neighbours by it." : "No example items were kept."));
      return line;
    }
    const parts = make("div", "", "opened"), heat = make("div"), canvas = make("canvas");
    const bytes = numbers(row.map, Uint8Array), side = ITEMS.length;
    paint(canvas, side, (p) => bytes[p], data.boundaries, state.item);
    canvas.id = "heat";
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Heat map of scores between ${side} items by ${row.measure}`);
    chooseRows(canvas, side, () => state.item, (at) => choose(at, "heat"));
    heat.append(canvas, make("p", data.mapNote, "quiet small"));
    const select = make("select");
    select.id = "item";
    select.setAttribute("aria-label", "Item whose neighbours are shown");
    select.append(...ITEMS.map((j, at) => new Option(nameOf(j), at, false, at === state.item)));
    select.addEventListener("change", () => choose(Number(select.value), "item"));
    const shared = row.lists[state.item].filter((j) => ROWS[data.baseline].lists[state.item].includes(j));
    const side_ = make("div"), lists = make("div", "", "lists");
    lists.append(list(i, "by this candidate"));
    if (i !== data.baseline) lists.append(list(data.baseline, "by the plain cosine"));
    const words = make("p", "Nearest to ");
    words.append(select, i === data.baseline ? "" : ` ${shared.length} of ${row.lists[state.item].length} are also nearest by the plain cosine.`);
    side_.append(words, lists);
    parts.append(heat, side_);
    cell.append(parts);
    return line;
  }

  function choose(at, focus = null) {
    state.item = at;
    refresh();
    if (focus) byId(focus).focus();
  }

  function toggle(i) {
    state.open = state.open === i ? -1 : i;
    refresh();
    byId(`row-${i}`)?.focus();
  }

  function refresh() {
    head();
    body();
    byId("all").checked = state.all;
    const parts = { sort: state.sort, up: Number(state.up), all: Number(state.all) };
    if (state.open >= 0) Object.assign(parts, { open: state.open, item: state.item });
    history.replaceState(null, "", `#${new URLSearchParams(parts)}`);
  }

  function readAddress() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const whole = (key, below, usual) => Math.floor(numberAt(parts, key, 0, below - 1, usual));
    if (COLUMNS.some(({ key }) => key === parts.get("sort"))) state.sort = parts.get("sort");
    state.up = whole("up", 2, 0) === 1;
    state.all = whole("all", 2, 0) === 1;
    state.open = whole("open", ROWS.length, -1);
    state.item = whole("item", ITEMS.length, state.item);
  }

  byId("all").addEventListener("change", (event) => {
    state.all = event.target.checked;
    refresh();
  });
  byId("filter").addEventListener("input", (event) => {
    state.filter = event.target.value.trim();
    body();
  });
  addEventListener("hashchange", () => {
    readAddress();
    refresh();
  });
  byId("all-row").hidden = ROWS.every((row) => row.best);
  readAddress();
  refresh();
  window.leaderboard = { state, refresh, toggle, choose, shown: () => shown().map((i) => ROWS[i]) };
})();
