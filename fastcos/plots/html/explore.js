/* The page on which a reader moves D: fastcos reproduce (figure1.html), fastcos audit --explore.

   data      explore.py writes: rows (p, d) as base64 float32, labels, names, the logarithms of
             two diagonal matrices (axes), users, neighbours that do not move; parts.js reads it
   model     weights(): the factor of each column of the items under the present D
             units(): rows of norm 1, float32; every number of the page comes from them
   numbers   drawMap: item-item cosines, block means where there are too many; score: AUC, MAP@R
             and accuracy of the ten nearest, as fastcos.metrics define them; neighbours
   pad       mapExponents: its background, from a sample of the items; drawPad: points and names
   page      sliders, buttons, replay, address; update() redraws all that depends on D

   Items are V diag(weights). With a model of the paper V has the singular vectors, so that other
   ranks are fewer columns and other lambdas other weights. No text of the data becomes markup.
   Tests and the console reach the state through window.explore. */
"use strict";
(() => {
  const { data, byId, three, numbers, paint, chooseRows, nameOf, numberAt, make, button,
    neighbourRow, SEQUENTIAL } = window.fastcos;
  const PAPER = data.kind === "paper";
  const N = data.names.length, WIDTH = data.width, NEIGHBOURS = Math.min(10, N - 1);
  const V = numbers(data.rows), LABELS = data.labels, GIVEN = data.given;
  // radii of the trained neighbours, NEIGHBOURS an item; infinite for never
  const CERTIFIED = data.certified && numbers(data.certified, Float64Array);
  const ATTACKED = data.certified && numbers(data.attacked, Float64Array);
  // multiply-adds of one heat map: 1,000 x 1,000 cosines of 50 columns, 30 ms on a core of 2024
  const MAP_WORK = 25e6;
  // multiply-adds of scores that are computed within one frame; more of them wait for a pause
  const SCORE_WORK = 60e6;
  const BINS = 1 << 16; // of the AUC: its error is below 1e-4
  const MAP_ITEMS = 120, MAP_STEPS = 24; // exponent map: sampled items, steps of each exponent
  const SPAN = data.span; // exponents from -SPAN to SPAN
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  const state = { a: 0, b: 0, unique: false, rank: WIDTH, lambda: PAPER ? data.lambda : 0,
    item: data.item, condition: data.condition || 0 };
  let rows, cosines, side, scoring = 0, mapping = 0, replaying = 0, scored = null;

  // ---- model ----
  const shrinkage = (l, lambda) => {
    const square = data.sigma[l] ** 2;
    return square > 0 ? square / (square + lambda) : 0;
  };

  /* Lambda of Eq. 2 that has its knee where Eq. 1 has it. */
  const decay = () => data.decay * (data.lambda > 0 ? Math.sqrt(state.lambda / data.lambda) : 1);

  /* ln D of column l. */
  function logD(l, at) {
    const [s, t] = PAPER
      ? [Math.log(shrinkage(l, at.lambda)), Math.log(data.sigma[l])]
      : [data.axes[0][l], data.axes[1] ? data.axes[1][l] : 0];
    return at.a * s + at.b * t;
  }

  /* Factor of each column of the items; at least one is 1. */
  function weights(at = state) {
    const logs = Array.from({ length: PAPER ? at.rank : WIDTH }, (_, l) => {
      if (at.unique) return 0.5 * Math.log(Math.max(0, data.sigma[l] - decay()));
      const own = PAPER ? 0.5 * Math.log(shrinkage(l, at.lambda)) : 0;
      return own === -Infinity ? own : own - logD(l, at);
    });
    const most = Math.max(...logs);
    return logs.map((value) => Math.exp(value - most));
  }

  /* Rows of norm 1 with these columns; a zero row stays zero. */
  function units(factors, chosen = null) {
    const d = factors.length, n = chosen ? chosen.length : N, out = new Float32Array(n * d);
    const row = new Float64Array(d);
    for (let r = 0; r < n; r++) {
      const start = (chosen ? chosen[r] : r) * WIDTH;
      let square = 0;
      for (let l = 0; l < d; l++) {
        row[l] = V[start + l] * factors[l];
        square += row[l] * row[l];
      }
      const length = Math.sqrt(square);
      if (length > 0) for (let l = 0; l < d; l++) out[r * d + l] = row[l] / length;
    }
    return { values: out, d, n };
  }

  /* Cosines of row i with all rows, into out. */
  function cosinesOf(of, i, out) {
    const { values, d, n } = of, own = values.subarray(i * d, i * d + d);
    for (let j = 0, at = 0; j < n; j++, at += d) {
      let sum = 0;
      for (let l = 0; l < d; l++) sum += own[l] * values[at + l];
      out[j] = sum;
    }
    return out;
  }

  /* All products of rows, in tiles of 4 x 4: each number read is used four times. */
  function products(of, out = new Float32Array(of.n * of.n)) {
    const { values, d, n } = of, whole = n - (n % 4);
    for (let i = 0; i < whole; i += 4) {
      const a = i * d, b = a + d, c = b + d, e = c + d;
      for (let j = i; j < whole; j += 4) {
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
          out[x * n + y] = out[y * n + x] = tile[t];
        }
      }
    }
    for (let i = whole; i < n; i++) {
      const line = cosinesOf(of, i, new Float32Array(n));
      for (let j = 0; j < n; j++) out[i * n + j] = out[j * n + i] = line[j];
    }
    return out;
  }

  /* Means of runs of rows: the product of two is the mean cosine between the runs. */
  function blockMeans(of, blocks) {
    if (blocks === of.n) return of;
    const out = new Float32Array(blocks * of.d);
    for (let block = 0; block < blocks; block++) {
      const first = Math.floor((block * of.n) / blocks);
      const last = Math.floor(((block + 1) * of.n) / blocks);
      for (let i = first; i < last; i++)
        for (let l = 0; l < of.d; l++) out[block * of.d + l] += of.values[i * of.d + l] / (last - first);
    }
    return { values: out, d: of.d, n: blocks };
  }

  // ---- numbers ----
  function drawMap() {
    side = Math.min(N, Math.floor(Math.sqrt((2 * MAP_WORK) / rows.d)));
    // memory of the last map is used again: collecting 8 MB took longer than a frame
    const kept = cosines && cosines.length === side * side ? cosines : undefined;
    cosines = products(blockMeans(rows, side), kept);
    paint(byId("map"), side, (i) => Math.max(0, Math.min(255, (cosines[i] * 127.5 + 128) | 0)),
      data.boundaries, Math.floor((state.item * side) / N));
  }

  /* AUC, MAP@R and accuracy by rows. tally.add(i, cosines of row i); rows may come in any order.
     A key has a cosine in its upper 21 bits, the nearest first, and an item's place in the lower 11. */
  function tally(of, given) {
    const { n, d } = of, labels = Int32Array.from(given), sizes = [], zero = new Uint8Array(n);
    const labelled = Int32Array.from(labels.keys()).filter((i) => labels[i] >= 0);
    for (const i of labelled) {
      sizes[labels[i]] = (sizes[labels[i]] || 0) + 1;
      zero[i] = of.values.subarray(i * d, i * d + d).some((value) => value !== 0) ? 0 : 1;
    }
    const same = new Float64Array(BINS), other = new Float64Array(BINS);
    const keys = new Uint32Array(n), some = new Uint32Array(n), counts = new Uint32Array(1024);
    const votes = new Uint8Array(sizes.length);
    let precisions = 0, right = 0, queries = 0;

    function add(i, line) {
      const own = labels[i], R = sizes[own] - 1, nearest = Math.min(NEIGHBOURS, labelled.length - 1);
      if (zero[i]) return;
      let count = 0;
      counts.fill(0);
      for (let t = 0; t < labelled.length; t++) {
        const j = labelled[t];
        if (j === i) continue;
        const far = ((1 - Math.max(-1, Math.min(1, line[j]))) * 1048575) | 0;
        if (j > i && zero[j] === 0) (labels[j] === own ? same : other)[far >>> 5]++;
        keys[count++] = (far << 11) | j;
        counts[far >>> 11]++;
      }
      if (R < 1) return;
      queries++;
      let bin = 0, seen = 0, kept = 0;
      while (bin < 1023 && (seen += counts[bin]) < Math.max(R, nearest)) bin++;
      for (let t = 0; t < count; t++) if (keys[t] >>> 22 <= bin) some[kept++] = keys[t];
      const sorted = some.subarray(0, kept).sort();
      let hits = 0, sum = 0, chosen = labels[sorted[0] & 2047];
      for (let rank = 0; rank < R; rank++)
        if (labels[sorted[rank] & 2047] === own) sum += ++hits / (rank + 1);
      precisions += sum / R;
      votes.fill(0);
      for (let rank = 0; rank < nearest; rank++) votes[labels[sorted[rank] & 2047]]++;
      for (let rank = 0; rank < nearest; rank++) {
        const label = labels[sorted[rank] & 2047];
        if (votes[label] > votes[chosen]) chosen = label;
      }
      right += chosen === own ? 1 : 0;
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

  /* Scores of the present D: within this frame, or after a pause in slices of 12 ms. */
  function score() {
    const turn = ++scoring;
    if (!LABELS) return;
    const of = rows, counted = tally(of, LABELS), line = new Float32Array(N);
    const matrix = side === N ? cosines : null, small = N * N * of.d <= SCORE_WORK;
    let next = 0;
    const slice = () => {
      if (turn !== scoring) return; // a later D is being scored
      const until = small ? Infinity : performance.now() + 12;
      while (next < counted.labelled.length && performance.now() < until) {
        const i = counted.labelled[next++];
        counted.add(i, matrix ? matrix.subarray(i * N, i * N + N) : cosinesOf(of, i, line));
      }
      if (next < counted.labelled.length) setTimeout(slice);
      else showScores(counted.result());
    };
    if (small) slice();
    else {
      showScores(null);
      setTimeout(slice, 120);
    }
  }

  /* The items with the largest values, as [item, value]; equal ones by lower number. */
  function largest(values, n, except = -1) {
    return Array.from(values, (value, i) => [i, value]).filter(([i]) => i !== except)
      .sort((one, two) => two[1] - one[1] || GIVEN[one[0]] - GIVEN[two[0]]).slice(0, n);
  }

  function neighbours(i, at) {
    return largest(cosinesOf(at === state ? rows : units(weights(at)), i, new Float64Array(N)),
      NEIGHBOURS, i);
  }

  /* By the query metric: correlation over users of predicted scores, which D does not change. */
  function queryNeighbours(i) {
    if (!PAPER) {
      if (!data.query) return null;
      return data.query.lists[i].map((j, rank) => [j, data.query.scores[i * NEIGHBOURS + rank]]);
    }
    const s = Array.from({ length: state.rank }, (_, l) => shrinkage(l, state.lambda));
    // by the covariance of the users X V: squares of the singular values / n, less the means'
    const product = (j, h) => {
      let sum = 0, meanOfJ = 0, meanOfH = 0;
      for (let l = 0; l < s.length; l++) {
        const x = V[j * WIDTH + l] * s[l], y = V[h * WIDTH + l] * s[l];
        sum += (x * y * data.sigma[l] ** 2) / data.users;
        meanOfJ += x * data.mean[l];
        meanOfH += y * data.mean[l];
      }
      return sum - meanOfJ * meanOfH;
    };
    const own = product(i, i);
    return largest(Float64Array.from({ length: N },
      (_, j) => product(i, j) / Math.sqrt(own * product(j, j)) || 0), NEIGHBOURS, i);
  }

  /* What D does not move, computed from the factors under D: the loss, and predicted scores. */
  function invariants() {
    if (state.unique) {
      const kept = data.sigma.slice(0, state.rank).filter((sigma) => sigma > decay());
      return { loss: data.total + kept.reduce(
        (sum, sigma) => sum + 2 * decay() * sigma - decay() ** 2 - sigma ** 2, 0) };
    }
    let loss = data.total || 0;
    const d = PAPER ? state.rank : WIDTH;
    const left = new Float64Array(d), right = new Float64Array(d);
    for (let l = 0; l < d; l++) {
      const D = Math.exp(logD(l, state)), root = PAPER ? Math.sqrt(shrinkage(l, state.lambda)) : 1;
      left[l] = root ? root * D : 0;
      right[l] = root ? root / D : 0;
      if (!PAPER) continue;
      const square = data.sigma[l] ** 2, share = left[l] * right[l];
      loss += square * (1 - share) ** 2 + state.lambda * share ** 2 - square;
    }
    const users = (data.examples || []).map((user) => largest(Array.from({ length: N }, (_, i) => {
      let sum = 0;
      for (let l = 0; l < d; l++) sum += user[l] * left[l] * (V[i * WIDTH + l] * right[l]);
      return sum;
    }), 3));
    return { loss, users };
  }

  // ---- exponent map ----
  const chosen = spread(LABELS ? [...LABELS.keys()].filter((i) => LABELS[i] >= 0) : [...data.names.keys()]);
  let background = null;

  function spread(items) {
    const n = Math.min(MAP_ITEMS, items.length);
    return Array.from({ length: n }, (_, t) => items[Math.floor(((t + 0.5) * items.length) / n)]);
  }

  /* AUC of the sampled items under a D; without labels the overlap of their lists with D = I. */
  function sampled(at, reference) {
    const of = units(weights(at), chosen), found = products(of), n = of.n;
    if (!LABELS) {
      const shared = nearestLists(found, n).map((list, i) =>
        list.filter((j) => reference[i].includes(j)).length / list.length);
      return shared.reduce((sum, share) => sum + share, 0) / n;
    }
    const same = new Float64Array(512), other = new Float64Array(512);
    for (let i = 0; i < n; i++)
      for (let j = i + 1; j < n; j++)
        (LABELS[chosen[i]] === LABELS[chosen[j]] ? same : other)[
          Math.max(0, Math.min(511, ((1 - found[i * n + j]) * 256) | 0))]++;
    return aucOf(same, other);
  }

  const nearestLists = (found, n) => Array.from({ length: n }, (_, i) =>
    largest(found.subarray(i * n, i * n + n), NEIGHBOURS, i).map(([j]) => j));

  /* Computes the background in slices of 10 ms; it depends on rank and lambda alone. */
  function mapExponents() {
    const turn = ++mapping, size = MAP_STEPS + 1, values = [], base = { ...state, unique: false };
    const reference = LABELS ? null
      : nearestLists(products(units(weights({ ...base, a: 0, b: 0 }), chosen)), chosen.length);
    const slice = () => {
      if (turn !== mapping) return;
      for (const until = performance.now() + 10; values.length < size * size && performance.now() < until;) {
        const a = SPAN * ((2 * (values.length % size)) / MAP_STEPS - 1);
        const b = SPAN * (1 - (2 * Math.floor(values.length / size)) / MAP_STEPS);
        values.push(sampled({ ...base, a, b }, reference));
      }
      if (values.length < size * size) setTimeout(slice);
      else showExponents(values, size);
    };
    delete byId("pad").dataset.ready;
    setTimeout(slice, 50);
  }

  function showExponents(values, size) {
    const low = Math.min(...values), high = Math.max(...values), image = new ImageData(size, size);
    new Uint32Array(image.data.buffer).set(
      values.map((value) => SEQUENTIAL[Math.round((255 * (value - low)) / (high - low)) || 0]));
    background = new OffscreenCanvas(size, size);
    background.getContext("2d").putImageData(image, 0, 0);
    byId("background").textContent = `Background: ${data.background} among ${chosen.length} items, `
      + `${low.toFixed(2)} (dark) to ${high.toFixed(2)} (bright).`;
    byId("pad").dataset.ready = "true";
    drawPad();
  }

  /* The D of the pad whose items are nearest to those of Eq. 2, by the ratios of the columns. */
  function nearestToUnique() {
    const goal = weights({ ...state, unique: true }), kept = [...goal.keys()].filter((l) => goal[l] > 0);
    let best = [Infinity, 0, 0];
    for (let a = -SPAN; a <= SPAN; a += SPAN / 20)
      for (let b = -SPAN; b <= SPAN; b += SPAN / 20) {
        const own = weights({ ...state, unique: false, a, b });
        const gaps = kept.map((l) => Math.log(goal[l] / own[l]));
        const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length;
        const distance = gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0);
        if (distance < best[0]) best = [distance, a, b];
      }
    return best.slice(1);
  }

  // ---- page ----
  const power = (base, x) => (x === 0 ? "" : x === 1 ? base : `${base}^${+x.toFixed(2)}`);
  const formula = () => [power(data.symbols[0], state.a), power(data.symbols[1], state.b)]
    .filter(Boolean).join(" ") || "I";

  function showScores(found) {
    scored = found;
    for (const [key, id] of [["auc", "auc"], ["map", "map-value"], ["accuracy", "accuracy"]]) {
      byId(id).textContent = found ? three(found[key]) : "…";
      if (found) byId(`${id}-bar`).value = found[key] || 0;
    }
  }

  function showList(id, list, mark = null) {
    byId(id).replaceChildren(...(list || []).map(([j, cosine], rank) =>
      neighbourRow(rank + 1, button(nameOf(j), "name", () => choose(j)), three(cosine),
        ...(mark ? [mark(rank)] : []))));
  }

  /* Whether the neighbour of that rank survives every rescaling of the condition. */
  function certificate(rank) {
    const place = state.item * NEIGHBOURS + rank;
    const low = CERTIFIED[place], high = ATTACKED[place];
    const [sign, meaning, kind] = low > state.condition ? ["✓", "certified", "certified"]
      : high <= state.condition ? ["✗", "out", "lost"] : ["?", "open", "open"];
    const cell = make("td", `${sign} ${Number.isFinite(high) ? high.toFixed(2) : "-"}`, kind);
    cell.setAttribute("aria-label", `${meaning}; smallest κ found that removes it: ${three(high)}`);
    return cell;
  }

  function showNeighbours() {
    const i = state.item;
    byId("item-name").textContent = nameOf(i);
    showList("under-d", neighbours(i, state));
    showList("under-i", neighbours(i, { ...state, a: 0, b: 0, unique: false }),
      data.certified ? certificate : null);
    const list = queryNeighbours(i);
    byId("query-block").hidden = !list;
    showList("under-q", list);
  }

  function showInvariants() {
    const { loss, users } = invariants();
    if (PAPER) byId("loss").textContent = loss.toLocaleString("en", { maximumFractionDigits: 1 });
    byId("users").replaceChildren(...(users || []).map((list, u) => make("li",
      `${data.exampleNames[u]}: ${list.map(([i, value]) => `${data.names[i]} ${three(value)}`).join(", ")}`)));
    byId("users-block").hidden = !(users && users.length);
    byId("fixed-note").textContent = state.unique
      ? "Eq. 2 is another model: its loss is that of Eq. 2, and no D is free." : data.fixedNote;
  }

  function drawPad() {
    const canvas = byId("pad"), size = Math.round(canvas.clientWidth * (devicePixelRatio || 1));
    if (!size) return;
    if (canvas.width !== size) canvas.width = canvas.height = size;
    const context = canvas.getContext("2d");
    context.setTransform(size / PAD, 0, 0, size / PAD, 0, 0);
    context.fillStyle = "#6b6d70";
    context.fillRect(0, 0, PAD, PAD);
    if (background) context.drawImage(background, 0, 0, PAD, PAD);
    context.font = "600 11.5px system-ui, sans-serif";
    context.lineJoin = "round";
    context.textAlign = "center";
    for (const known of data.named) {
      const [x, y] = padPlace(known);
      context.beginPath();
      if (!known.unique) context.arc(x, y, 4.5, 0, 7);
      else for (const [u, v] of [[0, -7], [7, 0], [0, 7], [-7, 0]]) context.lineTo(x + u, y + v);
      context.closePath();
      context.fillStyle = "#fff";
      context.strokeStyle = "#000";
      context.lineWidth = 1.5;
      context.fill();
      context.stroke();
      // the name above its point, or above the ring around it, inside the pad
      const half = context.measureText(known.name).width / 2 + 3;
      const at = Math.max(half, Math.min(PAD - half, x)), up = y - (isAt(known) ? 16 : 10);
      context.lineWidth = 3;
      context.strokeStyle = "#000c";
      context.strokeText(known.name, at, up);
      context.fillText(known.name, at, up);
    }
    for (const [width, colour] of [[5, "#000"], [2.5, "#ff9e2c"]]) {
      context.beginPath();
      context.arc(...padPlace(state), 10, 0, 7);
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.stroke();
    }
  }

  let uniqueAt = [0, 0];
  const PAD = 320, EDGE = 14; // width of the pad and of its margins, in units of its drawing
  const padPlace = ({ a, b, unique }) => (unique ? uniqueAt : [a, b]).map((value, axis) =>
    EDGE + ((axis ? 1 - value / SPAN : 1 + value / SPAN) / 2) * (PAD - 2 * EDGE));

  let pending = false;
  /* All that depends on D, at most once a frame. */
  function update() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      refresh();
    });
  }

  function refresh() {
    const factors = weights();
    rows = units(factors);
    drawMap();
    score();
    showNeighbours();
    showInvariants();
    drawPad();
    for (const key of ["a", "b"]) {
      byId(key).value = state[key];
      byId(`${key}-value`).textContent = state[key].toFixed(2);
    }
    byId("d").textContent = state.unique ? "Eq. 2: unique, no D is free" : `D = ${formula()}`;
    const logs = Array.from(factors.keys(), (l) => logD(l, state)).filter(Number.isFinite);
    byId("kappa").textContent = state.unique ? "-"
      : Math.exp(Math.max(...logs) - Math.min(...logs)).toPrecision(3);
    data.named.forEach((known, number) => byId(`named-${number}`)
      .setAttribute("aria-pressed", String(isAt(known))));
    if (byId("replay").textContent === data.replay)
      byId("sentence").textContent = data.named.find(isAt)?.sentence || "";
    byId("map").setAttribute("aria-label", `Heat map of item-item cosines under ${byId("d").textContent}`
      + (scored ? `; AUC ${three(scored.auc)}` : ""));
    clearTimeout(writing);
    writing = setTimeout(() => history.replaceState(null, "", address()), 250);
  }
  let writing = 0;

  const isAt = ({ a, b, unique }) => (unique ? state.unique : !state.unique && state.a === a && state.b === b);

  function address() {
    const parts = { a: +state.a.toFixed(3), b: +state.b.toFixed(3), item: GIVEN[state.item] };
    if (state.unique) parts.eq = 2;
    if (PAPER) Object.assign(parts, { k: state.rank, lambda: state.lambda });
    else if (data.certified) parts.condition = state.condition;
    return `#${new URLSearchParams(parts)}`;
  }

  function readAddress() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const number = numberAt.bind(null, parts);
    state.a = number("a", -SPAN, SPAN, state.a);
    state.b = data.axes && !data.axes[1] ? 0 : number("b", -SPAN, SPAN, state.b);
    state.unique = PAPER && parts.get("eq") === "2";
    const item = GIVEN.indexOf(number("item", 0, 1e12, GIVEN[state.item]));
    state.item = Math.max(0, item);
    if (PAPER) {
      state.rank = data.ranks.find((rank) => rank === number("k", 1, WIDTH, 0)) || state.rank;
      state.lambda = data.lambdas.find((one) => one === number("lambda", 0, 1e15, -1)) ?? state.lambda;
      byId("rank").value = state.rank;
      byId("lambda").value = state.lambda;
    } else if (data.certified) setCondition(number("condition", 1, data.most, state.condition));
  }

  function setCondition(value) {
    state.condition = value;
    byId("condition").value = value;
    byId("condition-value").textContent = value.toFixed(2);
  }

  function move(a, b) {
    const clamp = (value) => Math.max(-SPAN, Math.min(SPAN, Math.round(value * 100) / 100));
    Object.assign(state, { a: clamp(a), b: data.axes && !data.axes[1] ? 0 : clamp(b), unique: false });
    update();
  }

  function choose(i) {
    state.item = i;
    byId("search").value = "";
    update();
  }

  function search(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return;
    const names = data.names.map((name) => name.toLowerCase());
    let found = names.indexOf(wanted);
    if (found < 0) found = GIVEN.indexOf(Number(wanted));
    if (found < 0) found = names.findIndex((name) => name.includes(wanted));
    byId("search-note").textContent = found < 0 ? "no such item on this page" : "";
    if (found >= 0) choose(found);
  }

  /* Walks through the named D: glides for a second, then rests on the sentence. */
  function replay() {
    const turn = ++replaying, order = data.named.filter(({ sentence }) => sentence);
    byId("replay").textContent = "Stop";
    let step = -1;
    const next = () => {
      if (turn !== replaying) return;
      if (++step === order.length) {
        stopReplay();
        return;
      }
      const goal = order[step], from = { a: state.a, b: state.b }, started = performance.now();
      byId("sentence").textContent = `${step + 1} of ${order.length}. ${goal.sentence}`;
      const glide = () => {
        if (turn !== replaying) return;
        const part = calm.matches || goal.unique ? 1 : Math.min(1, (performance.now() - started) / 900);
        if (part < 1) {
          move(from.a + part * (goal.a - from.a), from.b + part * (goal.b - from.b));
          setTimeout(glide, 30);
        } else {
          go(goal);
          setTimeout(next, data.rest);
        }
      };
      glide();
    };
    next();
  }

  function stopReplay() {
    replaying++;
    byId("replay").textContent = data.replay;
  }

  function go({ a, b, unique }) {
    if (unique) state.unique = true;
    else move(a, b);
    update();
  }

  function listen() {
    const pad = byId("pad");
    const place = (event) => {
      const box = pad.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top].map((px) => (px * PAD) / box.width);
    };
    const drag = (event) => {
      const [a, b] = place(event).map((at) => SPAN * ((2 * (at - EDGE)) / (PAD - 2 * EDGE) - 1));
      stopReplay();
      move(a, -b);
    };
    pad.addEventListener("pointerdown", (event) => {
      pad.setPointerCapture(event.pointerId);
      const [x, y] = place(event);
      const near = data.named.find((known) => {
        const [u, v] = padPlace(known);
        return Math.hypot(u - x, v - y) < 9;
      });
      if (!near) drag(event);
      else {
        stopReplay();
        go(near);
      }
    });
    pad.addEventListener("pointermove", (event) => { if (event.buttons) drag(event); });
    pad.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (!by) return;
      event.preventDefault();
      const step = event.shiftKey ? 0.25 : 0.05;
      stopReplay();
      move(state.a + by[0] * step, state.b + by[1] * step);
    });
    for (const key of ["a", "b"])
      byId(key).addEventListener("input", (event) => {
        stopReplay();
        const value = parseFloat(event.target.value);
        move(key === "a" ? value : state.a, key === "b" ? value : state.b);
      });
    chooseRows(byId("map"), N, () => state.item, choose);
    byId("find").addEventListener("submit", (event) => {
      event.preventDefault();
      search(byId("search").value);
    });
    byId("search").addEventListener("change", (event) => search(event.target.value));
    byId("replay").addEventListener("click", () => {
      if (byId("replay").textContent === "Stop") stopReplay();
      else replay();
    });
    if (PAPER)
      for (const key of ["rank", "lambda"])
        byId(key).addEventListener("change", (event) => {
          state[key] = parseFloat(event.target.value);
          uniqueAt = nearestToUnique();
          mapExponents();
          update();
        });
    else if (data.certified)
      byId("condition").addEventListener("input", (event) => {
        setCondition(parseFloat(event.target.value));
        update();
      });
    addEventListener("hashchange", () => {
      readAddress();
      update();
    });
    addEventListener("resize", drawPad);
  }

  /* Buttons, options and texts that come from the data. */
  function build() {
    byId("named").append(...data.named.map((known, number) => {
      const made = button(known.name, "", () => {
        stopReplay();
        go(known);
      });
      made.id = `named-${number}`;
      made.title = known.formula;
      return made;
    }));
    byId("names").append(...data.names.map((name) => {
      const option = make("option");
      option.value = name;
      return option;
    }));
    byId("replay").textContent = data.replay;
    byId("scores-block").hidden = !LABELS;
    byId("b-row").hidden = Boolean(data.axes && !data.axes[1]);
    byId("loss-block").hidden = byId("paper-controls").hidden = !PAPER;
    byId("condition-row").hidden = byId("certified-head").hidden = !data.certified;
    if (PAPER)
      for (const [key, values] of [["rank", data.ranks], ["lambda", data.lambdas]])
        byId(key).append(...values.map((value) => new Option(value.toLocaleString("en"), value)));
    else if (data.certified) {
      byId("condition").max = data.most;
      setCondition(data.condition);
    }
  }

  build();
  readAddress();
  if (PAPER) uniqueAt = nearestToUnique();
  listen();
  refresh();
  mapExponents();
  window.explore = { state, move, choose, refresh,
    cosines: (i) => Array.from(cosinesOf(rows, i, new Float64Array(N))),
    neighbours: (i) => neighbours(i, state), query: queryNeighbours, scores: () => scored,
    certified: () => CERTIFIED.map((radius) => radius > state.condition) };
})();
