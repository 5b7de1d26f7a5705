/**
 * `npm run docs`: builds the documentation site into dist-docs/ with VitePress, which has its own lock file in site/ and
 * is installed there on first use. The gateway serves the result at /docs on the admin address, so the site must stay
 * small and must not contain inline scripts.
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { docsOut, filesBelow, packDocs } from "./pack-docs.mjs";
import { npm, root, step } from "./steps.mjs";

const MAX_BYTES = 5 * 1024 * 1024;
const INLINE = /<script(?![^>]*\ssrc=)([^>]*)>([\s\S]*?)<\/script>/g;
const site = join(root, "site");

if (!existsSync(join(site, "node_modules", "vitepress")))
  step("install VitePress", npm(), ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", site]);
const { stage } = await import("../site/stage.mjs");
stage();
rmSync(docsOut, { recursive: true, force: true });
step("docs", process.execPath, [join(site, "node_modules", "vitepress", "bin", "vitepress.js"), "build", site]);

const pages = filesBelow(docsOut).filter((name) => name.endsWith(".html"));
for (const name of pages)
  writeFileSync(join(docsOut, name), withoutInlineScripts(readFileSync(join(docsOut, name), "utf8")));
const bytes = packDocs();
console.log(
  `docs: ${pages.length} pages in dist-docs/, ${(bytes / 1024 / 1024).toFixed(1)} MiB compressed in dist/docs/`,
);
if (bytes > MAX_BYTES) {
  console.error(`docs: larger than ${MAX_BYTES / 1024 / 1024} MiB`);
  process.exit(1);
}

/** The gateway's content security policy allows scripts from files only. */
function withoutInlineScripts(html) {
  return html.replace(INLINE, (_whole, attributes, code) => {
    const name = `assets/inline.${createHash("sha256").update(code).digest("hex").slice(0, 8)}.js`;
    writeFileSync(join(docsOut, name), code);
    return `<script${attributes} src="/docs/${name}"></script>`;
  });
}
