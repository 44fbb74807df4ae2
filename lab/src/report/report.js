// Starts a page: the theme's button, and the charts of the JSON at its end.
"use strict";

// The button goes around: as the system, light, dark.
function startTheme() {
  const button = document.getElementById("theme");
  if (!button) return;
  const names = { "": "as the system", light: "light", dark: "dark" };
  const say = () => { button.textContent = `Theme: ${names[document.documentElement.dataset.theme || ""]}`; };
  button.hidden = false;
  say();
  button.addEventListener("click", () => {
    const root = document.documentElement, order = ["", "light", "dark"];
    const next = order[(order.indexOf(root.dataset.theme || "") + 1) % order.length];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    try { localStorage.setItem("equipoise-theme", next); } catch { /* It lasts as long as the page, then. */ }
    say();
    document.dispatchEvent(new Event("theme"));
  });
}

// A drawing's data with typed arrays in place of x, y, x, y …
function unpack(chart, products) {
  for (const series of chart.series) {
    const count = series.points.length / 2;
    series.xs = new Float64Array(count);
    series.ys = new Float64Array(count);
    for (let n = 0; n < count; n++) { series.xs[n] = series.points[2 * n]; series.ys[n] = series.points[2 * n + 1]; }
    series.extent = count ? bounds(series.xs) : [];
    series.notable = { x: notable(series.xs), y: notable(series.ys) };
    series.product = products[series.product];
    series.hidden = false;
    delete series.points;
  }
  return chart;
}

// All that an axis asks of many values: the least, the most, the least above 0, and the most below 100.
function notable(values) {
  const found = [Infinity, -Infinity, Infinity, -Infinity];
  for (const value of values) {
    if (value < found[0]) found[0] = value;
    if (value > found[1]) found[1] = value;
    if (value > 0 && value < found[2]) found[2] = value;
    if (value < 100 && value > found[3]) found[3] = value;
  }
  return found.filter(finite);
}

// What the axes must hold. Scatters of a group stand on one scale, so that they can be compared.
function valuesOf(chart, all) {
  const together = chart.kind === "scatter" && chart.group ? all.filter((one) => one.group === chart.group && one.kind === "scatter") : [chart];
  const shown = together.flatMap((one) => one.series.filter((series) => !series.hidden || one !== chart));
  const values = { x: shown.flatMap((series) => series.notable.x), y: shown.flatMap((series) => series.notable.y) };
  for (const mark of chart.marks) if (finite(mark.at) && chart.kind !== "bars") values.x.push(mark.at);
  return values;
}

class Drawing {
  constructor(figure, chart, all) {
    Object.assign(this, { figure, chart, all, plot: figure.querySelector(".plot"), teller: null, stop: null, step: -1 });
    this.swatches = new Map();
    const title = parts(chart.title).name ? chart.title : chart.group;
    this.stage = html("div", { class: "stage", tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-label": `${title}. Left and right arrow keys read the figures; a table of them follows.` });
    this.canvas = html("canvas", { "aria-hidden": "true" });
    this.svg = svg("svg", { "aria-hidden": "true" });
    this.over = svg("svg", { "aria-hidden": "true", class: "over" });
    this.tip = html("div", { class: "tip", hidden: "" });
    this.live = html("p", { class: "sr", "aria-live": "polite" });
    this.list = html("ol", { class: "marklist", hidden: "" });
    this.stage.append(this.svg, ...(chart.kind === "scatter" ? [this.canvas] : []), this.over, this.tip);
    this.plot.append(this.legend(), this.stage, this.list, this.live);
    this.listen();
  }

  legend() {
    const bar = html("div", { class: "legend", role: "group", "aria-label": "Products: press to hide or show" });
    this.chart.series.forEach((series) => {
      const swatch = svg("svg", { width: 26, height: 14, viewBox: "0 0 26 14", "aria-hidden": "true" });
      if (this.chart.kind === "bars") swatch.append(svg("rect", { class: `bar ${looks(series.product)}`, x: 6, y: 1, width: 14, height: 12 }));
      else if (this.chart.kind !== "scatter") swatch.append(svg("path", { class: `line ${looks(series.product)}`, d: "M0,7H26" }));
      if (this.chart.kind !== "bars") swatch.append(svg("path", { class: `point ${looks(series.product)}`, d: shape(series.product, 4), transform: "translate(13,7)" }));
      const button = html("button", { type: "button", "aria-pressed": "true", title: "Press to hide or show; twice for this one alone", class: series.product.colour === 0 ? "ours" : "" });
      button.append(swatch, html("span", {}, series.product.name));
      if (!series.xs.length) button.append(html("span", { class: "empty" }, series.failed ? "failed" : "no points"));
      button.addEventListener("click", () => this.show(series, series.hidden));
      button.addEventListener("dblclick", () => this.alone(series));
      series.button = button;
      this.swatches.set(series.product, button);
      bar.append(button);
    });
    return bar;
  }

  show(series, shown) {
    series.hidden = !shown;
    series.button.setAttribute("aria-pressed", String(shown));
    this.draw();
  }

  // This product alone; when it is alone already, all of them.
  alone(series) {
    const isAlone = this.chart.series.every((one) => one === series || one.hidden);
    for (const one of this.chart.series) {
      one.hidden = !isAlone && one !== series;
      one.button.setAttribute("aria-pressed", String(!one.hidden));
    }
    this.draw();
  }

  draw() {
    const width = Math.floor(this.stage.clientWidth);
    if (!width) return;
    this.width = width;
    this.tell(null);
    this.step = -1;
    for (const root of [this.svg, this.over]) root.replaceChildren();
    const { chart } = this;
    const values = valuesOf(chart, this.all);
    if (!values.y.length) { this.nothing(width); return; }
    const isBars = chart.kind === "bars";
    const place = isBars ? drawBars(this.svg, chart, width, values) : frame(this.svg, chart, width, values);
    if (chart.kind === "scatter") {
      drawPoints(this.canvas, chart, place, (look) => this.colour(look));
      this.teller = pointTeller(chart, place);
    } else if (isBars) this.teller = barTeller(place);
    else { drawLines(this.svg, chart, place); this.teller = lineTeller(chart, place); }
    if (chart.marks.length && !place.lies) drawMarks(this.svg, chart, place);
    this.listMarks(chart.marks.length > 0 && Boolean(place.lies || place.lanes.numbered));
    this.place = place;
    this.over.setAttribute("viewBox", this.svg.getAttribute("viewBox"));
    this.over.setAttribute("width", width);
    this.over.setAttribute("height", this.svg.getAttribute("height"));
  }

  nothing(width) {
    grow(this.svg, {}, width, 80);
    const text = this.chart.series.some((series) => series.xs.length) ? "Every product is hidden." : "There are no figures.";
    this.svg.append(svg("text", { class: "title", x: width / 2, y: 45, "text-anchor": "middle" }, text));
    this.canvas.width = 1;
    this.teller = null;
    this.place = null;
  }

  listMarks(isShown) {
    this.list.hidden = !isShown;
    if (isShown && !this.list.children.length) this.list.append(...this.chart.marks.map((mark) => html("li", {}, `${mark.label} (${say(this.chart.x, mark.at)})`)));
  }

  // The colour as the theme has it now.
  colour(look) {
    return getComputedStyle(this.swatches.get(look).querySelector(".point")).fill;
  }

  listen() {
    const point = (event) => {
      const box = this.stage.getBoundingClientRect();
      if (this.teller) this.tell(this.teller.find(event.clientX - box.left, event.clientY - box.top));
    };
    this.stage.addEventListener("pointermove", point);
    this.stage.addEventListener("pointerdown", point);
    this.stage.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") this.tell(null); });
    document.addEventListener("pointerdown", (event) => { if (!this.stage.contains(event.target)) this.tell(null); });
    this.stage.addEventListener("blur", () => this.tell(null));
    this.stage.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("theme", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    new ResizeObserver(() => { if (Math.floor(this.stage.clientWidth) !== this.width) this.draw(); }).observe(this.stage);
  }

  key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") { this.tell(null); return; }
    if (!(event.key in moves) || !this.teller) return;
    event.preventDefault();
    const stops = this.teller.stops();
    if (!stops.length) return;
    this.step = Math.min(Math.max(this.step + moves[event.key], 0), stops.length - 1);
    this.tell(stops[this.step]);
    this.live.textContent = this.tip.innerText.replace(/\n+/g, ", ");
  }

  // Shows a stop beside where it is, or nothing.
  tell(stop) {
    this.over.replaceChildren();
    this.tip.hidden = !stop;
    if (!stop) return;
    const { box, tall } = this.place;
    if (stop.line) this.over.append(svg("line", { class: "here", x1: stop.x, x2: stop.x, y1: box.top, y2: box.top + tall }));
    for (const dot of stop.dots) drawPoint(this.over, dot.look, dot.x, dot.y, 5);
    this.tip.replaceChildren(html("strong", {}, stop.head), ...stop.rows.map((row) => this.row(row)));
    const wide = this.tip.offsetWidth, right = stop.x + 14;
    const left = right + wide > this.width ? stop.x - wide - 14 : right;
    // On a phone nothing has room beside: then it stands below what it tells of.
    const isNarrow = this.width < 480 && !stop.look;
    const top = isNarrow ? (stop.below ?? box.height - 14) : Math.max(0, Math.min(stop.y - 10, box.height - this.tip.offsetHeight));
    this.tip.style.left = `${Math.max(0, Math.min(left, this.width - wide))}px`;
    this.tip.style.top = `${top}px`;
  }

  row({ look, text }) {
    if (!look) return html("div", {}, text);
    const chip = html("i", { class: `chip ${looks(look)}` });
    return html("div", { class: look.colour === 0 ? "ours" : "" }, chip, html("span", {}, look.name), html("b", {}, text));
  }
}

// Buttons that show one chart of a group at a time.
function startGroup(group, drawings) {
  const bar = group.querySelector(".switch");
  if (!bar) return;
  const buttons = [...bar.querySelectorAll("button")];
  const choose = (chosen) => {
    for (const button of buttons) {
      const isChosen = button === chosen;
      button.setAttribute("aria-pressed", String(isChosen));
      document.getElementById(button.dataset.shows).hidden = !isChosen;
    }
    drawings.get(chosen.dataset.shows)?.draw();
  };
  buttons.forEach((button) => button.addEventListener("click", () => choose(button)));
  bar.hidden = false;
  choose(buttons[0]);
}

function start() {
  startTheme();
  const source = document.getElementById("data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const charts = data.charts.map((chart) => unpack(chart, data.products));
  const drawings = new Map();
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    drawings.set(figure.id, new Drawing(figure, charts[Number(figure.dataset.chart)], charts));
  }
  document.querySelectorAll(".group").forEach((group) => startGroup(group, drawings));
  for (const drawing of drawings.values()) if (!drawing.width) drawing.draw();
}

start();
