/**
 * Serves the files of the built web UI from a fixed map, so that no path can reach other files.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { EmbeddedFolder } from "../../base/embedded-files.ts";

export interface UiFile {
  readonly type: string;
  readonly bytes: Buffer;
  readonly gzip: Buffer | undefined;
  /** True if the name contains a hash of the content. */
  readonly immutable: boolean;
}

export interface UiFiles {
  /** `path` is the part after `/ui`. Every page of the application is served by index.html. */
  find(path: string): UiFile | undefined;
}

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};
const PAGE = "index.html";

/**
 * Forbids inline scripts and styles, external resources, and framing. Blob images are allowed for tool results. Trusted
 * types prevent text from becoming markup.
 */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' blob:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

export const UI_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": CONTENT_SECURITY_POLICY,
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin-allow-popups",
  "cross-origin-resource-policy": "same-origin",
};

/** Hashed files never change. The page is revalidated, so that an upgrade takes effect. */
export function cacheControl(file: UiFile): string {
  return file.immutable ? "public, max-age=31536000, immutable" : "no-cache";
}

export function openUiFiles(folder: string | EmbeddedFolder | undefined): UiFiles {
  let files: ReadonlyMap<string, UiFile> | undefined;
  return {
    find(path) {
      files ??= folder === undefined ? new Map() : readFolder(typeof folder === "string" ? onDisk(folder) : folder);
      const name = path.replace(/^\//, "");
      const isPage = !name.includes(".") && !name.includes("%") && !name.includes("\\");
      return files.get(isPage ? PAGE : name);
    },
  };
}

/** Finds a built folder such as `dist/ui` next to the bundle or in the package of the module. */
export function builtFolderNear(moduleUrl: string, name = "ui", page = PAGE): string | undefined {
  for (const relative of ["./", "../dist/", "../../dist/", "../../../dist/"]) {
    const folder = fileURLToPath(new URL(`${relative}${name}/`, moduleUrl));
    if (existsSync(join(folder, page)) && !existsSync(join(folder, "tsconfig.json"))) return folder;
  }
  return undefined;
}

function onDisk(folder: string): EmbeddedFolder {
  return { names: readdirSync(folder), read: (name) => readFileSync(join(folder, name)) };
}

function readFolder(folder: EmbeddedFolder): ReadonlyMap<string, UiFile> {
  const files = new Map<string, UiFile>();
  const names = new Set(folder.names);
  for (const name of names) {
    const type = TYPES[extname(name)];
    if (type === undefined) continue;
    files.set(name, {
      type,
      bytes: folder.read(name),
      gzip: names.has(`${name}.gz`) ? folder.read(`${name}.gz`) : undefined,
      immutable: /-[A-Z0-9]{8}\.[a-z]+$/.test(name),
    });
  }
  return files;
}
