/**
 * What holds for every page, whatever it shows: no serious accessibility defect, no sideways scroll bar, and an answer to
 * what somebody does before they notice a wait.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { ARTIFACTS } from "./browser.ts";

/** A page and a text that appears once its data is there. */
export const PAGES = [
  { name: "overview", text: "Problems" },
  { name: "requests", text: "requests" },
  { name: "mcp", text: "Servers" },
  { name: "llm", text: "Models and providers" },
  { name: "keys", text: "spend" },
  { name: "limits", text: "per hour" },
  { name: "policies", text: "applies to" },
  { name: "access", text: "Who may use which" },
  { name: "config", text: "Kept: a comment" },
  { name: "runtime", text: "Process (RSS)" },
  { name: "cel", text: "Attributes" },
];

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/**
 * Serious and critical findings of axe, in one line each. It runs outside of the page's own security policy. `contrast`
 * is all that another theme can change: themes are colours.
 */
export async function defects(page: Page, kind: "all" | "contrast" = "all"): Promise<string[]> {
  if ((await page.evaluate("typeof axe")) === "undefined") await page.evaluate(axeSource);
  const rules = kind === "all" ? "['wcag2a', 'wcag2aa', 'wcag21aa']" : "{ type: 'rule', values: ['color-contrast'] }";
  const found = (await page.evaluate(
    `axe.run(document, { resultTypes: ['violations'], runOnly: ${rules} }).then(({ violations }) => violations.filter(({ impact }) => impact === 'serious' || impact === 'critical').map(({ id, nodes }) => id + ': ' + nodes.slice(0, 3).map(({ html }) => html.slice(0, 160)).join(' | ')))`,
  )) as string[];
  return found;
}

export async function sidewaysOverflow(page: Page): Promise<number> {
  return (await page.evaluate(
    "Math.max(document.documentElement.scrollWidth - window.innerWidth, (document.querySelector('main')?.scrollWidth ?? 0) - (document.querySelector('main')?.clientWidth ?? 0))",
  )) as number;
}

/** Checks and photographs a page at 1440 and 400 pixels in both themes, and leaves it at 1440 pixels. */
export async function checkLooks(page: Page, name: string): Promise<void> {
  for (const width of [400, 1440])
    for (const colorScheme of ["dark", "light"] as const) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: join(ARTIFACTS, `${name}-${colorScheme}-${width}.png`) });
      assert.deepEqual(await defects(page, colorScheme === "light" ? "all" : "contrast"), [], `${name} ${width}`);
      assert.ok((await sidewaysOverflow(page)) <= 0, `${name} scrolls sideways at ${width} pixels`);
    }
}

/** How many elements a page has drawn. */
export async function elementCount(page: Page): Promise<number> {
  return (await page.evaluate("document.querySelectorAll('*').length")) as number;
}

/**
 * Milliseconds from an act in the page until the browser has drawn what came of it: script, style, layout and paint.
 * `act` is JavaScript that runs in the page.
 */
export async function reactionMs(page: Page, act: string): Promise<number> {
  return (await page.evaluate(
    `new Promise((resolve) => requestAnimationFrame(() => {
      const started = performance.now();
      ${act};
      requestAnimationFrame(() => { const port = new MessageChannel(); port.port1.onmessage = () => resolve(performance.now() - started); port.port2.postMessage(0); });
    }))`,
  )) as number;
}
