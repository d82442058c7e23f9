/* Functions that the scripts of all pages share: reading of the data, HTML elements, colours and
   heat maps.

   The only JSON block of the page contains the data. No text of the data becomes markup, because
   the scripts create elements and set their texts. The script of a page follows this script, and
   takes these functions from window.fastcos. */
"use strict";
window.fastcos = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const three = (value) => (Number.isFinite(value) ? value.toFixed(3) : "-");
  // Cosines are drawn in the reversed colour map RdBu of ColorBrewer, and the exponent map in
  // cividis. Readers who cannot tell red from green can read both colour maps.
  const DIVERGING = scale(["053061", "2166ac", "4393c3", "92c5de", "d1e5f0", "f7f7f7", "fddbc7",
    "f4a582", "d6604d", "b2182b", "67001f"]);
  const SEQUENTIAL = scale(["00224e", "35456c", "666970", "948e77", "c8b866", "fee838"]);

  const images = new WeakMap(); // the image of each canvas, which paint() reuses

  /* Return the numbers of a base64 text. The text is little-endian, as all browsers are. */
  function numbers(text, Kind = Float32Array) {
    return new Kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
  }

  /* Return 256 pixels, whose colours are interpolated between these colours. */
  function scale(colours) {
    const parts = colours.map((c) => [0, 2, 4].map((i) => parseInt(c.slice(i, i + 2), 16)));
    return Uint32Array.from({ length: 256 }, (_, i) => {
      const place = (i / 255) * (parts.length - 1), k = Math.min(Math.floor(place), parts.length - 2);
      const [r, g, b] = [0, 1, 2].map((c) =>
        Math.round(parts[k][c] + (place - k) * (parts[k + 1][c] - parts[k][c])));
      return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // the four bytes of a pixel as one number
    });
  }

  /* Draw a square map, with lines where the label changes, and with a mark at both ends of a row. A
     small map is enlarged, so that the lines cover only a small part of it. */
  function paint(canvas, side, level, boundaries, row) {
    const times = Math.max(1, Math.floor(400 / side)), size = times * side;
    if (canvas.width !== size || !images.has(canvas)) {
      canvas.width = canvas.height = size;
      images.set(canvas, new ImageData(size, size));
    }
    const image = images.get(canvas), pixels = new Uint32Array(image.data.buffer);
    for (let y = 0, at = 0; y < size; y++) {
      const first = Math.floor(y / times) * side;
      if (times === 1) for (let x = 0; x < size; x++) pixels[at++] = DIVERGING[level(first + x)];
      else for (let x = 0; x < size; x++) pixels[at++] = DIVERGING[level(first + Math.floor(x / times))];
    }
    const context = canvas.getContext("2d"), middle = Math.floor((row + 0.5) * times);
    context.putImageData(image, 0, 0);
    const line = Math.ceil(size / 800);
    context.fillStyle = "#000";
    boundaries.forEach((share) => {
      context.fillRect(0, Math.round(share * size), size, line);
      context.fillRect(Math.round(share * size), 0, line, size);
    });
    /* Two arrows point at the row of the chosen item. */
    const half = size / 60;
    context.fillStyle = "#d55e00";
    for (const [edge, tip] of [[0, 2 * half], [size, size - 2 * half]]) {
      context.beginPath();
      context.moveTo(edge, middle - half);
      context.lineTo(tip, middle);
      context.lineTo(edge, middle + half);
      context.fill();
    }
  }

  /* Let a reader choose a row of a square map by a click into the row or by the arrow keys. */
  function chooseRows(canvas, side, now, choose) {
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      choose(Math.min(side - 1, Math.floor(((event.clientY - box.top) / box.height) * side)));
    });
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowUp: -1, ArrowDown: 1, PageUp: -50, PageDown: 50 }[event.key];
      if (!by) return;
      event.preventDefault();
      choose(Math.max(0, Math.min(side - 1, now() + by)));
    });
  }

  /* Return the name of an item, followed by its label if it has one. */
  function nameOf(i) {
    return data.labels && data.labels[i] >= 0
      ? `${data.names[i]} (${data.classes[data.labels[i]]})` : data.names[i];
  }

  /* Create an element with these attributes; texts among its children stay texts. */
  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  /* Fill the body of a table with neighbours, each an array [item, score]. action(item) returns the
     function that a click on the item's name calls, if any; mark(item, rank) returns one more
     cell. */
  function showList(id, list, action, mark) {
    byId(id).replaceChildren(...list.map(([item, score], rank) => {
      const act = action(item), name = make(act ? "button" : "span", { class: "name" }, nameOf(item));
      if (act) name.addEventListener("click", act);
      const cells = [String(rank + 1), name, three(score)].map((part) => make("td", {}, part));
      return make("tr", {}, ...cells, mark(item, rank));
    }));
  }

  return { data, byId, three, numbers, paint, chooseRows, nameOf, make, showList, SEQUENTIAL };
})();
