// Axes: where a value is drawn, and which values are written beside the axis.
"use strict";

const finite = Number.isFinite;

// A figure for a person: at most so many significant digits, thousands apart.
const FORMATS = new Map([4, 6].map((digits) => [digits, new Intl.NumberFormat("en", { maximumSignificantDigits: digits })]));
const figure = (value, digits = 6) => (value === 0 ? "0" : FORMATS.get(digits).format(value));

// A short one, for axes: 25k, 1.5M.
function short(value) {
  const size = Math.abs(value);
  for (const [unit, sign] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit * (unit === 1e3 ? 10 : 1)) return `${figure(value / unit, 4)}${sign}`;
  }
  return figure(value, 4);
}

// "latency, ms" → its name and its unit.
function parts(title) {
  const at = title.lastIndexOf(", ");
  return at < 0 ? { name: title, unit: "" } : { name: title.slice(0, at), unit: title.slice(at + 2) };
}

// Percentile 99 is 2 nines, 99.9 is 3: each takes the same room.
const nines = (percent) => -Math.log10(1 - percent / 100);

function niceStep(range, count) {
  const rough = range / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find((one) => one * power >= rough * 0.999) || 10;
  return factor * power;
}

// Each kind of scale gives its bounds and ticks in its own measure; `forward` turns a value into that measure.
const KINDS = {
  linear(values, { room, fromZero }) {
    let low = Math.min(...bounds(values)), high = Math.max(...bounds(values));
    if (fromZero ? low > 0 : low > 0 && low < high / 2) low = 0;
    if (fromZero && high < 0) high = 0;
    if (high === low) { high += Math.abs(high) / 2 || 1; if (!fromZero && low !== 0) low -= Math.abs(low) / 2; }
    const step = niceStep(high - low, Math.max(2, room / 64));
    if (fromZero) { high = Math.ceil(high / step - 1e-9) * step; low = Math.floor(low / step + 1e-9) * step; }
    const ticks = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) {
      const at = Number((n * step).toPrecision(12));
      ticks.push({ at, label: short(at) });
    }
    return { forward: (value) => value, low, high, ticks };
  },

  log(values, { room }) {
    const able = values.filter((value) => value > 0);
    if (able.length === 0) return KINDS.log([1, 10], { room });
    let [low, high] = bounds(able);
    const down = (value) => { const power = 10 ** Math.floor(Math.log10(value)); return power * [5, 2, 1].find((f) => f * power <= value * 1.0001); };
    const up = (value) => { const power = 10 ** Math.floor(Math.log10(value)); return power * [1, 2, 5, 10].find((f) => f * power >= value * 0.9999); };
    [low, high] = [down(low), up(high)];
    if (high / low < 9) [low, high] = [Math.min(low, high / 10), high];
    const decades = Math.log10(high / low);
    const fine = room / decades > 110;
    const every = Math.max(1, Math.ceil(decades / Math.max(1, room / 34)));
    const ticks = [];
    for (let power = Math.floor(Math.log10(low) + 1e-9); power <= Math.ceil(Math.log10(high)); power++) {
      for (let factor = 1; factor < 10; factor++) {
        const at = Number((factor * 10 ** power).toPrecision(6));
        if (at < low * 0.9999 || at > high * 1.0001) continue;
        const labelled = factor === 1 ? power % every === 0 : fine && (factor === 2 || factor === 5);
        if (labelled) ticks.push({ at, label: short(at) });
        else if (every === 1) ticks.push({ at, label: "" });
      }
    }
    return { forward: (value) => (value > 0 ? Math.log10(value) : NaN), low, high, ticks };
  },

  nines(values) {
    const able = values.filter((value) => value >= 0 && value <= 100);
    const below = able.filter((value) => value < 100).map(nines);
    const hasAll = able.includes(100);
    const deepest = Math.min(7, Math.max(1, ...bounds(below.length ? below : [2])));
    // All of them, 100 %, is infinitely many nines: it gets half a nine's room after the deepest.
    const end = hasAll ? deepest + 0.5 : deepest;
    const least = Math.min(...bounds(able.length ? able : [0]));
    const low = least >= 90 ? 90 : least >= 50 ? 50 : 0;
    const ticks = [0, 50, 75, 90, 95, 99, 99.9, 99.99, 99.999, 99.9999, 99.99999]
      .filter((at) => at >= low && nines(at) <= deepest + 1e-9)
      .map((at) => ({ at, label: String(at), weak: at === 75 || at === 95 }));
    if (hasAll) ticks.push({ at: 100, label: "100" });
    return { forward: (value) => (value >= 100 ? end : value < 0 ? NaN : Math.min(nines(value), end)), low, high: hasAll ? 100 : 100 * (1 - 10 ** -deepest), ticks };
  },
};

// Least and most, without spreading long arrays over a call.
function bounds(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return low > high ? [0, 1] : [low, high];
}

// An axis of `room` pixels: `at(value)` is a pixel, from 0 at the low end.
function scale(axis, values, room, fromZero) {
  const kind = KINDS[axis.scale] || KINDS.linear;
  const { forward, low, high, ticks } = kind(values.filter(finite), { room, fromZero });
  const start = forward(low), range = forward(high) - start || 1;
  const at = (value) => ((forward(value) - start) / range) * room;
  return { at, low, high, ticks: ticks.filter((tick) => finite(at(tick.at))), unit: parts(axis.title).unit, isPercentile: axis.scale === "nines" };
}

// How a place of an axis is said.
function say(axis, value) {
  if (axis.categories.length) return axis.categories[Math.round(value)] ?? figure(value);
  const { unit } = parts(axis.title);
  return unit ? `${figure(value)} ${unit}` : figure(value);
}
