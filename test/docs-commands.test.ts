/**
 * Every shell command in the pages for operators is run by a test or a script: the table below names it for each section,
 * and that file reads the commands out of the page, so that a new command is run, too. A section without a row fails.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { docBlocks } from "./support/package/doc-commands.ts";

const PAGES = [
  "install",
  "deploy",
  "monitor",
  "upgrade",
  "scale",
  "backup",
  "security-checklist",
  "store",
  "audit-log",
  "migrate",
  "kubernetes",
].map((name) => `docs/${name}.md`);

const PACKAGE = "test/scenario/package.test.ts";
const ONE_FILE = "test/scenario/one-file.test.ts";
const COMMANDS = "test/scenario/docs-commands.test.ts";
const SCRIPT = "scripts/test-docs.mjs";

/** Page, heading, and who runs what stands below it. */
const RUN_BY: readonly (readonly [page: string, heading: string, runner: string])[] = [
  ["docs/install.md", "npm", PACKAGE],
  ["docs/install.md", "Single file", ONE_FILE],
  ["docs/install.md", "Container", SCRIPT],
  ["docs/install.md", "systemd", SCRIPT],
  ["docs/deploy.md", "Deploy", SCRIPT],
  ["docs/monitor.md", "Metrics", COMMANDS],
  ["docs/upgrade.md", "Upgrade", COMMANDS],
  ["docs/upgrade.md", "systemd", SCRIPT],
  ["docs/backup.md", "Backup", COMMANDS],
  ["docs/security-checklist.md", "Security checklist", COMMANDS],
  ["docs/migrate.md", "Migrate", COMMANDS],
  ["docs/kubernetes.md", "Kubernetes", SCRIPT],
];

test("every section with commands has a runner, and every runner's section has commands", () => {
  const found = new Set(PAGES.flatMap(docBlocks).map(({ page, heading }) => `${page}: ${heading}`));
  const listed = new Set(RUN_BY.map(([page, heading]) => `${page}: ${heading}`));
  assert.deepEqual([...found].sort(), [...listed].sort());
});

test("each runner takes the commands from the page", () => {
  for (const [page, heading, runner] of RUN_BY) {
    const text = readFileSync(runner, "utf8");
    assert.ok(text.includes(`"${page}", "${heading}"`), `${runner} runs ${page}: ${heading}`);
  }
});

test("shell blocks are marked sh or console, in every page", () => {
  const wrong = readdirSync("docs")
    .filter((name) => name.endsWith(".md"))
    .flatMap((name) => docBlocks(`docs/${name}`))
    .filter(({ language, commands }) => !["sh", "console"].includes(language) || commands.length === 0);
  assert.deepEqual(wrong, []);
});
