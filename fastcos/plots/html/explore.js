/* The page on which a reader moves D: fastcos reproduce (figure1.html), fastcos audit --explore.

   data      explore.py writes: rows V (p, d) as base64 float32, labels, names; a model for each λ:
             ln of two diagonal matrices, S and Σ or Q and P, and Eq. 2; parts.js reads it
   state     a and b of D = S^a Σ^b, or Eq. 2 (unique); rank, λ, item, condition of certificates.
             Inputs of the page that have a key show it, move it, and are the page's address
   model     weights(): the factor of each column of V under D
             rescaled(): rows of norm 1, float32; every number of the page comes from such rows
   numbers   drawMap(): item-item cosines, of some items where there are too many; score(): AUC,
             MAP@R and accuracy of the ten nearest, as fastcos.metrics define them; nearest()
   page      settle() redraws all that depends on λ and the rank, refresh() all that depends on D

   With a model of the paper V has the singular vectors, and items are V S^own D^-1: other ranks are
   fewer columns, and other λ other S. No text of the data becomes markup. Tests and the console
   reach the state through window.explore. */
"use strict";
(() => {
  const { data, byId, three, numbers, paint, chooseRows, nameOf, make, showList, SEQUENTIAL } =
    window.fastcos;
  const N = data.names.length, WIDTH = data.width, NEIGHBOURS = Math.min(10, N - 1);
  const V = numbers(data.rows), LABELS = data.labels, GIVEN = data.given;
  const EVERY = [...data.names.keys()];
  // the pad's background is of these, at most 120 with a label
  const KNOWN = EVERY.filter((i) => !LABELS || LABELS[i] >= 0);
  const SAMPLE = KNOWN.filter((_, place) => place * 120 % KNOWN.length < 120);
  // L with LL' the covariance of the users, as far as these rows see it; WIDTH rows
  const USERS = data.root && numbers(data.root);
  // radii of the trained neighbours, NEIGHBOURS an item; infinite for never
  const CERTIFIED = data.certified && numbers(data.certified, Float64Array);
  const ATTACKED = data.certified && numbers(data.attacked, Float64Array);
  const DRAWN = EVERY.filter((i) => i % data.stride === 0), SIDE = DRAWN.length; // in the heat map
  // multiply-adds of scores that are computed within one frame; more of them wait for a pause
  const SCORE_WORK = 60e6;
  const BINS = 1 << 14; // of the AUC: its error is below 1e-5

  const state = data.state;
  const inputs = [...document.querySelectorAll("[data-key]")].filter((one) => !one.closest("[hidden]"));
  const timers = {};
  let rows, trained, query; // unit rows: under D, under D = I, of the query metric
  const cosines = new Float32Array(SIDE * SIDE); // of the heat map
  let scored = null;

  // ---- model ----
  const model = () => data.models.find(({ lambda }) => lambda === state.lambda);

  /* ln of S^a Σ^b, of each column. */
  function logarithms(a, b) {
    const [s, t] = model().axes;
    return s.slice(0, state.rank).map((value, l) => a * value + b * t[l]);
  }

  /* Factor of each column of the items. */
  function weights({ a, b, unique }) {
    if (unique) return model().unique.slice(0, state.rank);
    const logs = logarithms(data.own - a, -b), most = Math.max(...logs);
    return logs.map((value) => Math.exp(value - most));
  }

  /* Rows of norm 1; fill(r, row) writes each. A zero row stays zero; zeros fill the last tile. */
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

  /* Their cosines are correlations over users of predicted scores, which D does not change. */
  function byUsers() {
    const width = USERS.length / WIDTH, kept = logarithms(2 * data.own, 0).map(Math.exp);
    return unitRows(N, width, (i, row) => {
      row.fill(0);
      for (let l = 0; l < kept.length; l++) {
        const entry = V[i * WIDTH + l] * kept[l], start = l * width;
        for (let c = 0; c < width; c++) row[c] += entry * USERS[start + c];
      }
    });
  }

  /* Cosines of row i with all rows, into out. */
  function cosinesOf({ values, d, n }, i, out = new Float64Array(n)) {
    const own = values.subarray(i * d, i * d + d);
    for (let j = 0, at = 0; j < n; j++, at += d) {
      let sum = 0;
      for (let l = 0; l < d; l++) sum += own[l] * values[at + l];
      out[j] = sum;
    }
    return out;
  }

  /* All products of rows, in tiles of 4 x 4: each number read is used four times. */
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
  /* step(0) .. step(count - 1), then done(): at once without a pause, else after it in slices
     between which the page answers. The next run of that name ends this one. */
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
    // rounding lets a cosine exceed 1 by 1e-6; the level stays 0 to 255
    paint(byId("map"), SIDE, (i) => (cosines[i] * 127.5 + 128) | 0, data.boundaries,
      Math.floor(state.item / data.stride));
  }

  /* AUC, MAP@R and accuracy by rows. tally.add(i, cosines of row i); rows may come in any order.
     A key has a cosine in its upper 21 bits, the nearest first, and an item's place in the lower 11. */
  function tally({ values, n, d }, given) {
    const labels = Int32Array.from(given), sizes = [], zero = new Uint8Array(n);
    const labelled = Int32Array.from(labels.keys()).filter((i) => labels[i] >= 0);
    for (const i of labelled) {
      sizes[labels[i]] = (sizes[labels[i]] || 0) + 1;
      zero[i] = values.subarray(i * d, i * d + d).some((value) => value !== 0) ? 0 : 1;
    }
    const voters = Math.min(NEIGHBOURS, labelled.length - 1);
    const same = new Uint32Array(BINS), other = new Uint32Array(BINS);
    const keys = new Uint32Array(n), some = new Uint32Array(n), counts = new Uint32Array(1024);
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
        const far = ((1.000002 - line[j]) * 1048573) | 0; // never negative, below 2^21
        if (j > i && zero[j] === 0) (labels[j] === own ? same : other)[far >>> 7]++;
        keys[count++] = (far << 11) | j;
        counts[far >>> 11]++;
      }
      if (R < 1) return;
      queries++;
      const found = firstKeys(count, Math.max(R, voters));
      let hits = 0, sum = 0;
      for (let rank = 0; rank < R; rank++)
        if (labels[found[rank] & 2047] === own) sum += ++hits / (rank + 1);
      precisions += sum / R;
      right += voted(found) === own ? 1 : 0;
    }

    /* The first keys in their order, at least so many: whole bins are sorted. */
    function firstKeys(count, least) {
      let bin = 0, seen = 0, kept = 0;
      while (bin < 1023 && (seen += counts[bin]) < least) bin++;
      for (let t = 0; t < count; t++) if (keys[t] >>> 22 <= bin) some[kept++] = keys[t];
      return some.subarray(0, kept).sort();
    }

    /* The most frequent label of the nearest; of equally frequent ones the nearest. */
    function voted(found) {
      const nearby = Array.from(found.subarray(0, voters), (key) => labels[key & 2047]);
      votes.fill(0);
      for (const label of nearby) votes[label]++;
      return nearby.reduce((best, label) => (votes[label] > votes[best] ? label : best));
    }

    const result = () =>
      ({ auc: aucOf(same, other), map: precisions / queries, accuracy: right / queries });
    return { labelled, add, result };
  }

  /* AUC of pairs of one label and of two, counted by distance. */
  function aucOf(same, other) {
    let below = 0, wins = 0, nSame = 0;
    for (let bin = same.length - 1; bin >= 0; bin--) {
      wins += same[bin] * (below + other[bin] / 2);
      below += other[bin];
      nSame += same[bin];
    }
    return wins / (nSame * below);
  }

  /* Scores of the present D: within this frame, or after a pause. */
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

  /* The items with the largest values, as [item, value]; equal ones by lower number. */
  function largest(values, n, except = -1) {
    return Array.from(values, (value, i) => [i, value]).filter(([i]) => i !== except)
      .sort((one, two) => two[1] - one[1] || GIVEN[one[0]] - GIVEN[two[0]]).slice(0, n);
  }

  const nearest = (of, i) => largest(cosinesOf(of, i), NEIGHBOURS, i);

  /* What D does not move, computed from the factors under D: the loss, and predicted scores. */
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
  /* AUC of the sample under each D of a grid; without labels the share of neighbours under D = I. */
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
    byId("background").textContent = `Background: ${data.background} among ${SAMPLE.length} items, `
      + `${low.toFixed(2)} (dark) to ${high.toFixed(2)} (bright).`;
    byId("pad").dataset.ready = "true";
  }

  // ---- page ----
  const HALVES = { 0.5: "1/2", "-0.5": "-1/2" };
  const power = (base, x) =>
    (x === 0 ? "" : x === 1 ? base : `${base}^${HALVES[x] ?? +x.toFixed(2)}`);
  const formula = () => [power(data.symbols[0], state.a), power(data.symbols[1], state.b)]
    .filter(Boolean).join(" ") || "I";
  /* Shows a text in which each exponent, as in S^1/2, is raised; page.py does so for other texts. */
  const typeset = (id, text) => byId(id).replaceChildren(...text.split(/\^(-?[\d./]*\d)/)
    .map((part, place) => (place % 2 ? make("sup", {}, part) : part)));
  const isAt = ({ a, b, unique }) =>
    (unique ? state.unique : !state.unique && state.a === a && state.b === b);

  function showScores(found) {
    scored = found;
    for (const block of document.querySelectorAll("[data-score]")) {
      const value = found?.[block.dataset.score];
      block.querySelector("dd").textContent = found ? three(value) : "…";
      if (found) block.querySelector("meter").value = value || 0;
    }
  }

  /* Whether the neighbour of that rank survives every rescaling of the condition. */
  function certificate(rank) {
    const place = state.item * NEIGHBOURS + rank;
    const low = CERTIFIED[place], high = ATTACKED[place];
    const [sign, meaning, kind] = low > state.condition ? ["✓", "certified", "certified"]
      : high <= state.condition ? ["✗", "out", "lost"] : ["?", "open", "open"];
    const label = `${meaning}; smallest κ found that removes it: ${three(high)}`;
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

  /* Where a D is on the pad, whose units are hundredths of an exponent. */
  function padPlace({ a, b, unique }) {
    const [x, y] = unique ? model().places[state.rank] : [a, b];
    return `translate(${100 * x}px, ${-100 * y}px)`;
  }

  /* All that depends on λ and the rank. */
  function settle() {
    trained = rescaled(weights({ a: 0, b: 0 }));
    query = USERS && byUsers();
    if (model().places) byId("eq2").style.transform = padPlace({ unique: true });
    mapExponents();
  }

  /* All that depends on D. */
  function refresh() {
    rows = rescaled(weights(state));
    drawMap();
    score();
    showNeighbours();
    showInvariants();
    const logs = logarithms(state.a, state.b);
    const name = state.unique ? "Eq. 2: unique, no D is free" : `D = ${formula()}`;
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

  /* The state keeps to the limits and options of the inputs, which show it in their steps. */
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

  /* Changes the state, and redraws once a frame. */
  function change(changes) {
    Object.assign(state, changes);
    if ("rank" in changes || "lambda" in changes) settle();
    if (!timers.frame) timers.frame = requestAnimationFrame(() => {
      timers.frame = 0;
      refresh();
    });
  }

  /* A reader's own D; it ends the replay. */
  function move(a, b) {
    const limited = (value) => Math.max(-1, Math.min(1, Math.round(value * 100) / 100));
    play(-1);
    change({ a: limited(a), b: data.symbols[1] ? limited(b) : 0, unique: false });
  }

  const go = ({ a = state.a, b = state.b, unique = false }) => change({ a, b, unique });

  let stage = -1; // of the replay, by number of the named D; -1 without
  /* Walks through the named D from that stage, and rests on the sentence of each. */
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

  /* By name, number, or part of a name. */
  function search() {
    const wanted = byId("search").value.trim().toLowerCase();
    if (!wanted) return;
    const names = data.names.map((name) => name.toLowerCase());
    const found = [names.indexOf(wanted), GIVEN.indexOf(Number(wanted)),
      names.findIndex((name) => name.includes(wanted))].find((place) => place >= 0);
    byId("search-note").textContent = found === undefined ? "no such item on this page" : "";
    if (found !== undefined) choose(found);
  }

  function listen() {
    const pad = byId("pad");
    const drag = ({ clientX, clientY }) => {
      const { left, top, width, height } = pad.getBoundingClientRect();
      const reach = pad.viewBox.baseVal.width / 100;
      move(reach * ((clientX - left) / width - 0.5), -reach * ((clientY - top) / height - 0.5));
    };
    pad.addEventListener("pointerdown", (event) => {
      if (event.target.closest("[data-named]")) return; // a click chooses it
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
  // Python writes 1e-05 where JavaScript writes 0.00001
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
