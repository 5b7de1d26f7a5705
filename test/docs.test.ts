/**
 * The documents against the code: nothing generated is stale, every error is listed, every link leads somewhere, the
 * configurations in the text load, and the example policy is the one that is tested.
 */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { parse } from "yaml";
import { finish } from "../src/base/sliced-work.ts";
import { loadConfig } from "../src/config/load/load.ts";
import { ERRORS } from "../src/core/errors.ts";

const root = process.cwd();
const read = (path: string): string => readFileSync(join(root, path), "utf8");

test("the JSON schema and the reference pages are what `npm run generate` writes", async () => {
  const { generated } = (await import(pathToFileURL(join(root, "scripts/generate.mjs")).href)) as {
    generated(): Promise<Map<string, string>>;
  };
  for (const [path, text] of await generated()) {
    const message = `${path} is stale: run \`npm run generate\``;
    assert.ok(existsSync(join(root, path)), message);
    assert.ok(read(path) === text, message);
  }
});

test("every constant that is named as a limit is in the reference", async () => {
  const { unlistedLimits } = (await import(pathToFileURL(join(root, "scripts/limits.mjs")).href)) as {
    unlistedLimits(root: string): string[];
  };
  assert.deepEqual(unlistedLimits(root), [], "write a row in scripts/limits/ and run `npm run generate`");
});

test("every error code is in the reference, with its status", () => {
  const page = read("docs/reference/errors.md");
  for (const [code, { status }] of Object.entries(ERRORS))
    assert.match(page, new RegExp(`\\| \`${code}\` \\| ${status} \\|`));
});

test("every error that the guide names exists", () => {
  const codes = new Set(Object.keys(ERRORS));
  for (const [, status, code] of read("docs/errors.md").matchAll(/\| (\d{3}) `([a-z_]+)` \|/g)) {
    assert.ok(codes.has(code as string), code);
    assert.equal(ERRORS[code as keyof typeof ERRORS].status, Number(status));
  }
});

const pages = ["docs", "examples"]
  .flatMap((folder) => readdirSync(join(root, folder), { recursive: true, withFileTypes: true }))
  .filter((entry) => entry.isFile() && entry.name.endsWith(".md"))
  .map((entry) => relative(root, join(entry.parentPath ?? entry.path, entry.name)))
  .concat(readdirSync(root).filter((name) => name.endsWith(".md")));

test("every link in the documents leads to a file", () => {
  const broken: string[] = [];
  for (const page of pages) {
    const text = read(page).replace(/```[\s\S]*?```/g, "");
    for (const [, target] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^(?:https?:|mailto:|#)/.test(target as string)) continue;
      const path = resolve(join(root, dirname(page)), (target as string).replace(/#.*$/, ""));
      if (!existsSync(path)) broken.push(`${page}: ${target}`);
    }
  }
  assert.deepEqual(broken, []);
});

test("every link to a heading leads to one", () => {
  const anchors = new Map<string, Set<string>>();
  const anchorsOf = (page: string): Set<string> => {
    const known = anchors.get(page) ?? new Set(headings(read(page)).map(anchor));
    anchors.set(page, known);
    return known;
  };
  const broken: string[] = [];
  for (const page of pages) {
    const text = read(page).replace(/```[\s\S]*?```/g, "");
    for (const [, target] of text.matchAll(/\]\(((?:[\w./-]+\.md)?#[^)\s]+)\)/g)) {
      const [path, fragment = ""] = (target as string).split("#");
      const file = path ? relative(root, resolve(join(root, dirname(page)), path)) : page;
      if (existsSync(join(root, file)) && !anchorsOf(file).has(fragment)) broken.push(`${page}: ${target}`);
    }
  }
  assert.deepEqual(broken, []);
});

function headings(text: string): string[] {
  return [...text.replace(/^```[\s\S]*?^```/gm, "").matchAll(/^#{1,6} (.+)$/gm)].map(
    ([, heading]) => heading as string,
  );
}

/** The fragment that GitHub and the documentation site create for a heading. */
function anchor(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replaceAll(" ", "-");
}

/** The pages of a reader: everything except the design decisions and generated references of the project itself. */
const indexed = pages
  .filter((page) => /^docs\/(?:(?:internals|reference)\/)?[\w-]+\.md$/.test(page) && page !== "docs/README.md")
  .map((page) => relative("docs", page));

test("the index lists every page exactly once, by section", () => {
  const index = read("docs/README.md");
  assert.deepEqual(
    [...index.matchAll(/^## (.+)$/gm)].map(([, section]) => section),
    [
      "Start",
      "Migrate",
      "Connect clients",
      "MCP",
      "LLM",
      "Security",
      "Traffic",
      "Operate",
      "Kubernetes",
      "Reference",
      "Internals",
    ],
  );
  const listed = [...index.matchAll(/\]\(([\w/-]+\.md)(?:#[\w-]+)?\)/g)].map(([, page]) => page as string);
  assert.deepEqual(listed.toSorted(), indexed.toSorted());
});

test("a page is named like its title", () => {
  const plain = (text: string): string => text.toLowerCase().replace(/[^a-z0-9]/g, "");
  const named = indexed.filter((page) => !page.startsWith("reference/"));
  assert.deepEqual(
    named.filter((page) => plain(headings(read(`docs/${page}`))[0] ?? "") !== plain(page.replace(/^.*\/|\.md$/g, ""))),
    [],
  );
});

test("configurations in the text that call themselves config.yaml load", () => {
  let count = 0;
  for (const page of pages) {
    for (const [, text] of read(page).matchAll(/```yaml\n(# config\.yaml\n[\s\S]*?)```/g)) {
      count += 1;
      const loaded = finish(loadConfig([{ file: page, text: text as string }], {}));
      assert.ok(
        loaded.ok,
        loaded.ok ? "" : `${page}: ${loaded.problems.map((problem) => problem.toLine()).join("\n")}`,
      );
    }
  }
  assert.ok(count >= 4, "there are some");
});

test("the policy in docs/internals/adding-a-policy.md is the one in test/example-policy", () => {
  const page = read("docs/internals/adding-a-policy.md");
  assert.ok(page.includes(read("test/example-policy/policy.ts").replaceAll("../../src/core/", "../../core/")));
  assert.ok(
    page.includes(read("test/example-policy/policy.test.ts").replaceAll("../support/", "../../../test/support/")),
  );
});

test("every metric that the dashboards and the alert rules name is in the reference", async () => {
  const { alertRules, dashboardQueries, metricsIn } = (await import(
    pathToFileURL(join(root, "scripts/dashboards/queries.mjs")).href
  )) as {
    alertRules(file: unknown): { expr: string }[];
    dashboardQueries(dashboard: unknown): { expr: string }[];
    metricsIn(expr: string): string[];
  };
  const page = read("docs/reference/metrics.md");
  const queries = [
    ...alertRules(parse(read("deploy/prometheus/alerts.yaml"))),
    ...dashboardQueries(JSON.parse(read("deploy/grafana/dashboard.json"))),
    ...dashboardQueries(JSON.parse(read("deploy/grafana/controller.json"))),
  ];
  const named = new Set(queries.flatMap(({ expr }) => metricsIn(expr)));
  for (const [, name = ""] of page.matchAll(/^\| `(gateway_controller_\w+)` \|/gm))
    assert.ok(named.has(name), `${name} is in no dashboard`);
  assert.ok(queries.length >= 50 && named.size >= 30, `${queries.length} queries, ${named.size} metrics`);
  assert.deepEqual(
    [...named].filter((name) => !page.includes(`| \`${name}\` |`)),
    [],
  );
});
