// What every test of a page needs: a browser, a page that tells of its errors, and checks that hold for all pages.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Phone and desk, by day and by night. */
export const SCREENS = [360, 1280].flatMap((width) => ["light", "dark"].map((theme) => ({ width, theme, name: `${width} px, ${theme}` })));

/** Starts the browser; `CHROMIUM` names another one than the system's. */
export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", headless: true, args: FLAGS });

/**
 * Opens a page in a context of its own. `page.said` collects errors, warnings of the console and requests that left
 * for another place: none is fine.
 */
export async function open(browser, url, { width = 1280, theme = "light", ...more } = {}) {
  const height = width < 600 ? 740 : 900;
  const surroundings = await browser.newContext({ viewport: { width, height }, colorScheme: theme, hasTouch: width < 600, ...more });
  const page = await surroundings.newPage();
  page.said = [];
  page.on("pageerror", (error) => page.said.push(`error: ${error.stack}`));
  page.on("console", (message) => page.said.push(`${message.type()}: ${message.text()}`));
  page.on("dialog", (dialog) => { page.said.push(`dialog: ${dialog.message()}`); return dialog.dismiss(); });
  page.on("request", (request) => { if (request.url() !== url) page.said.push(`request: ${request.url()}`); });
  await page.goto(url);
  return page;
}

/** The page itself must not scroll sideways. */
export async function fitsTheScreen(page) {
  const wide = await page.evaluate(() => {
    const over = document.documentElement.scrollWidth - innerWidth;
    if (over <= 0) return [];
    const isOut = (element) => element.getBoundingClientRect().right > innerWidth + 1;
    const found = [...document.querySelectorAll("body *")].filter(isOut).map((element) => element.outerHTML.slice(0, 120));
    return [`${over} px too wide`, ...found.slice(0, 10)];
  });
  assert.deepEqual(wide, []);
}

/** Every visible text stands out from what is behind it, as WCAG 2 asks: 4.5 to 1, large text 3 to 1. */
export async function isReadable(page) {
  const found = await page.evaluate(() => {
    const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      return [...pen.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => {
      const [x, y, z] = [r, g, b].map((part) => part / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
      return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = rgba(getComputedStyle(at).backgroundColor);
        if (colour[3] === 255) return colour;
      }
      return [255, 255, 255, 255];
    };
    const known = new Map(), poor = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let count = 0;
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || element.closest("script, style, noscript, .sr") || !element.checkVisibility({ visibilityProperty: true })) continue;
      const style = getComputedStyle(element);
      const ink = element instanceof SVGElement ? style.fill : style.color;
      const back = behind(element), key = `${ink} ${back} ${style.fontSize} ${style.fontWeight}`;
      count += 1;
      if (!known.has(key)) {
        const [a, b] = [light(rgba(ink)), light(back)].sort((x, y) => y - x);
        const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
        known.set(key, { ratio: (a + 0.05) / (b + 0.05), wanted: isLarge ? 3 : 4.5 });
      }
      const { ratio, wanted } = known.get(key);
      if (ratio < wanted) poor.add(`${ratio.toFixed(2)} to 1: "${walker.currentNode.data.trim().slice(0, 40)}" in ${element.outerHTML.slice(0, 80)}`);
    }
    return { count, poor: [...poor] };
  });
  assert.ok(found.count > 5, "hardly any text was found: the check has lost its subject");
  assert.deepEqual(found.poor, []);
}

/** Everything that can be pressed says what it is, and can be hit with a finger. */
export async function canBePressed(page) {
  const poor = await page.evaluate(() => {
    const pressed = [...document.querySelectorAll("button, a[href], summary")].filter((element) => element.checkVisibility());
    const isPoor = (element) => {
      const { width, height } = element.getBoundingClientRect();
      const hasName = element.textContent.trim() || element.getAttribute("aria-label");
      return !hasName || width < 8 || height < (element.matches("button") ? 30 : 14);
    };
    return pressed.filter(isPoor).map((element) => element.outerHTML.slice(0, 120));
  });
  assert.deepEqual(poor, []);
}
