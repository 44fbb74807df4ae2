// The lab's reports: made-up pages with everything that a report can hold (`lab report --sample`).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { pathToFileURL } from "node:url";
import { SCREENS, canBePressed, fitsTheScreen, isReadable, launch, open } from "./browser.mjs";

const FOLDER = process.env.REPORT_PAGES;
assert.ok(FOLDER, "REPORT_PAGES must name the folder that `lab report --sample FOLDER` wrote");
const url = (path) => pathToFileURL(resolve(FOLDER, path)).href;
const results = JSON.parse(readFileSync(resolve(FOLDER, "sample/results.json"), "utf8"));
const figure = (value) => value.toLocaleString("en", { maximumSignificantDigits: 6 });

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

/** Opens a page, lets a test look at it, and expects that nothing went wrong. */
async function look(path, options, test) {
  const page = await open(browser, url(path), options);
  await test(page);
  assert.deepEqual(page.said, [], "what the page said on its console");
  await page.context().close();
}

/** Charts that are shown, by the number in their page. */
const shown = (page) => page.locator("figure.chart:visible");

/** How many marks a chart shows: elements, or pixels of its canvas. */
const marks = (chart) => chart.evaluate((element) => {
  const canvas = element.querySelector("canvas");
  if (!canvas) return element.querySelectorAll(".stage svg:not(.over) .data").length;
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let at = 3; at < data.length; at += 4) count += data[at] > 0;
  return count;
});

const chartOf = (page, title) => {
  const number = results.charts.findIndex((chart) => chart.title === title);
  return page.locator(`#chart-${number}`);
};

/** What must hold of a page as it is opened, and with everything open that can be opened. */
async function holds(page) {
  await canBePressed(page);
  for (const all of [false, true]) {
    await page.evaluate((isOpen) => document.querySelectorAll("details").forEach((one) => { one.open = isOpen; }), all);
    await fitsTheScreen(page);
    await isReadable(page);
  }
}

// One opening for all tests of a screen: opening is what takes the time.
const onScreen = (screen) => describe(screen.name, () => {
  let page;
  before(async () => { page = await open(browser, url("sample/report.html"), screen); });
  after(() => page.context().close());

  for (const path of ["interrupted/report.html", "hostile/report.html", "index.html"]) {
    it(`${path} fits, can be read, and can be pressed`, () => look(path, screen, holds));
  }

  it("the sample fits, can be read, and can be pressed", () => holds(page));

  it("draws every chart, the hidden ones of a group when their turn comes", async () => {
    const seen = new Set();
    const count = async () => {
      for (const chart of await shown(page).all()) {
        const id = await chart.getAttribute("id");
        const { series } = results.charts[Number(id.replace("chart-", ""))];
        assert.ok((await marks(chart)) >= series.filter(({ points }) => points.length).length, `${id} has marks`);
        seen.add(id);
      }
    };
    await count();
    for (const button of await page.locator(".switch button").all()) {
      await button.click();
      assert.equal(await button.getAttribute("aria-pressed"), "true");
      await count();
    }
    assert.equal(seen.size, results.charts.length);
    await fitsTheScreen(page);
    await isReadable(page);
  });

  it("shows the exact figures of bars where one points", async () => {
    const chart = chartOf(page, "Requests per second");
    const bar = chart.locator(".bar.data").first();
    await (screen.width < 600 ? bar.tap({ force: true }) : bar.hover({ force: true }));
    const tip = chart.locator(".tip");
    assert.ok(await tip.isVisible());
    const text = await tip.innerText();
    const { series } = results.charts.find((one) => one.title === "Requests per second");
    for (const { product, points } of series) {
      assert.ok(text.includes(product) && text.includes(figure(points[0][1])), `${product} in ${text}`);
    }
    await isReadable(page);
    await fitsTheScreen(page);
    await page.locator("h1").click();
    assert.ok(!(await tip.isVisible()), "it goes when one points elsewhere");
  });

  it("said nothing on its console and asked nobody", () => assert.deepEqual(page.said, []));
});

describe("every screen", { concurrency: 2 }, () => SCREENS.forEach(onScreen));

describe("a report", { concurrency: 2 }, () => {
  it("hides and shows a product with its button, and shows one alone", () => look("sample/report.html", {}, async (page) => {
    const chart = chartOf(page, "CPU over time");
    const lines = () => chart.locator(".stage svg:not(.over) .line.data").count();
    const button = chart.locator(".legend button", { hasText: "envoy" });
    const all = await lines();
    await button.click();
    assert.equal(await button.getAttribute("aria-pressed"), "false");
    assert.equal(await lines(), all - 1);
    await button.click();
    assert.equal(await lines(), all);
    await button.dblclick();
    assert.equal(await lines(), 1);
    await button.dblclick();
    assert.equal(await lines(), all);
  }));

  it("says so when every product is hidden", () => look("sample/report.html", {}, async (page) => {
    const chart = chartOf(page, "Response time of each request, in order");
    for (const button of await chart.locator(".legend button").all()) await button.click();
    assert.ok((await chart.locator(".stage").textContent()).includes("Every product is hidden."));
    assert.equal(await marks(chart), 0);
  }));

  it("tells a single request of fifty thousand, and all products at a percentile", () => look("sample/report.html", {}, async (page) => {
    const points = chartOf(page, "haproxy at 128 requests per second");
    await points.scrollIntoViewIfNeeded();
    const box = await points.locator(".stage").boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height - 60);
    assert.match(await points.locator(".tip").innerText(), /haproxy\s+latency: [\d.]+ ms\s+time: [\d.]+ s/);
    const lines = chartOf(page, "HTTP, 50 connections at a time");
    await lines.scrollIntoViewIfNeeded();
    const tick = await lines.locator(".tick", { hasText: /^99\.9$/ }).boundingBox();
    await page.mouse.move(tick.x + tick.width / 2, tick.y - 60);
    const text = await lines.locator(".tip").innerText();
    const chart = results.charts.find((one) => one.title === "HTTP, 50 connections at a time");
    for (const { points: all } of chart.series) assert.ok(text.includes(`${figure(all.find(([x]) => x === 99.9)[1])} ms`), text);
  }));

  it("is read with keys alone", () => look("sample/report.html", {}, async (page) => {
    for (const title of ["HTTP, 50 connections at a time", "Requests per second", "haproxy at 128 requests per second"]) {
      const chart = chartOf(page, title);
      await chart.locator(".stage").focus();
      for (const key of ["ArrowRight", "ArrowRight", "End", "Home"]) {
        await page.keyboard.press(key);
        assert.ok(await chart.locator(".tip").isVisible(), `${title}: ${key}`);
      }
      assert.ok((await chart.locator("[aria-live]").textContent()).length > 10, "it is said to a screen reader, too");
      await page.keyboard.press("Escape");
      assert.ok(!(await chart.locator(".tip").isVisible()));
    }
  }));

  it("has marks with labels, as numbers with a list where there is no room", async () => {
    const title = "haproxy at 128 requests per second";
    const { marks: all } = results.charts.find((one) => one.title === title);
    await look("sample/report.html", { width: 1280 }, async (page) => {
      assert.deepEqual(await chartOf(page, title).locator("text.mark").allTextContents(), all.map((mark) => mark.label));
    });
    await look("sample/report.html", { width: 360 }, async (page) => {
      assert.equal(await chartOf(page, title).locator("circle.number").count(), all.length);
      assert.equal(await chartOf(page, title).locator(".marklist li:visible").count(), all.length);
    });
  });

  it("has one colour for a product wherever it is", () => look("sample/report.html", {}, async (page) => {
    const colours = await page.evaluate(() => {
      const found = new Map();
      for (const button of document.querySelectorAll(".legend button")) {
        const name = button.querySelector("span").textContent, mark = button.querySelector(".bar, .point");
        const style = getComputedStyle(mark), colour = mark.classList.contains("variant") ? style.stroke : style.fill;
        found.set(name, (found.get(name) || new Set()).add(colour));
      }
      return [...found].map(([name, set]) => [name, [...set]]);
    });
    assert.ok(colours.length >= 8);
    for (const [name, set] of colours) assert.equal(set.length, 1, name);
  }));

  it("says first that a run was quick or interrupted", async () => {
    await look("sample/report.html", {}, async (page) => assert.match(await page.locator(".banner").innerText(), /Quick run, not to be quoted/));
    await look("interrupted/report.html", {}, async (page) => {
      assert.match(await page.locator(".banner").innerText(), /Interrupted/);
      assert.ok((await page.locator(".stage").first().textContent()).includes("There are no figures."));
      assert.equal(await marks(page.locator("figure.chart").nth(1)), 2, "a line of a single point shows the point");
    });
  });

  it("runs nothing of what a product said", () => look("hostile/report.html", {}, async (page) => {
    for (const button of await page.locator(".switch button").all()) {
      await button.click();
      const stage = page.locator(".stage:visible");
      await stage.focus();
      await page.keyboard.press("End");
      assert.ok((await page.locator(".tip:visible").innerText()).includes("</script><img"), "it is shown as text");
    }
    await page.waitForTimeout(50);
    assert.equal(await page.evaluate(() => window.broken), undefined);
    assert.equal(await page.locator("img").count(), 0);
    const scripts = await page.locator("script").count();
    assert.equal(scripts, 3, "the theme, the data, the charts");
  }));

  it("refuses scripts that are not its own, even if one came in", async () => {
    const page = await open(browser, url("sample/report.html"));
    await page.evaluate(() => {
      const script = document.createElement("script");
      script.textContent = "window.broken = 3";
      document.body.append(script);
    });
    assert.equal(await page.evaluate(() => window.broken), undefined);
    assert.ok(page.said.some((line) => line.includes("Content Security Policy")), String(page.said));
    await page.context().close();
  });

  it("changes its theme with a button and remembers it", () => look("sample/report.html", { theme: "light" }, async (page) => {
    const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const day = await back(), button = page.locator("#theme");
    await button.click();
    assert.equal(await back(), day);
    await button.click();
    assert.match(await button.innerText(), /dark/);
    const night = await back();
    assert.notEqual(night, day);
    await isReadable(page);
    await page.reload();
    assert.equal(await back(), night);
    await button.click();
    assert.equal(await back(), day);
  }));

  it("draws again when the screen is turned", () => look("sample/report.html", { width: 1280 }, async (page) => {
    const chart = chartOf(page, "Requests per second");
    const standing = await chart.locator("svg").nth(results.products.length).getAttribute("height");
    await page.setViewportSize({ width: 360, height: 740 });
    await page.waitForFunction((before) => document.querySelector("#chart-3 .stage svg").getAttribute("height") !== before, standing);
    await fitsTheScreen(page);
    assert.ok((await marks(chart)) > 5);
  }));

  it("can be read without JavaScript", () => look("sample/report.html", { javaScriptEnabled: false }, async (page) => {
    assert.equal(await page.locator("figure.chart:visible").count(), results.charts.length);
    assert.ok(await page.locator("noscript p").first().isVisible());
    assert.equal(await page.locator(".findings li:visible").count(), results.findings.length);
    assert.equal(await page.locator("#tables tbody tr:visible").count(), results.tables[0].rows.length);
    await page.locator(".file summary").first().click();
    assert.ok((await page.locator(".file pre").first().innerText()).includes("proxy_set_header"));
    await page.locator("#chart-0 .figures summary").click();
    assert.ok(await page.locator("#chart-0 .figures td").first().isVisible());
    assert.ok(!(await page.locator(".switch").first().isVisible()), "no button that does nothing");
  }));

  it("leads from the index to every report and back", () => look("index.html", {}, async (page) => {
    const links = await page.locator(".study a").evaluateAll((all) => all.map((one) => one.href));
    assert.deepEqual(links.sort(), ["hostile", "interrupted", "sample"].map((study) => url(`${study}/report.html`)));
  }));
});
