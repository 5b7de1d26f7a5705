/**
 * Copies the Markdown pages of the repository into site/pages/ in the form that VitePress builds: docs/README.md is the
 * start page, the pages at the root of the repository and the examples have pages of their own, and a link to any other
 * file of the repository becomes its path, because the site does not contain that file.
 */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
export const pagesFolder = join(root, "site", "pages");

const ROOT_PAGES = ["README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "CODE_OF_CONDUCT", "SECURITY"];
const LINK = /(!?)\[((?:[^[\]]|\[[^\]]*\])*)\]\(([^()\s]*)\)/g;
const FENCED = /(^ {0,3}(`{3,}|~{3,})[^\n]*\n[\s\S]*?^ {0,3}\2[^\n]*$)/gm;

/** The front matter of the start page, above the tables of docs/README.md. */
const LANDING = `---
layout: home
hero:
  name: MCP & LLM Gateway
  text: One address for MCP servers, models, and APIs
  tagline: Logins, tool rules, budgets, and failover. It explains every request that it rejects.
  actions:
    - { theme: brand, text: Tutorial, link: /tutorial }
    - { theme: alt, text: Install, link: /install }
    - { theme: alt, text: Recipes, link: /recipes }
---

`;

/** Returns the Markdown of every page by its path in the site. */
export function stagedPages() {
  const sources = pageSources();
  const places = new Map([...sources].map(([page, source]) => [source.path, page]));
  const pages = new Map([...sources].map(([page, { path, text }]) => [page, withLinks(text, path, page, places)]));
  return pages.set("index.md", `${LANDING}${pages.get("index.md")}`);
}

export function stage() {
  rmSync(pagesFolder, { recursive: true, force: true });
  for (const [page, text] of stagedPages()) {
    mkdirSync(dirname(join(pagesFolder, page)), { recursive: true });
    writeFileSync(join(pagesFolder, page), text);
  }
  cpSync(join(root, "docs", "images"), join(pagesFolder, "images"), { recursive: true });
  mkdirSync(join(pagesFolder, "public"), { recursive: true });
  cpSync(join(root, "ui", "favicon.svg"), join(pagesFolder, "public", "favicon.svg"));
}

/** Maps a page of the site to its file in the repository and its text. */
function pageSources() {
  const pages = new Map();
  const add = (page, path, text = readFileSync(join(root, path), "utf8")) => pages.set(page, { path, text });
  for (const name of markdownBelow("docs")) add(name === "README.md" ? "index.md" : name, `docs/${name}`);
  for (const name of ROOT_PAGES) if (existsSync(join(root, `${name}.md`))) add(rootPage(name), `${name}.md`);
  add("examples/index.md", "examples/README.md");
  for (const name of readdirSync(join(root, "examples"))) {
    const readme = `examples/${name}/README.md`;
    if (existsSync(join(root, readme))) add(`examples/${name}.md`, readme, exampleText(name));
  }
  if (!pages.has("adr/index.md")) add("adr/index.md", "docs/adr/README.md", decisionsText());
  return pages;
}

function rootPage(name) {
  return name === "README" ? "overview.md" : `${name.toLowerCase().replaceAll("_", "-")}.md`;
}

function markdownBelow(folder) {
  return readdirSync(join(root, folder), { recursive: true })
    .map((name) => name.replaceAll("\\", "/"))
    .filter((name) => name.endsWith(".md"))
    .sort();
}

function exampleText(name) {
  const folder = join(root, "examples", name);
  const files = readdirSync(folder).filter((file) => file.endsWith(".yaml"));
  const shown = files.map(
    (file) => `## ${file}\n\n\`\`\`yaml\n${readFileSync(join(folder, file), "utf8").trimEnd()}\n\`\`\`\n`,
  );
  return [readFileSync(join(folder, "README.md"), "utf8").trimEnd(), ...shown].join("\n\n");
}

function decisionsText() {
  const rows = markdownBelow("docs/adr").map((name) => {
    const [, title = name] = /^# (.*)$/m.exec(readFileSync(join(root, "docs/adr", name), "utf8")) ?? [];
    return `- [${title}](${name})`;
  });
  return `# Design decisions\n\n${rows.join("\n")}\n`;
}

function withLinks(text, path, page, places) {
  const parts = text.split(FENCED);
  // Each match contributes the block and its fence to the split, so every third part is text.
  return parts
    .map((part, index) => {
      if (index % 3 === 2) return "";
      if (index % 3 === 1) return part;
      return part.replace(LINK, (whole, mark, label, target) => link(whole, mark, label, target, path, page, places));
    })
    .join("");
}

function link(whole, mark, label, target, path, page, places) {
  if (/^(?:[a-z]+:|#|$)/.test(target)) return whole;
  const [file, hash = ""] = target.split(/(?=#)/);
  const found = posix.normalize(posix.join(posix.dirname(path), file)).replace(/\/$/, "");
  if (mark === "!") return `![${label}](${relativeTo(page, found.replace(/^docs\//, ""))})`;
  const place = places.get(found) ?? places.get(`${found}/README.md`);
  if (place !== undefined) return `[${label}](${relativeTo(page, place)}${hash})`;
  return label.includes("`") ? label : `${label} (\`${found}\`)`;
}

function relativeTo(page, place) {
  const path = posix.relative(posix.dirname(page), place);
  return path.startsWith(".") ? path : `./${path}`;
}

/** Reads the sections of docs/README.md: every row of its tables is an entry. Only the first group is open. */
export function sidebar() {
  const pages = stagedPages();
  const sections = [];
  let items;
  for (const line of pages.get("index.md").split("\n")) {
    const heading = /^## (.*)$/.exec(line);
    const row = /^\| \[(.*?)\]\(\.\/(.*?)\) \|/.exec(line);
    if (heading) {
      items = [];
      sections.push({ text: heading[1], items, collapsed: sections.length > 0 });
    } else if (row) items?.push({ text: row[1], link: `/${row[2].replace(/(?:index)?\.md(?=#|$)/, "")}` });
  }
  return sections;
}
