// Lines, bars and points.
"use strict";

// One shape for each colour, so that products differ without it, too. Paths around the origin.
const SHAPES = [
  (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`,
  (r) => `M${-r},${-r / 3}h${2 * r}v${r / 1.5}h${-2 * r}z`,
  (r) => `M${-r * 0.9},${-r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}z`,
  (r) => `M0,${-r * 1.1}L${r * 1.1},${r * 0.9}H${-r * 1.1}z`,
  (r) => `M0,${-r * 1.25}L${r * 1.25},0L0,${r * 1.25}L${-r * 1.25},0z`,
  (r) => `M0,${r * 1.1}L${r * 1.1},${-r * 0.9}H${-r * 1.1}z`,
  (r) => `M${-r},${-r / 3}h${r * 0.66}v${-r * 0.66}h${r * 0.68}v${r * 0.66}h${r * 0.66}v${r * 0.66}h${-r * 0.66}v${r * 0.66}h${-r * 0.68}v${-r * 0.66}h${-r * 0.66}z`,
  (r) => `M${-r / 3},${-r}h${r / 1.5}v${2 * r}h${-r / 1.5}z`,
];
const shape = (look, radius) => SHAPES[look.colour % SHAPES.length](look.colour ? radius : radius * 1.15);
const looks = (look) => `k${look.colour}${look.variant ? " variant" : ""}${look.colour === 0 ? " ours" : ""}`;

// Equipoise last: on top.
const inOrder = (chart) => chart.series.filter((one) => !one.hidden && one.xs.length).sort((a, b) => (b.product.colour !== 0) - (a.product.colour !== 0));

// The way of a line; a point that would fall on the last one is left out.
function way(series, place, isStep) {
  let line = "", x0 = NaN, y0 = NaN;
  for (let n = 0; n < series.xs.length; n++) {
    const x = place.x(series.xs[n]), y = place.y(series.ys[n]);
    if (!finite(x) || !finite(y)) { x0 = NaN; continue; }
    if (Math.abs(x - x0) < 0.25 && Math.abs(y - y0) < 0.25) continue;
    const [px, py] = [x.toFixed(1), y.toFixed(1)];
    line += Number.isNaN(x0) ? `M${px},${py}` : isStep ? `H${px}V${py}` : `L${px},${py}`;
    [x0, y0] = [x, y];
  }
  return line;
}

function drawLines(root, chart, place) {
  for (const series of inOrder(chart)) {
    root.append(svg("path", { class: `line data ${looks(series.product)}`, d: way(series, place, chart.kind === "step") }));
    if (series.xs.length > 30) continue;
    for (let n = 0; n < series.xs.length; n++) drawPoint(root, series.product, place.x(series.xs[n]), place.y(series.ys[n]), 3.4);
  }
}

function drawPoint(root, look, x, y, radius) {
  if (finite(x) && finite(y)) root.append(svg("path", { class: `point data ${looks(look)}`, d: shape(look, radius), transform: `translate(${x.toFixed(1)},${y.toFixed(1)})` }));
}

// Points on a canvas, which draws some ten thousand of them in a moment. Keeps where they are for pointing at them.
function drawPoints(canvas, chart, place, colourOf) {
  const { box, wide, tall } = place;
  const fine = Math.min(window.devicePixelRatio || 1, 3);
  canvas.width = Math.round(box.width * fine);
  canvas.height = Math.round(box.height * fine);
  canvas.style.width = `${box.width}px`;
  canvas.style.height = `${box.height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(fine, fine);
  pen.beginPath();
  pen.rect(box.left - 3, box.top - 3, wide + 6, tall + 4);
  pen.clip();
  const shown = inOrder(chart);
  const total = shown.reduce((sum, series) => sum + series.xs.length, 0);
  const isLonely = crowds(shown, place, box.width, box.height);
  for (const series of shown) {
    pen.fillStyle = colourOf(series.product);
    const path = new Path2D(shape(series.product, total > 4000 ? 2.2 : 2.8));
    for (let n = 0; n < series.px.length; n++) {
      const x = series.px[n], y = series.py[n];
      if (!finite(x) || !finite(y)) continue;
      // In a crowd a small square; alone it must be seen, for what is rare is what one looks for.
      if (total > 4000 && !isLonely(x, y)) {
        pen.globalAlpha = 0.55;
        pen.fillRect(x - 1.1, y - 1.1, 2.2, 2.2);
        continue;
      }
      pen.globalAlpha = 0.85;
      pen.translate(x, y);
      pen.fill(path);
      pen.translate(-x, -y);
    }
  }
}

// Computes where all points are, and tells of each whether few are near.
function crowds(shown, place, width, height) {
  const size = 8, columns = Math.ceil(width / size) + 1;
  const counts = new Uint32Array(columns * (Math.ceil(height / size) + 1));
  const cell = (x, y) => Math.floor(y / size) * columns + Math.floor(x / size);
  for (const series of shown) {
    series.px = new Float32Array(series.xs.length);
    series.py = new Float32Array(series.xs.length);
    for (let n = 0; n < series.px.length; n++) {
      const x = (series.px[n] = place.x(series.xs[n])), y = (series.py[n] = place.y(series.ys[n]));
      counts[cell(x, y)] += 1;
    }
  }
  return (x, y) => counts[cell(x, y)] <= 8;
}

const valueAt = (series, category) => {
  for (let n = 0; n < series.xs.length; n++) if (Math.round(series.xs[n]) === category) return series.ys[n];
  return NaN;
};

const categoriesOf = (chart) => {
  if (chart.x.categories.length) return chart.x.categories;
  const highest = bounds(chart.series.flatMap((series) => series.extent).filter(finite))[1];
  return Array.from({ length: Math.round(highest) + 1 }, (_, n) => String(n));
};

// Bars stand when they are wide enough to be told apart, else they lie, with names and figures beside them.
function drawBars(root, chart, width, values) {
  const shown = chart.series.filter((series) => !series.hidden);
  const categories = categoriesOf(chart);
  const slot = (width - 70) / categories.length;
  const thick = Math.min(46, (slot * 0.84) / Math.max(shown.length, 1));
  return thick < 15 ? lyingBars(root, chart, width, { shown, categories, values }) : standingBars(root, chart, width, { shown, categories, values, thick });
}

function standingBars(root, chart, width, { shown, categories, values, thick }) {
  // The figures upon the bars lie when all have room, else all stand.
  const text = (value) => short(Number(value.toPrecision(3)));
  const stands = shown.some((series) => series.ys.some((value) => measure(text(value), 11) > thick - 2));
  if (stands) values = { ...values, y: [...values.y, bounds(values.y)[1] * 1.1] };
  const place = frame(root, chart, width, values);
  const { box, wide, tall } = place;
  const slot = wide / categories.length, bottom = box.top + tall;
  place.band = (index) => box.left + slot * (index + 0.5);
  const lines = categories.map((name) => wrap(name, slot - 8, 2));
  lines.forEach((texts, index) => texts.forEach((text, row) => {
    root.append(svg("text", { class: "tick strong", x: place.band(index), y: bottom + 17 + row * 14, "text-anchor": "middle" }, text));
  }));
  const extra = Math.max(...lines.map((texts) => texts.length)) - (chart.x.title ? 1 : 2);
  root.append(svg("line", { class: "axis", x1: box.left, x2: box.left + wide, y1: bottom, y2: bottom }));
  root.append(svg("text", { class: "title", x: box.left + wide / 2, y: bottom + 36 + extra * 14, "text-anchor": "middle" }, cut(chart.x.title, wide, 12)));
  grow(root, box, width, box.height + extra * 14);
  place.stops = categories.map((name, index) => {
    const start = place.band(index) - (thick * shown.length) / 2;
    shown.forEach((series, n) => {
      const value = valueAt(series, index), x = start + n * thick, top = place.y(value);
      if (!finite(top)) { missing(root, x + thick / 2, bottom - 5); return; }
      const edge = finite(place.y(0)) ? place.y(0) : bottom;
      root.append(svg("rect", { class: `bar data ${looks(series.product)}`, x: x + 1, y: Math.min(top, edge), width: thick - 2, height: Math.max(Math.abs(edge - top), 1) }));
      const way = stands ? { transform: `translate(${x + thick / 2 + 4},${top - 5}) rotate(-90)` } : { x: x + thick / 2, y: top - 4, "text-anchor": "middle" };
      root.append(svg("text", { class: "value", ...way }, text(value)));
    });
    return barStop(chart, shown, { name, index, x: place.band(index), y: box.top + 10 });
  });
  place.find = (x) => place.stops[Math.floor((x - box.left) / slot)];
  return place;
}

function lyingBars(root, chart, width, { shown, categories, values }) {
  const thick = 17, head = 24;
  const left = Math.ceil(Math.min(width * 0.35, Math.max(30, ...shown.map((series) => measure(series.product.name))))) + 8;
  const wide = width - left - 58, group = head + shown.length * thick + 12;
  const height = 26 + group * categories.length + 36;
  const axis = scale(chart.y, values.y, wide, true);
  const x = (value) => left + axis.at(value), bottom = height - 36;
  root.append(svg("text", { class: "title", x: 0, y: 12 }, cut(chart.x.title, width, 12)));
  for (const tick of axis.ticks.filter((tick) => tick.label)) {
    root.append(svg("line", { class: "grid", x1: x(tick.at), x2: x(tick.at), y1: 22, y2: bottom }));
    root.append(svg("text", { class: "tick", x: x(tick.at), y: bottom + 15, "text-anchor": "middle" }, tick.label));
  }
  root.append(svg("text", { class: "title", x: width / 2, y: bottom + 32, "text-anchor": "middle" }, cut(chart.y.title, width, 12)));
  root.append(svg("line", { class: "axis", x1: left, x2: left, y1: 22, y2: bottom }));
  const stops = categories.map((name, index) => {
    const top = 24 + index * group;
    root.append(svg("text", { class: "tick strong", x: 0, y: top + 14 }, cut(name, width, 12)));
    shown.forEach((series, n) => {
      const y = top + head + n * thick, value = valueAt(series, index), end = x(value);
      root.append(svg("text", { class: series.product.colour === 0 ? "tick ours" : "tick", x: left - 8, y: y + 12, "text-anchor": "end" }, cut(series.product.name, left - 8)));
      if (!finite(end)) { missing(root, left + 8, y + 13); return; }
      root.append(svg("rect", { class: `bar data ${looks(series.product)}`, x: left, y: y + 1.5, width: Math.max(end - left, 1), height: thick - 3 }));
      root.append(svg("text", { class: "value", x: end + 5, y: y + 12.5 }, short(Number(value.toPrecision(3)))));
    });
    return barStop(chart, shown, { name, index, x: left + wide / 2, y: top + 4, below: top + group - 6 });
  });
  const box = { width, height, left, top: 24 };
  grow(root, box, width, height);
  return { box, wide, tall: bottom - 24, stops, lies: true, x, y: () => NaN, find: (_, y) => stops[Math.floor((y - 24) / group)] };
}

function grow(root, box, width, height) {
  box.height = height;
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  root.setAttribute("width", width);
  root.setAttribute("height", height);
}

const missing = (root, x, y) => root.append(svg("text", { class: "missing", x, y, "text-anchor": "middle" }, "✕"));

function barStop(chart, shown, { name, index, ...at }) {
  const row = (series) => {
    const value = valueAt(series, index);
    return { look: series.product, text: finite(value) ? say({ ...chart.y, categories: [] }, value) : series.failed ? "failed" : "no figure" };
  };
  return { ...at, head: name, rows: shown.map(row), dots: [] };
}
