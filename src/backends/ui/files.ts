/**
 * The built web UI as a fixed map of files: what is not in the map does not exist, so no path can reach outside
 * (U2). Read once, on first use, because a gateway whose UI nobody opens should not pay for it.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { EmbeddedFolder } from "../../base/embedded-files.ts";

export interface UiFile {
  readonly type: string;
  readonly bytes: Buffer;
  /** The same, compressed when it was built. */
  readonly gzip: Buffer | undefined;
  /** Its name carries a hash of its content. */
  readonly immutable: boolean;
}

export interface UiFiles {
  /** `path` is what follows `/ui`. Pages of the application all have the same document. */
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
 * No inline script or style, nothing from elsewhere, no framing; what a tool answers may be shown as an image that
 * the page itself made. Trusted types close the last way from text to markup (U1).
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

/** Hashed files never change; the page must be asked for again after an upgrade. */
export function cacheControl(file: UiFile): string {
  return file.immutable ? "public, max-age=31536000, immutable" : "no-cache";
}

/** `folder` undefined or without a page: the UI was not built, and `find` knows nothing. */
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

/** `dist/ui` seen from a module: beside the bundle, or in the package that the module was compiled in. */
export function uiFolderNear(moduleUrl: string): string | undefined {
  for (const relative of ["./ui/", "../dist/ui/", "../../dist/ui/"]) {
    const folder = fileURLToPath(new URL(relative, moduleUrl));
    if (existsSync(join(folder, PAGE)) && !existsSync(join(folder, "tsconfig.json"))) return folder;
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
