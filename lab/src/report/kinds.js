// What a chart tells where one points at it: a head, a row for each product, and dots upon the marks.
"use strict";

// The index of the last value not above `x`; -1 when all are.
function lastUpTo(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1; else high = middle;
  }
  return low - 1;
}

const isSorted = (values) => { for (let n = 1; n < values.length; n++) if (values[n] < values[n - 1]) return false; return true; };

const head = (chart, x, place) => {
  const { name } = parts(chart.x.title);
  const said = say(chart.x, x);
  return place.scales.x.isPercentile ? `percentile ${said}` : chart.x.categories.length || !name ? said : `${name}: ${said}`;
};

// Lines: everything at one place of the x axis.
function lineTeller(chart, place) {
  const shown = chart.series.filter((series) => !series.hidden && series.xs.length && isSorted(series.xs));
  const places = [...new Set(shown.flatMap((series) => Array.from(series.xs)))].sort((a, b) => a - b).filter((x) => finite(place.x(x)));
  const stop = (x) => {
    const rows = [], dots = [];
    for (const series of shown) {
      const n = pick(series, x, place, chart.kind === "step");
      if (n < 0) { if (chart.kind === "step") rows.push({ look: series.product, text: "none yet" }); continue; }
      const own = series.xs[n] === x || chart.kind === "step" ? "" : ` (at ${say(chart.x, series.xs[n])})`;
      rows.push({ look: series.product, text: say(chart.y, series.ys[n]) + own });
      dots.push({ look: series.product, x: place.x(chart.kind === "step" ? x : series.xs[n]), y: place.y(series.ys[n]) });
    }
    return { x: place.x(x), y: place.box.top + 8, line: true, head: head(chart, x, place), rows, dots };
  };
  const every = Math.max(1, Math.ceil(places.length / 60));
  return {
    find: (px) => {
      if (!places.length) return null;
      let best = places[0];
      for (const x of places) if (Math.abs(place.x(x) - px) < Math.abs(place.x(best) - px)) best = x;
      return stop(best);
    },
    stops: () => places.filter((_, n) => n % every === 0 || n === places.length - 1).map(stop),
  };
}

function pick(series, x, place, isStep) {
  const before = lastUpTo(series.xs, x);
  if (isStep || (before >= 0 && series.xs[before] === x)) return before;
  const near = (n) => (n >= 0 && n < series.xs.length ? Math.abs(place.x(series.xs[n]) - place.x(x)) : Infinity);
  const best = near(before) <= near(before + 1) ? before : before + 1;
  return near(best) <= 12 ? best : -1;
}

// Points: the nearest one. With keys, the highest of each stretch: those are what one looks for.
function pointTeller(chart, place) {
  const shown = chart.series.filter((series) => !series.hidden && series.px);
  const stop = (series, n) => ({
    x: series.px[n], y: series.py[n], head: series.product.name, look: series.product,
    rows: [{ text: `${parts(chart.y.title).name || "value"}: ${say(chart.y, series.ys[n])}` }, { text: head(chart, series.xs[n], place) }],
    dots: [{ look: series.product, x: series.px[n], y: series.py[n] }],
  });
  return {
    find: (px, py) => {
      let best = null, nearest = 28 ** 2;
      for (const series of shown) {
        for (let n = 0; n < series.px.length; n++) {
          const far = (series.px[n] - px) ** 2 + (series.py[n] - py) ** 2;
          if (far < nearest) { nearest = far; best = [series, n]; }
        }
      }
      return best && stop(...best);
    },
    stops: () => {
      const found = [];
      for (const series of shown) {
        const highest = new Map();
        for (let n = 0; n < series.px.length; n++) {
          const stretch = Math.floor(((series.px[n] - place.box.left) / place.wide) * 40);
          if (finite(series.py[n]) && !(series.ys[n] <= series.ys[highest.get(stretch)])) highest.set(stretch, n);
        }
        for (const n of highest.values()) found.push(stop(series, n));
      }
      return found.sort((a, b) => a.x - b.x);
    },
  };
}

// Bars: a category.
const barTeller = (place) => ({ find: (x, y) => place.find(x, y) || null, stops: () => place.stops });
