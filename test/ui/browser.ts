/**
 * The system's Chromium for the tests of the web UI. Where there is none the tests say so and are skipped; every page
 * that is opened fails its test on a script error or a violated security policy.
 */
import { accessSync, constants, existsSync, mkdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { type Browser, chromium, type Page } from "playwright-core";
import { bundledUi } from "./bundle.ts";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"];
/** Much longer than anything takes on a busy machine. */
const PATIENCE_MS = 60_000;
export const ARTIFACTS = join(process.cwd(), "test-artifacts", "ui");

const executable = findExecutable();

/** For `test(name, { skip }, …)`: the reason, or false. */
export const skip: string | false =
  executable === undefined
    ? `no browser: install chromium to run the tests of the web UI (looked for ${NAMES.join(", ")})`
    : false;

export interface OpenPage {
  readonly page: Page;
  /** What went wrong in the page so far; a test ends with none. */
  readonly errors: string[];
}

export interface PageOptions {
  readonly width?: number;
  readonly theme?: "light" | "dark";
}

export async function openBrowser(): Promise<Browser> {
  bundledUi();
  mkdirSync(ARTIFACTS, { recursive: true });
  if (executable === undefined) throw new Error("no browser");
  return chromium.launch({ executablePath: executable, args: ARGUMENTS });
}

export async function openPage(browser: Browser, url: string, options: PageOptions = {}): Promise<OpenPage> {
  const page = await browser.newPage({
    viewport: { width: options.width ?? 1280, height: 800 },
    colorScheme: options.theme ?? "light",
  });
  page.setDefaultTimeout(PATIENCE_MS);
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (message) => {
    // An answer of 4xx or 5xx is shown by the page itself; the browser also notes it.
    if (message.type() === "error" && !/^Failed to load resource/.test(message.text())) errors.push(message.text());
  });
  await page.goto(url);
  return { page, errors };
}

function findExecutable(): string | undefined {
  const named = process.env.CHROMIUM_PATH;
  if (named !== undefined && existsSync(named)) return named;
  for (const folder of (process.env.PATH ?? "").split(delimiter))
    for (const name of NAMES) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch {
        // Not here.
      }
    }
  return undefined;
}
