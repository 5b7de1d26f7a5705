/**
 * `/docs` serves the documentation site if the package contains it (`npm run docs`). The files are stored compressed
 * and found in a fixed map, so that no path can reach other files.
 */
import { readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { UI_HEADERS } from "../../backends/ui/files.ts";
import { decompressAsync } from "../../base/decompress.ts";
import type { EmbeddedFolder } from "../../base/embedded-files.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { type AdminEndpoint, type AdminResponse, textResponse } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
};
const ZIPPED = ".gz";
const PAGE = peerInput("admin-client/packed-page");
export const DOCS_PAGE = `index.html${ZIPPED}`;

/** The highlighted code has inline styles. Scripts are files of the site. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const NO_DOCS = "the documentation is not part of this build; run: npm run docs\n";

export interface DocsFiles {
  readonly exist: boolean;
  find(path: string): { readonly type: string; readonly packed: Buffer } | undefined;
}

export function openDocsFiles(source: string | EmbeddedFolder | undefined): DocsFiles {
  const folder = typeof source === "string" ? onDisk(source) : source;
  const names = new Set(folder?.names);
  return {
    exist: names.has(DOCS_PAGE),
    find(path) {
      const name = fileName(path.replace(/^\//, ""));
      const type = TYPES[extname(name)];
      if (folder === undefined || type === undefined || !names.has(`${name}${ZIPPED}`)) return undefined;
      return { type, packed: folder.read(`${name}${ZIPPED}`) };
    },
  };
}

export function docsEndpoint(files: DocsFiles): AdminEndpoint {
  return {
    path: ADMIN_PATHS.docs,
    below: true,
    doc: "The documentation.",
    async GET({ path }): Promise<AdminResponse> {
      const file = files.find(path.slice(ADMIN_PATHS.docs.length));
      if (file === undefined) return textResponse(404, files.exist ? "not found\n" : NO_DOCS);
      const headers = {
        ...UI_HEADERS,
        "content-security-policy": CONTENT_SECURITY_POLICY,
        "cache-control": "no-cache",
      };
      return { status: 200, type: file.type, body: await decompressAsync(PAGE, file.packed, "gzip"), headers };
    },
  };
}

/** Maps a folder to its index page, and a name without an extension to an HTML file. */
function fileName(name: string): string {
  if (name === "" || name.endsWith("/")) return `${name}index.html`;
  return extname(name) === "" ? `${name}.html` : name;
}

function onDisk(folder: string): EmbeddedFolder {
  const names = readdirSync(folder, { recursive: true }).map((name) => String(name).replaceAll("\\", "/"));
  return { names, read: (name) => readFileSync(join(folder, name)) };
}
