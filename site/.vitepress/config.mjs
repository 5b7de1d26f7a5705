/** The documentation site, built by `npm run docs` from the pages that stage.mjs copies. */
import { readFileSync } from "node:fs";
import { sidebar } from "../stage.mjs";

const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));

/** As GitHub does it, because the pages link to headings there as well. */
const slugify = (heading) =>
  heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replace(/\s/g, "-");

const INTERNAL_PAGES = new Set(["architecture.md", "contributing.md", "reference/spec.md", "reference/threats.md"]);
const isInternal = (page) => /^(?:adr|internals)\//.test(page) || INTERNAL_PAGES.has(page);
/** The links at the end of a page, which would be a search result of their own. */
const NEXT_LINKS = /<h2 id="next"[\s\S]*$/;

// biome-ignore lint/style/noDefaultExport: VitePress reads the default export.
export default {
  title: "MCP & LLM Gateway",
  description: "Documentation of the MCP & LLM Gateway",
  lang: "en-US",
  base: "/docs/",
  srcDir: "pages",
  outDir: "../dist-docs",
  cacheDir: "node_modules/.vitepress",
  // The pages of one version belong together; a link to a file that is missing fails the build.
  ignoreDeadLinks: [/^https?:\/\/localhost/],
  metaChunk: true,
  head: [["link", { rel: "icon", type: "image/svg+xml", href: "/docs/favicon.svg" }]],
  markdown: {
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
    anchor: { slugify },
    // Angle brackets and braces in the pages are text, not Vue templates.
    config(md) {
      md.core.ruler.push("text-only", ({ tokens }) => {
        for (const token of tokens.flatMap((one) => one.children ?? []))
          if (token.type === "html_inline" && !/^<(?:br\s*\/?|!--[\s\S]*--)>$/.test(token.content)) token.type = "text";
      });
      // The corner of a table whose first column needs no title is not a header.
      md.core.ruler.push("empty-headers", ({ tokens }) => {
        for (const [at, open] of tokens.entries())
          if (open.type === "th_open" && tokens[at + 1].content === "") open.tag = tokens[at + 2].tag = "td";
      });
      const { text } = md.renderer.rules;
      md.renderer.rules.text = (...given) => text(...given).replaceAll("{{", "&#123;&#123;");
    },
  },
  themeConfig: {
    logo: "/favicon.svg",
    siteTitle: "MCP & LLM Gateway",
    nav: [
      { text: "Overview", link: "/overview" },
      { text: `Version ${version}`, link: "/changelog" },
    ],
    sidebar: sidebar(),
    outline: { level: [2, 3] },
    search: {
      provider: "local",
      options: {
        // The pages for contributors would come before those for users.
        _render: (source, env, md) => {
          const html = md.render(source, env);
          return isInternal(env.relativePath) ? "" : html.replace(NEXT_LINKS, "");
        },
      },
    },
    docFooter: { prev: false, next: false },
  },
};
