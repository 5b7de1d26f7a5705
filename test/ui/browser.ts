/**
 * The system's Chromium for the tests of the web UI. Where there is none the tests say so and are skipped; every page
 * that is opened fails its test on a script error or a violated security policy.
 */
import { accessSync, constants, existsSync, mkdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { bundledUi } from "./bundle.ts";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/**
 * The address bar of each window loads two pages of its own, which take twice the CPU of an empty page. The last switch
 * wins, so Playwright's own list is repeated here.
 */
const DISABLED_FEATURES = [
  "WebUIOmniboxPopup",
  "WebUIOmniboxAimPopup",
  "WebUIOmniboxFullPopup",
  "AvoidUnnecessaryBeforeUnloadCheckSync",
  "DestroyProfileOnBrowserClose",
  "HttpsUpgrades",
  "HttpsFirstBalancedModeAutoEnable",
  "LensOverlay",
  "MediaRouter",
  "PaintHolding",
  "ThirdPartyStoragePartitioning",
  "AvoidCorsURLLoaderRestartOnRedirect",
  "OptimizationHints",
  "NetworkTimeServiceQuerying",
  "AimEnabled",
  "PreconnectToSearch",
];
const ARGUMENTS = [
  "--no-sandbox",
  "--disable-dev-shm-usage",
  "--disable-gpu",
  `--disable-features=${DISABLED_FEATURES.join()}`,
];
/** Much longer than anything takes on a busy machine. */
const PATIENCE_MS = 180_000;
/** From the end of one file to the beginning of the next, with room for a busy machine. */
const IDLE_MS = 2_000;
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

/** A browser as a test has it: its pages share nothing with those of other tests. */
export interface TestBrowser {
  newPage(options: BrowserContextOptions): Promise<Page>;
  /** An empty page, which may have served others; see `lent`. */
  lendPage(): Promise<Page>;
  /** Closes its pages. */
  close(): Promise<void>;
}

/** One for all files of a process: to start it takes more than a second of CPU. It ends when nobody has used it for a while. */
let running: Promise<Browser> | undefined;
let users = 0;
let idle: NodeJS.Timeout | undefined;
/** Empty again, for the next test. */
let free: Page[] = [];
const borrowers = new WeakMap<Page, Set<Page>>();

export async function openBrowser(): Promise<TestBrowser> {
  bundledUi();
  mkdirSync(ARTIFACTS, { recursive: true });
  if (executable === undefined) throw new Error("no browser");
  clearTimeout(idle);
  users += 1;
  running ??= launch(executable);
  const browser = await running;
  const pages = new Set<Page>();
  return {
    newPage: async (options) => {
      const page = await browser.newPage(options);
      pages.add(page);
      page.once("close", () => pages.delete(page));
      return page;
    },
    lendPage: async () => {
      const page = free.pop() ?? lent(await browser.newPage());
      pages.add(page);
      borrowers.set(page, pages);
      return page;
    },
    close: async () => {
      await Promise.all([...pages].map((page) => page.close()));
      users -= 1;
      if (users === 0) idle = setTimeout(() => void endBrowser(browser), IDLE_MS);
    },
  };
}

/** One that does not start, or ends by itself, is not given to the next. */
function launch(executablePath: string): Promise<Browser> {
  const launched = chromium.launch({ executablePath, args: ARGUMENTS });
  const forget = (): void => {
    if (running === launched) [running, free] = [undefined, []];
  };
  launched.then((browser) => browser.once("disconnected", forget), forget);
  return launched;
}

async function endBrowser(browser: Browser): Promise<void> {
  [running, free] = [undefined, []];
  await browser.close();
}

/** A new page takes a second of CPU: one that its test closes is emptied instead, and serves the next. */
function lent(page: Page): Page {
  const close = page.close.bind(page);
  page.close = async () => {
    borrowers.get(page)?.delete(page);
    if (page.isClosed() || free.includes(page)) return;
    try {
      page.removeAllListeners();
      await page.unrouteAll();
      await page.evaluate("localStorage.clear(); sessionStorage.clear()");
      await page.goto("about:blank");
      await page.mouse.move(0, 0);
      await page.context().clearCookies();
      if (page.context().pages().length === 1) free.push(page);
      else await close();
    } catch {
      // What it does not let go of goes with it.
      await close();
    }
  };
  return page;
}

export async function openPage(browser: TestBrowser, url: string, options: PageOptions = {}): Promise<OpenPage> {
  const page = await browser.lendPage();
  await page.setViewportSize({ width: options.width ?? 1280, height: 800 });
  await page.emulateMedia({ colorScheme: options.theme ?? "light" });
  page.setDefaultTimeout(PATIENCE_MS);
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (message) => {
    // An answer of 4xx or 5xx is shown by the page itself; the browser also notes it.
    if (message.type() === "error" && !/^Failed to load resource/.test(message.text())) errors.push(message.text());
  });
  const failed: string[] = [];
  page.on("requestfailed", (request) => failed.push(`${request.url()}: ${request.failure()?.errorText}`));
  page.on("crash", () => failed.push("the page crashed"));
  await page.goto(url);
  if (new URL(page.url()).pathname.startsWith("/ui")) await rendered(page, failed);
  return { page, errors };
}

/** Waits for the frame of the application, which needs no data, so that a blank page fails here and with its reason. */
async function rendered(page: Page, failed: readonly string[]): Promise<void> {
  try {
    await page.locator("#app > *").first().waitFor({ state: "attached" });
  } catch (error) {
    throw new Error(`the page is blank; requests that failed: ${failed.join("; ")}`, { cause: error });
  }
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
