/**
 * The playgrounds: the model menu, compared models as chips, stored keys as credentials, menus that close, forms with a
 * control per type, and the history of calls.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { bearerText } from "../../ui/src/data/credential.ts";
import { startToolsServer } from "../support/mcp/tools-server.ts";
import { gatewayFor } from "../support/scenario.ts";
import { openBrowser, openPage, skip, type TestBrowser } from "./browser.ts";
import { checkLooks } from "./page-checks.ts";

let browser: TestBrowser;

before(async () => {
  if (skip === false) browser = await openBrowser();
});
after(() => browser?.close());

const MODELS = ["fast", "large", "small", "vision", "code", "cheap"];

test("models are picked from a menu, a stored key is sent as a bearer token, and menus close", {
  skip,
}, async (context) => {
  const gateway = await gatewayFor(
    context,
    `
config: { logging: { level: "info,access=off" } }
llm:
  port: 0
  policies: { apiKey: { stored: true } }
  models:
${MODELS.map((name) => `    - { name: ${name}, provider: { demo: {} } }`).join("\n")}
`,
  );
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/keys`, { width: 1440 });
  await page.getByRole("button", { name: "Create key" }).click();
  await page.getByLabel("Name").fill("laptop");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByRole("button", { name: "Done" }).click();
  await page.getByRole("navigation").getByRole("link", { name: "LLM" }).click();

  const model = page.getByRole("combobox", { name: "Model", exact: true });
  const options = page.getByRole("option");
  await model.click();
  assert.deepEqual(await options.allTextContents(), MODELS);
  await checkLooks(page, "llm-models");
  await page.keyboard.press("Escape");
  await options.first().waitFor({ state: "detached" });
  await model.fill("a");
  assert.deepEqual(await options.allTextContents(), ["fast", "large", "small", "cheap"]);
  await options.filter({ hasText: "cheap" }).click();
  await options.first().waitFor({ state: "detached" });
  assert.equal(await model.inputValue(), "cheap");
  assert.match(page.url(), /model=cheap/);
  await model.fill("");
  assert.equal(await model.inputValue(), "", "the field can be emptied");
  await model.press("ArrowDown");
  await model.press("Enter");
  assert.equal(await model.inputValue(), "fast");

  const menu = page.getByRole("button", { name: /^Credential/ });
  const panel = page.getByRole("dialog", { name: "Credential" });
  assert.equal(await menu.textContent(), "Credential: none");
  // A key that follows the click before the next frame is drawn.
  await page.evaluate(`(async () => {
    [...document.querySelectorAll(".popover > button")].find((one) => one.textContent.startsWith("Credential")).click();
    while (!document.querySelector("[role=dialog]")) await undefined;
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  })()`);
  await panel.waitFor({ state: "detached" });
  await menu.click();
  await page.getByRole("log").click();
  await panel.waitFor({ state: "detached" });
  await menu.click();
  const source = page.getByLabel("Send with each request");
  const stored = await source.locator("optgroup option").getAttribute("value");
  await source.selectOption(stored);
  assert.match(await page.getByLabel("Key", { exact: true }).inputValue(), /^gw-/, "created in this tab");
  await checkLooks(page, "llm-credential");
  await page.getByLabel("Key", { exact: true }).press("Enter");
  await panel.waitFor({ state: "detached" });
  assert.equal(await menu.textContent(), "Credential: laptop");
  await page.getByLabel("Message").fill("Hello");
  await page.keyboard.press("Enter");
  await page.locator(".exchange .took").waitFor();
  assert.equal(await page.locator(".exchange .note").count(), 0, "the key is accepted");

  const chat = page.locator(".panel.tall");
  const height = async (): Promise<number> => (await chat.boundingBox())?.height ?? 0;
  assert.ok((await height()) > 780, `the chat is ${await height()} pixels high`);
  await page.getByRole("tab", { name: "Compare models" }).click();
  const chips = page.locator(".chips .chip");
  assert.deepEqual(await chips.allTextContents(), ["fast×", "large×"]);
  await page.getByRole("button", { name: "Remove large" }).click();
  const add = page.getByRole("combobox", { name: "Add a model" });
  await add.click();
  await options.filter({ hasText: "vision" }).click();
  await add.fill("unlisted");
  await add.press("Enter");
  assert.deepEqual(await chips.allTextContents(), ["fast×", "vision×", "unlisted×"]);
  await page.getByLabel("Question to all models").fill("Hello");
  await page.getByRole("button", { name: "Ask all" }).click();
  await page.locator(".compare section").nth(1).locator(".took").waitFor();
  await page.locator(".compare section").nth(2).locator(".note").waitFor();
  await checkLooks(page, "llm-compare");
  assert.deepEqual(errors, []);
  await page.close();
});

test("a tool has a control for each type, and earlier calls are shown again", { skip }, async (context) => {
  const node = { type: "object", properties: { title: { type: "string" }, parent: { $ref: "#/$defs/node" } } };
  const server = await startToolsServer([
    {
      name: "book",
      description: "Books a room.",
      inputSchema: {
        type: "object",
        required: ["room", "day"],
        properties: {
          room: { type: "string", enum: ["north", "south"] },
          floor: { type: "string", enum: ["first", "second", "third", "fourth", "fifth"] },
          day: { type: "string", format: "date" },
          start: { type: "string", format: "date-time" },
          seats: { type: "integer", minimum: 1, maximum: 12 },
          projector: { type: "boolean", description: "Needs a projector." },
          guests: { type: "array", items: { type: "string" } },
          extras: { type: "array", items: { enum: ["coffee", "lunch", "parking"] } },
          slots: { type: "array", items: { type: "object", properties: { hour: { type: "number" } } } },
          matrix: { type: "array", items: { type: "array", items: { type: "number" } } },
          node: { $ref: "#/$defs/node" },
        },
        $defs: { node },
      },
    },
    { name: "other", inputSchema: { type: "object" } },
  ]);
  context.after(() => server.close());
  const gateway = await gatewayFor(
    context,
    `mcp: { port: 0, targets: [{ name: rooms, mcp: { url: "${server.url}" } }] }\n`,
  );
  const { page, errors } = await openPage(browser, `${gateway.adminUrl}/ui/mcp`, { width: 1440 });
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  const choice = (name: string) => page.getByRole("group", { name, exact: true });
  await choice("room").getByRole("button", { name: "south" }).click();
  await page.getByLabel(/^floor/).selectOption({ label: "third" });
  await page.getByLabel(/^day/).fill("2026-11-20");
  await page.getByLabel(/^start/).fill("2026-11-20T09:30:00");
  await page.getByLabel(/^seats/).fill("4");
  assert.equal(await choice("projector").getByRole("button", { name: "not set" }).getAttribute("aria-pressed"), "true");
  await choice("projector").getByRole("button", { name: "false" }).click();
  for (const [i, guest] of ["ada", "unused", "ben"].entries()) {
    await page.getByRole("button", { name: "Add guests" }).click();
    await page.getByLabel(`guests ${i + 1}`, { exact: true }).fill(guest);
  }
  await page.getByRole("button", { name: "Remove guests 2" }).click();
  await page.getByRole("button", { name: "parking" }).click();
  await page.getByRole("button", { name: "coffee" }).click();
  await page.getByRole("button", { name: "Add slots" }).click();
  await page.getByLabel(/^hour/).fill("9");
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.getByText("done", { exact: true }).first().waitFor();
  const start = (await page.evaluate("new Date('2026-11-20T09:30:00').toISOString()")) as string;
  assert.deepEqual(server.calls[0]?.arguments, {
    room: "south",
    floor: "third",
    day: "2026-11-20",
    start,
    seats: 4,
    projector: false,
    guests: ["ada", "ben"],
    extras: ["coffee", "parking"],
    slots: [{ hour: 9 }],
  });
  await checkLooks(page, "mcp-form");
  const frame = await page.locator(".split.playground").boundingBox();
  assert.ok(frame && frame.height > 780, "the playground fills the window");

  await page.getByRole("button", { name: /^other/ }).click();
  server.results.other = { isError: true, content: [{ type: "text", text: "out of order" }] };
  await page.getByRole("button", { name: "Call", exact: true }).click();
  const history = page.locator(".call-history tbody tr");
  await history.filter({ hasText: "other" }).getByText("failed").waitFor();
  assert.equal(await history.count(), 2);
  await history.getByRole("button", { name: "book" }).click();
  await page.getByRole("heading", { name: "book" }).waitFor();
  assert.equal(await page.getByLabel(/^day/).inputValue(), "2026-11-20");
  assert.equal(await page.getByLabel("guests 2", { exact: true }).inputValue(), "ben");
  const shown = await page.getByLabel(/^start/).inputValue();
  assert.match(shown, /^2026-11-20T09:30/, "the time is shown in the local zone again");
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await history.nth(2).waitFor();
  assert.deepEqual(server.calls[2]?.arguments, server.calls[0]?.arguments);
  await checkLooks(page, "mcp-history");
  assert.deepEqual(errors, []);
  await page.close();
});

test("a token is sent with its scheme", () => {
  assert.equal(bearerText(" abc "), "Bearer abc");
  assert.equal(bearerText("Bearer abc"), "Bearer abc");
  assert.equal(bearerText("Basic YTpi"), "Basic YTpi");
});
