/* The page on which a reader changes the rescaling D: figure1.html of fastcos reproduce, and the page
   of fastcos audit --explore.

   data      explore.py writes the data, and parts.js reads them: the rows V (p, d) as base64
             float32, labels and names, and for each λ a model, which contains the logarithms of two
             diagonal matrices (S and Σ, or Q and P) and the weights of Eq. 2.
   state     The state contains the exponents a and b of D = S^a Σ^b, or unique for Eq. 2; and the
             rank, λ, the chosen item and the condition of certificates. Each input of the page with
             a key shows and changes one value of the state, and is part of the address of the page.
   model     weights() returns the factor of each column of V under D. rescaled() returns float32
             rows of norm 1, from which every number of the page is computed.
   numbers   drawMap() draws item-item cosines, or those of some items if there are too many.
             score() computes the AUC, MAP@R and the accuracy of the ten nearest items, as
             fastcos.metrics defines these metrics. nearest() returns the neighbours of an item.
   page      settle() redraws all parts that depend on λ and the rank, and refresh() redraws all
             parts that depend on D.

   For the model of the paper, V contains the singular vectors, and the items are V S^own D^-1. A
   lower rank uses fewer columns of V, and another λ changes S. No text of the data becomes markup.
   Tests and the console access the state as window.explore. */
"use strict";
(() => {
  const { data, byId, three, numbers, paint, chooseRows, nameOf, make, showList, SEQUENTIAL } =
    window.fastcos;
  const N = data.names.length, WIDTH = data.width, NEIGHBOURS = Math.min(10, N - 1);
  const V = numbers(data.rows), LABELS = data.labels, GIVEN = data.given;
  const EVERY = [...data.names.keys()];
  // The background of the pad is computed from at most 120 of the items that have a label.
  const KNOWN = EVERY.filter((i) => !LABELS || LABELS[i] >= 0);
  const SAMPLE = KNOWN.filter((_, place) => place * 120 % KNOWN.length < 120);
  // A matrix L with WIDTH rows for which LL' is the covariance of the users, projected onto the span
  // of the items.
  const USERS = data.root && numbers(data.root);
  // The radii of the trained neighbours, with NEIGHBOURS radii per item. A radius is infinite if no
  // rescaling removes the neighbour.
  const CERTIFIED = data.certified && numbers(data.certified, Float64Array);
  const ATTACKED = data.certified && numbers(data.attacked, Float64Array);
  const DRAWN = EVERY.filter((i) => i % data.stride === 0), SIDE = DRAWN.length; // items in the heat map
  // If the scores need at most this number of multiply-adds, they are computed within one frame;
  // otherwise they are computed when the reader pauses.
  const SCORE_WORK = 60e6;
  const BINS = 1 << 14; // bins of the AUC, whose error is then below 1e-5

  const state = data.state;
  const inputs = [...document.querySelectorAll("[data-key]")].filter((input) => !input.closest("[hidden]"));
  const timers = {};
  let rows, trained, query; // the unit rows under D, under D = I, and of the query metric
  const cosines = new Float32Array(SIDE * SIDE); // the cosines of the heat map
  let scored = null;

  // ---- model ----
  const model = () => data.models.find(({ lambda }) => lambda === state.lambda);

  /* Return the logarithm of S^a Σ^b for each column. */
  function logarithms(a, b) {
    const [s, t] = model().axes;
    return s.slice(0, state.rank).map((value, l) => a * value + b * t[l]);
  }

  /* Return the factor by which each column of the items is multiplied. */
  function weights({ a, b, unique }) {
    if (unique) return model().unique.slice(0, state.rank);
    const logs = logarithms(data.own - a, -b), most = Math.max(...logs);
    return logs.map((value) => Math.exp(value - most));
  }

  /* Return n rows of norm 1, each of which fill(r, row) writes before it is normalised. A zero row
     remains zero. Three rows of zeros are appended, so that the last tile of products is full. */
  function unitRows(n, d, fill) {
    const values = new Float32Array((n + 3) * d), row = new Float64Array(d);
    for (let r = 0; r < n; r++) {
      fill(r, row);
      let square = 0;
      for (let l = 0; l < d; l++) square += row[l] * row[l];
      const length = Math.sqrt(square) || 1;
      for (let l = 0; l < d; l++) values[r * d + l] = row[l] / length;
    }
    return { values, d, n };
  }

  function rescaled(factors, items = EVERY) {
    const d = factors.length;
    return unitRows(items.length, d, (r, row) => {
      const start = items[r] * WIDTH;
      for (let l = 0; l < d; l++) row[l] = V[start + l] * factors[l];
    });
  }

  /* Return the rows of the query metric. The cosine of two such rows is the correlation of the
     predicted scores of two items over the users, which D does not change. */
  function byUsers() {
    const width = USERS.length / WIDTH, scales = logarithms(2 * data.own, 0).map(Math.exp);
    return unitRows(N, width, (i, row) => {
      row.fill(0);
      for (let l = 0; l < scales.length; l++) {
        const entry = V[i * WIDTH + l] * scales[l], start = l * width;
        for (let c = 0; c < width; c++) row[c] += entry * USERS[start + c];
      }
    });
  }

  /* Write the cosines of row i with all rows to out. */
  function cosinesOf({ values, d, n }, i, out = new Float64Array(n)) {
    const own = values.subarray(i * d, i * d + d);
    for (let j = 0, at = 0; j < n; j++, at += d) {
      let sum = 0;
      for (let l = 0; l < d; l++) sum += own[l] * values[at + l];
      out[j] = sum;
    }
    return out;
  }

  /* Write the inner products of all pairs of rows to out. The products are computed in tiles of
     4 x 4 rows, in which each number that is read is used four times. */
  function products({ values, d, n }, out) {
    for (let i = 0; i < n; i += 4) {
      const a = i * d, b = a + d, c = b + d, e = c + d;
      for (let j = i; j < n; j += 4) {
        const p = j * d, q = p + d, r = q + d, s = r + d;
        let ap = 0, aq = 0, ar = 0, as = 0, bp = 0, bq = 0, br = 0, bs = 0;
        let cp = 0, cq = 0, cr = 0, cs = 0, ep = 0, eq = 0, er = 0, es = 0;
        for (let l = 0; l < d; l++) {
          const A = values[a + l], B = values[b + l], C = values[c + l], E = values[e + l];
          const P = values[p + l], Q = values[q + l], R = values[r + l], S = values[s + l];
          ap += A * P; aq += A * Q; ar += A * R; as += A * S;
          bp += B * P; bq += B * Q; br += B * R; bs += B * S;
          cp += C * P; cq += C * Q; cr += C * R; cs += C * S;
          ep += E * P; eq += E * Q; er += E * R; es += E * S;
        }
        const tile = [ap, aq, ar, as, bp, bq, br, bs, cp, cq, cr, cs, ep, eq, er, es];
        for (let t = 0; t < 16; t++) {
          const x = i + (t >> 2), y = j + (t & 3);
          if (x < n && y < n) out[x * n + y] = out[y * n + x] = tile[t];
        }
      }
    }
  }

  // ---- numbers ----
  /* Call step(0) to step(count - 1), and then done(). Without a pause, the calls are made at once.
     With a pause, they are made after the pause and in slices, between which the page reacts to the
     reader. A later run with the same name cancels this run. */
  function run(name, pause, count, step, done) {
    let next = 0;
    const slice = () => {
      const until = pause ? performance.now() + 12 : Infinity;
      while (next < count && performance.now() < until) step(next++);
      if (next < count) timers[name] = setTimeout(slice);
      else done();
    };
    clearTimeout(timers[name]);
    if (pause) timers[name] = setTimeout(slice, pause);
    else slice();
  }

  function drawMap() {
    products(data.stride === 1 ? rows : rescaled(weights(state), DRAWN), cosines);
    // Rounding can make a cosine exceed 1 by 1e-6; the level of its colour is still at most 255.
    paint(byId("map"), SIDE, (i) => (cosines[i] * 127.5 + 128) | 0, data.boundaries,
      Math.floor(state.item / data.stride));
  }

  /* Return an object that computes the AUC, MAP@R and accuracy row by row: call add(i, line) with
     the cosines of each row i, in any order, and then result(). A key contains the distance of an
     item in its upper 21 bits and the position of the item in its lower 11 bits, so that sorted keys
     begin with the nearest item. */
  function tally({ values, n, d }, given) {
    const labels = Int32Array.from(given), sizes = [], zero = new Uint8Array(n);
    const labelled = Int32Array.from(labels.keys()).filter((i) => labels[i] >= 0);
    for (const i of labelled) {
      sizes[labels[i]] = (sizes[labels[i]] || 0) + 1;
      zero[i] = values.subarray(i * d, i * d + d).some((value) => value !== 0) ? 0 : 1;
    }
    const voters = Math.min(NEIGHBOURS, labelled.length - 1);
    const same = new Uint32Array(BINS), other = new Uint32Array(BINS);
    const keys = new Uint32Array(n), selected = new Uint32Array(n), counts = new Uint32Array(1024);
    const votes = new Uint8Array(sizes.length);
    let precisions = 0, right = 0, queries = 0;

    function add(i, line) {
      const own = labels[i], R = sizes[own] - 1;
      if (zero[i]) return;
      let count = 0;
      counts.fill(0);
      for (let t = 0; t < labelled.length; t++) {
        const j = labelled[t];
        if (j === i) continue;
        const far = ((1.000002 - line[j]) * 1048573) | 0; // at least 0, and below 2^21
        if (j > i && zero[j] === 0) (labels[j] === own ? same : other)[far >>> 7]++;
        keys[count++] = (far << 11) | j;
        counts[far >>> 11]++;
      }
      if (R < 1) return;
      queries++;
      const nearestKeys = firstKeys(count, Math.max(R, voters));
      let hits = 0, sum = 0;
      for (let rank = 0; rank < R; rank++)
        if (labels[nearestKeys[rank] & 2047] === own) sum += ++hits / (rank + 1);
      precisions += sum / R;
      right += voted(nearestKeys) === own ? 1 : 0;
    }

    /* Return at least the ``least`` smallest keys, sorted. All keys of a bin are sorted together. */
    function firstKeys(count, least) {
      let bin = 0, seen = 0, nSelected = 0;
      while (bin < 1023 && (seen += counts[bin]) < least) bin++;
      for (let t = 0; t < count; t++) if (keys[t] >>> 22 <= bin) selected[nSelected++] = keys[t];
      return selected.subarray(0, nSelected).sort();
    }

    /* Return the most frequent label among the nearest items. If several labels are equally
       frequent, return the label of the nearest item among these. */
    function voted(nearestKeys) {
      const nearby = Array.from(nearestKeys.subarray(0, voters), (key) => labels[key & 2047]);
      votes.fill(0);
      for (const label of nearby) votes[label]++;
      return nearby.reduce((best, label) => (votes[label] > votes[best] ? label : best));
    }

    const result = () =>
      ({ auc: aucOf(same, other), map: precisions / queries, accuracy: right / queries });
    return { labelled, add, result };
  }

  /* Return the AUC from the numbers of pairs by distance: of pairs with the same label, and of pairs
     with different labels. */
  function aucOf(same, other) {
    let below = 0, wins = 0, nSame = 0;
    for (let bin = same.length - 1; bin >= 0; bin--) {
      wins += same[bin] * (below + other[bin] / 2);
      below += other[bin];
      nSame += same[bin];
    }
    return wins / (nSame * below);
  }

  /* Compute the scores under the current D, within this frame or after a pause. */
  function score() {
    if (!LABELS) return;
    const of = rows, { labelled, add, result } = tally(of, LABELS), line = new Float32Array(N);
    const step = (t) => {
      const i = labelled[t];
      add(i, data.stride === 1 ? cosines.subarray(i * N, i * N + N) : cosinesOf(of, i, line));
    };
    showScores(null);
    const pause = N * N * of.d > SCORE_WORK ? 120 : 0;
    run("score", pause, labelled.length, step, () => showScores(result()));
  }

  /* Return the items with the largest values, as arrays [item, value]. Items with equal values are
     in the order of their numbers. */
  function largest(values, n, except = -1) {
    return Array.from(values, (value, i) => [i, value]).filter(([i]) => i !== except)
      .sort((x, y) => y[1] - x[1] || GIVEN[x[0]] - GIVEN[y[0]]).slice(0, n);
  }

  const nearest = (of, i) => largest(cosinesOf(of, i), NEIGHBOURS, i);

  /* Return the loss and the predicted scores, computed from the factors under D. D changes neither
     of them. */
  function invariants({ a, b }) {
    const left = logarithms(data.own + a, b).map(Math.exp);
    const right = logarithms(data.own - a, -b).map(Math.exp);
    const loss = data.sigma && left.reduce((sum, value, l) => {
      const share = value * right[l], square = data.sigma[l] ** 2;
      return sum + square * ((1 - share) ** 2 - 1) + state.lambda * share ** 2;
    }, data.total);
    const users = data.examples.map((user) => largest(EVERY.map((i) => {
      let sum = 0;
      for (let l = 0; l < left.length; l++)
        sum += user[l] * left[l] * (V[i * WIDTH + l] * right[l]);
      return sum;
    }), 3));
    return { loss, users };
  }

  // ---- background of the pad ----
  /* Compute the AUC of the sample under each D of a grid. Without labels, compute the share of the
     neighbours under D = I that are also neighbours under each D. */
  function mapExponents() {
    const size = byId("exponents").width, values = [], labels = SAMPLE.map((i) => LABELS?.[i]);
    const under = (a, b) => rescaled(weights({ a, b }), SAMPLE);
    const auc = (of) => {
      const { labelled, add, result } = tally(of, labels);
      for (const i of labelled) add(i, cosinesOf(of, i));
      return result().auc;
    };
    const pairs = (of) => SAMPLE.flatMap((_, i) => nearest(of, i).map(([j]) => i * N + j));
    const known = new Set(LABELS ? [] : pairs(under(0, 0)));
    const overlap = (of) => pairs(of).filter((pair) => known.has(pair)).length / known.size;
    const step = (cell) => {
      const [x, y] = [cell % size, Math.floor(cell / size)].map((at) => (2 * at) / (size - 1) - 1);
      values.push((LABELS ? auc : overlap)(under(x, -y)));
    };
    delete byId("pad").dataset.ready;
    run("exponents", 50, size * size, step, () => showExponents(values, size));
  }

  function showExponents(values, size) {
    const low = Math.min(...values), high = Math.max(...values), image = new ImageData(size, size);
    new Uint32Array(image.data.buffer).set(
      values.map((value) => SEQUENTIAL[Math.round((255 * (value - low)) / (high - low)) || 0]));
    byId("exponents").getContext("2d").putImageData(image, 0, 0);
    byId("background").textContent = `The background shows the ${data.background} among `
      + `${SAMPLE.length} items, from ${low.toFixed(2)} (dark) to ${high.toFixed(2)} (bright).`;
    byId("pad").dataset.ready = "true";
  }

  // ---- page ----
  const HALVES = { 0.5: "1/2", "-0.5": "-1/2" };
  const power = (base, x) =>
    (x === 0 ? "" : x === 1 ? base : `${base}^${HALVES[x] ?? +x.toFixed(2)}`);
  const formula = () => [power(data.symbols[0], state.a), power(data.symbols[1], state.b)]
    .filter(Boolean).join(" ") || "I";
  /* Show a text in which each exponent, as in S^1/2, is a superscript. page.py typesets the other
     texts in the same way. */
  const typeset = (id, text) => byId(id).replaceChildren(...text.split(/\^(-?[\d./]*\d)/)
    .map((part, place) => (place % 2 ? make("sup", {}, part) : part)));
  const isAt = ({ a, b, unique }) =>
    (unique ? state.unique : !state.unique && state.a === a && state.b === b);

  function showScores(scores) {
    scored = scores;
    for (const block of document.querySelectorAll("[data-score]")) {
      const value = scores?.[block.dataset.score];
      block.querySelector("dd").textContent = scores ? three(value) : "…";
      if (scores) block.querySelector("meter").value = value || 0;
    }
  }

  /* Return the table cell that shows whether the neighbour of this rank survives every rescaling of
     the chosen condition. */
  function certificate(rank) {
    const place = state.item * NEIGHBOURS + rank;
    const low = CERTIFIED[place], high = ATTACKED[place];
    const [sign, meaning, kind] = low > state.condition ? ["✓", "certified", "certified"]
      : high <= state.condition ? ["✗", "removed by a rescaling", "lost"]
        : ["?", "it is not known whether a rescaling removes the neighbour", "open"];
    const label = `${meaning}; the smallest κ at which a rescaling was found that removes the `
      + `neighbour is ${three(high)}`;
    return make("td", { class: kind, "aria-label": label },
      `${sign} ${Number.isFinite(high) ? high.toFixed(2) : "-"}`);
  }

  function showNeighbours() {
    byId("item-name").textContent = nameOf(state.item);
    const show = (id, of, mark = () => "") =>
      showList(id, nearest(of, state.item), (j) => () => choose(j), mark);
    show("under-d", rows);
    show("under-i", trained, CERTIFIED ? (_, rank) => certificate(rank) : undefined);
    if (query) show("under-q", query);
  }

  function showInvariants() {
    const { loss, users } = state.unique ? { users: [] } : invariants(state);
    byId("loss").textContent = loss?.toLocaleString("en", { maximumFractionDigits: 1 }) ?? "-";
    byId("users").replaceChildren(...users.map((list, u) => {
      const predicted = list.map(([i, value]) => `${data.names[i]} (${three(value)})`);
      return make("li", {}, `${data.exampleNames[u]}: ${predicted.join(", ")}`);
    }));
    byId("users-block").hidden = !users.length;
    typeset("fixed-note", state.unique ? data.uniqueNote : data.fixedNote);
  }

  /* Return the position of a D on the pad, whose unit of length is a hundredth of an exponent. */
  function padPlace({ a, b, unique }) {
    const [x, y] = unique ? model().places[state.rank] : [a, b];
    return `translate(${100 * x}px, ${-100 * y}px)`;
  }

  /* Compute and draw all parts that depend on λ and the rank. */
  function settle() {
    trained = rescaled(weights({ a: 0, b: 0 }));
    query = USERS && byUsers();
    if (model().places) byId("eq2").style.transform = padPlace({ unique: true });
    mapExponents();
  }

  /* Compute and draw all parts that depend on D. */
  function refresh() {
    rows = rescaled(weights(state));
    drawMap();
    score();
    showNeighbours();
    showInvariants();
    const logs = logarithms(state.a, state.b);
    const name = state.unique ? "Eq. 2, whose solution is unique" : `D = ${formula()}`;
    typeset("d", name);
    byId("kappa").textContent = state.unique ? "-"
      : Math.exp(Math.max(...logs) - Math.min(...logs)).toPrecision(3);
    byId("ring").style.transform = padPlace(state);
    for (const mark of document.querySelectorAll("[data-named]"))
      mark.setAttribute("aria-pressed", String(isAt(data.named[mark.dataset.named])));
    typeset("sentence", (stage < 0 ? "" : `${stage + 1} of ${data.named.length}. `)
      + (data.named.find(isAt)?.sentence ?? ""));
    byId("map").setAttribute("aria-label",
      `Heat map of item-item cosines under ${name}${scored ? `; AUC ${three(scored.auc)}` : ""}`);
    for (const input of inputs) input.value = state[input.id];
    for (const output of document.querySelectorAll("output[for]"))
      output.textContent = state[output.htmlFor.value]?.toFixed(2);
    clearTimeout(timers.address);
    timers.address = setTimeout(() => history.replaceState(null, "", address()), 250);
  }

  function address() {
    const parts = new URLSearchParams(inputs.map(({ id, dataset }) => [dataset.key, state[id]]));
    parts.set("item", GIVEN[state.item]);
    if (state.unique) parts.set("eq", 2);
    return `#${parts}`;
  }

  /* Read the state from the address. Each value is limited to the range and the options of its
     input. */
  function readAddress() {
    const parts = new URLSearchParams(location.hash.slice(1));
    for (const input of inputs) {
      const { min = -Infinity, max = Infinity } = input;
      const value = Math.max(min, Math.min(max, parseFloat(parts.get(input.dataset.key))));
      input.value = value;
      if (input.value && value >= min) state[input.id] = value;
    }
    state.unique = Boolean(model().unique) && parts.get("eq") === "2";
    const item = GIVEN.indexOf(parseFloat(parts.get("item")));
    if (item >= 0) state.item = item;
    settle();
  }

  /* Change the state, and redraw the page at most once per frame. */
  function change(changes) {
    Object.assign(state, changes);
    if ("rank" in changes || "lambda" in changes) settle();
    if (!timers.frame) timers.frame = requestAnimationFrame(() => {
      timers.frame = 0;
      refresh();
    });
  }

  /* Change D to exponents that the reader has chosen, which ends the replay. */
  function move(a, b) {
    const limited = (value) => Math.max(-1, Math.min(1, Math.round(value * 100) / 100));
    play(-1);
    change({ a: limited(a), b: data.symbols[1] ? limited(b) : 0, unique: false });
  }

  const go = ({ a = state.a, b = state.b, unique = false }) => change({ a, b, unique });

  let stage = -1; // the number of the named D that the replay shows; -1 if there is no replay
  /* Show the named D one after the other, starting from this stage, each for the same time. */
  function play(from) {
    stage = from < data.named.length ? from : -1;
    byId("replay").textContent = stage < 0 ? data.replay : "Stop";
    clearTimeout(timers.replay);
    if (stage < 0) return;
    go(data.named[stage]);
    timers.replay = setTimeout(play, data.rest, stage + 1);
  }

  function choose(item) {
    byId("search").value = "";
    change({ item });
  }

  /* Choose the item whose name, number or part of the name was entered. */
  function search() {
    const text = byId("search").value.trim().toLowerCase();
    if (!text) return;
    const names = data.names.map((name) => name.toLowerCase());
    const item = [names.indexOf(text), GIVEN.indexOf(Number(text)),
      names.findIndex((name) => name.includes(text))].find((place) => place >= 0);
    byId("search-note").textContent = item === undefined ? "no such item on this page" : "";
    if (item !== undefined) choose(item);
  }

  function listen() {
    const pad = byId("pad");
    const drag = ({ clientX, clientY }) => {
      const { left, top, width, height } = pad.getBoundingClientRect();
      const reach = pad.viewBox.baseVal.width / 100;
      move(reach * ((clientX - left) / width - 0.5), -reach * ((clientY - top) / height - 0.5));
    };
    pad.addEventListener("pointerdown", (event) => {
      if (event.target.closest("[data-named]")) return; // a click chooses the named D
      pad.setPointerCapture(event.pointerId);
      drag(event);
    });
    pad.addEventListener("pointermove", (event) => { if (event.buttons) drag(event); });
    pad.addEventListener("keydown", (event) => {
      const right = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0;
      const up = { ArrowDown: -1, ArrowUp: 1 }[event.key] ?? 0;
      if (!right && !up) return;
      event.preventDefault();
      const length = event.shiftKey ? 0.25 : 0.05;
      move(state.a + right * length, state.b + up * length);
    });
    document.addEventListener("click", (event) => {
      const mark = event.target.closest("[data-named]");
      if (!mark) return;
      play(-1);
      go(data.named[mark.dataset.named]);
    });
    for (const input of inputs)
      input.addEventListener("input", () => {
        const changes = { [input.id]: Number(input.value) };
        if (input.id in { a: 0, b: 0 }) move(changes.a ?? state.a, changes.b ?? state.b);
        else change(changes);
      });
    chooseRows(byId("map"), N, () => state.item, choose);
    byId("find").addEventListener("submit", (event) => {
      event.preventDefault();
      search();
    });
    byId("search").addEventListener("change", search);
    byId("replay").addEventListener("click", () => play(stage < 0 ? 0 : -1));
    addEventListener("hashchange", () => { readAddress(); change({}); });
  }

  byId("names").append(...data.names.map((name) => make("option", { value: name })));
  // Python writes 1e-05 for the number that JavaScript writes as 0.00001.
  for (const option of document.querySelectorAll("select option")) option.value = Number(option.value);
  play(-1);
  readAddress();
  listen();
  refresh();
  window.explore = { state, move, choose, refresh,
    cosines: (i) => Array.from(cosinesOf(rows, i)), neighbours: (i) => nearest(rows, i),
    query: (i) => nearest(query, i), scores: () => scored,
    certified: () => CERTIFIED.map((radius) => radius > state.condition) };
})();
