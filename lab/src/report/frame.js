// What every chart has around its marks: room, axes, grid, the lines of moments, and their labels.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

// An element of the page; text is only ever text.
function html(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function svg(tag, attributes = {}, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// How wide a text of an axis is. Measured, for fonts differ.
const measure = (() => {
  let pen;
  return (text, size = 12) => {
    pen = pen || document.createElement("canvas").getContext("2d");
    pen.font = `${size}px system-ui, sans-serif`;
    return pen.measureText(text).width;
  };
})();

function cut(text, width, size) {
  if (measure(text, size) <= width) return text;
  let end = Math.min(text.length, 200);
  while (end > 1 && measure(`${text.slice(0, end)}…`, size) > width) end -= Math.ceil(end / 20);
  return `${text.slice(0, Math.max(end, 1))}…`;
}

// A text in at most `count` lines of a width.
function wrap(text, width, count) {
  const lines = [""];
  for (const word of text.slice(0, 300).split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (!lines.at(-1) || measure(longer) <= width) lines[lines.length - 1] = longer;
    else if (lines.length < count) lines.push(word);
    else { lines[lines.length - 1] = `${lines.at(-1)} …`; break; }
  }
  return lines.map((line) => cut(line, width));
}

// Draws axes and grid into `root` and returns the inner room and its scales.
function frame(root, chart, width, values) {
  const lanes = chart.marks.length ? layMarks(chart, width) : { count: 0 };
  const height = Math.round(Math.min(420, Math.max(250, width * 0.46)));
  const box = { top: 26 + lanes.count * 17, bottom: 40, right: 14, left: 0, width, height: height + lanes.count * 17 };
  const tall = box.height - box.top - box.bottom;
  const y = scale(chart.y, values.y, tall, chart.kind !== "scatter" || chart.y.scale !== "log");
  box.left = Math.ceil(Math.max(...y.ticks.map((tick) => measure(tick.label)), 8)) + 12;
  const wide = Math.max(60, width - box.left - box.right);
  const x = scale(chart.x, values.x, wide, false);
  const place = { box, wide, tall, x: (v) => box.left + x.at(v), y: (v) => box.top + tall - y.at(v), scales: { x, y } };
  root.setAttribute("viewBox", `0 0 ${width} ${box.height}`);
  root.setAttribute("width", width);
  root.setAttribute("height", box.height);
  drawY(root, chart, place, y);
  if (!chart.x.categories.length || chart.kind !== "bars") drawX(root, chart, place, x);
  return { ...place, lanes };
}

function drawY(root, chart, { box, wide, y: at }, y) {
  root.append(svg("text", { class: "title", x: 0, y: 12 }, cut(chart.y.title, box.width, 12)));
  for (const tick of y.ticks) {
    const line = at(tick.at);
    root.append(svg("line", { class: tick.label ? "grid" : "grid faint", x1: box.left, x2: box.left + wide, y1: line, y2: line }));
    if (tick.label) root.append(svg("text", { class: "tick", x: box.left - 7, y: line + 4, "text-anchor": "end" }, tick.label));
  }
}

function drawX(root, chart, { box, wide, tall, x: at }, x) {
  const bottom = box.top + tall;
  root.append(svg("line", { class: "axis", x1: box.left, x2: box.left + wide, y1: bottom, y2: bottom }));
  // The ends first, then from the right: the rare percentiles matter more than the usual ones.
  const taken = [];
  const named = x.ticks.filter((tick) => tick.label).sort((a, b) => Boolean(a.weak) - Boolean(b.weak) || b.at - a.at);
  for (const tick of named) {
    const centre = at(tick.at), half = measure(tick.label) / 2 + 5;
    const text = Math.min(Math.max(centre, half - 5), box.left + wide + box.right - half + 5);
    if (taken.some(([from, to]) => text + half > from && text - half < to)) continue;
    taken.push([text - half, text + half]);
    root.append(svg("line", { class: "axis", x1: centre, x2: centre, y1: bottom, y2: bottom + 4 }));
    root.append(svg("text", { class: "tick", x: text, y: bottom + 17, "text-anchor": "middle" }, tick.label));
  }
  root.append(svg("text", { class: "title", x: box.left + wide / 2, y: bottom + 34, "text-anchor": "middle" }, cut(chart.x.title, wide, 12)));
}

// Labels of marks stand above the chart in lanes when there is room, else as numbers with a list below.
function layMarks(chart, width) {
  const inner = width - 70;
  const known = chart.marks.map((mark) => mark.at).concat(chart.series.flatMap((s) => s.extent));
  const axis = scale(chart.x, known.filter(finite), inner, false);
  const ends = [-Infinity, -Infinity];
  const lanes = chart.marks.map((mark) => {
    const from = axis.at(mark.at), long = measure(mark.label, 11) + 14;
    const begin = Math.min(from, inner - long);
    const lane = ends.findIndex((end) => end < begin);
    if (lane < 0 || long > inner * 0.8) return -1;
    ends[lane] = begin + long;
    return lane;
  });
  const numbered = lanes.includes(-1);
  return { numbered, lane: numbered ? chart.marks.map(() => 0) : lanes, count: numbered ? 1 : Math.max(...lanes) + 1 };
}

// The marks' lines, and above all lines their labels.
function drawMarks(root, chart, place) {
  const { box, wide, tall, lanes } = place;
  const labels = [];
  chart.marks.forEach((mark, index) => {
    const at = place.band ? place.band(mark.at) : place.x(mark.at);
    if (!finite(at) || at < box.left - 1 || at > box.left + wide + 1) return;
    const line = 31 + lanes.lane[index] * 17;
    root.append(svg("line", { class: "mark", x1: at, x2: at, y1: line + 3, y2: box.top + tall }));
    if (lanes.numbered) {
      labels.push(svg("circle", { class: "number", cx: at, cy: line - 4, r: 8.5 }));
      labels.push(svg("text", { class: "number", x: at, y: line, "text-anchor": "middle" }, String(index + 1)));
    } else {
      const long = measure(mark.label, 11);
      labels.push(svg("text", { class: "mark", x: Math.min(at, box.left + wide - long), y: line }, mark.label));
    }
  });
  root.append(...labels);
}
